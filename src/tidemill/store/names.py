"""The names around one that was not found: a bounded number of rows from an index, however many there are.

A namespace may have 100,000 tables, and clients poll for tables that do not exist yet. So nothing here scans:
each statement reads at most `count` names before the given one and `count` from it on, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, Text, bindparam, select, union_all

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, table_ident
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.namespaces import level_parameters, namespace_at
from tidemill.store.schema import functions, jobs, namespaces, tables


class SqlNeighborNames:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def objects(self, ident: TableIdent, count: int) -> Sequence[tuple[str, str]]:
        statement = _objects_statement(len(ident.namespace.levels))
        rows = statement.all(self._connection, _values(ident.namespace, ident.name, count))
        return [(row.name, row.kind) for row in rows]

    def namespaces(self, path: NamespacePath, count: int) -> Sequence[NamespacePath]:
        statement = _namespaces_statement(len(path.levels) - 1)
        rows = statement.all(self._connection, _values(path.parent, path.name, count))
        return [path.parent.child(row.name) for row in rows]

    def functions(self, name: str, count: int) -> Sequence[str]:
        query = select(functions.c.name).where(functions.c.dropped_at.is_(None)).distinct()
        rows = self._connection.execute(_around(query, functions.c.name), _around_values(name, count))
        return [row.name for row in rows]

    def jobs(self, job_id: str, count: int) -> Sequence[tuple[str, TableIdent]]:
        query = select(jobs.c.job_id, jobs.c.table_levels)
        rows = self._connection.execute(_around(query, jobs.c.job_id), _around_values(job_id, count))
        return [(row.job_id, table_ident(tuple(row.table_levels))) for row in rows]


@cache
def _objects_statement(depth: int) -> CompiledStatement:
    namespace = namespace_at(depth)
    query = select(tables.c.name, tables.c.kind)
    return CompiledStatement(
        _around(query.join(namespace, tables.c.namespace_id == namespace.c.namespace_id), tables.c.name)
    )


@cache
def _namespaces_statement(depth: int) -> CompiledStatement:
    parent = namespace_at(depth)
    query = select(namespaces.c.name)
    return CompiledStatement(
        _around(query.join(parent, namespaces.c.parent_id == parent.c.namespace_id), namespaces.c.name)
    )


def _around(query: Select[Any], name: ColumnElement[str]) -> Select[Any]:
    """The rows of the query with the names before and after the given one."""
    given, count = bindparam("given", type_=Text), bindparam("count", type_=BigInteger)
    before = query.where(name < given).order_by(name.desc()).limit(count).subquery("before")
    after = query.where(name >= given).order_by(name).limit(count).subquery("after")
    both = union_all(select(before), select(after)).subquery("around")
    return select(both)


def _values(path: NamespacePath, name: str, count: int) -> dict[str, Any]:
    return {**level_parameters(path), **_around_values(name, count)}


def _around_values(name: str, count: int) -> dict[str, Any]:
    return {"given": name, "count": count}
