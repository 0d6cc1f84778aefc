"""Resolves namespace paths to rows, and rows to paths."""

from __future__ import annotations

from functools import cache
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Subquery, bindparam, select

from tidemill.catalog.errors import NamespaceNotFound
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.store.schema import ROOT_ID, namespaces


@cache
def namespace_at(depth: int) -> Subquery:
    """Selects a namespace `depth` levels below the root; `level_parameters` binds the names on its path."""
    current = namespaces.alias("level_0")
    conditions: list[ColumnElement[bool]] = [current.c.namespace_id == ROOT_ID]
    for level in range(1, depth + 1):
        below = namespaces.alias(f"level_{level}")
        conditions.append(below.c.parent_id == current.c.namespace_id)
        conditions.append(below.c.name == bindparam(f"name_{level}"))
        current = below
    return select(current).where(*conditions).subquery("namespace_at")


def level_parameters(path: NamespacePath) -> dict[str, str]:
    return {f"name_{level}": name for level, name in enumerate(path.levels, start=1)}


def find_namespace_id(connection: Connection, path: NamespacePath) -> UUID | None:
    if path.is_root:
        return ROOT_ID
    return connection.scalar(select(namespace_at(len(path.levels)).c.namespace_id), level_parameters(path))


def get_namespace_id(connection: Connection, path: NamespacePath) -> UUID:
    namespace_id = find_namespace_id(connection, path)
    if namespace_id is None:
        raise NamespaceNotFound(path)
    return namespace_id


def paths_under(connection: Connection, path: NamespacePath) -> dict[UUID, NamespacePath]:
    """The paths of a namespace and of all its descendants, by id."""
    start = get_namespace_id(connection, path)
    below = select(namespaces).where(namespaces.c.parent_id == start).cte("below", recursive=True)
    next_level = select(namespaces).join(below, namespaces.c.parent_id == below.c.namespace_id)
    paths = {start: path}
    # The recursion proceeds level by level, so a parent always precedes its children.
    for row in connection.execute(select(below.union_all(next_level))):
        paths[row.namespace_id] = paths[row.parent_id].child(row.name)
    return paths
