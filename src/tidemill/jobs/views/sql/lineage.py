"""What the columns of a view that Spark SQL evaluates depend on, read from its statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from tidemill.jobs.model.derived import KEY, MaterializedView
from tidemill.jobs.model.lineage import Link, Node, Through
from tidemill.jobs.model.sql import SqlPlan

DIALECT: Final = "spark"
# What columns in here decide is which rows there are, and which of them belong together.
DECIDING: Final = (exp.Where, exp.Having, exp.Join, exp.Group, exp.Qualify)

Schema: TypeAlias = dict[str, dict[str, str]]


def statement_links(view: MaterializedView, plan: SqlPlan) -> list[Link]:
    """Links of its columns, and of the view as a whole to what decides about its rows.

    What is named and cannot be traced to a column is linked to the view as a whole, too; where the statement
    cannot be traced at all, everything is linked to every column.
    """
    origins = _Origins(view, plan)
    try:
        traced = _traced(plan, origins)
    except (SqlglotError, ValueError, RecursionError):
        traced = [(name, node) for name in _columns(plan) for node in origins.everything()]
    links = [Link(Node(view.view_id, name), node, Through.SQL) for name, node in traced]
    return list(dict.fromkeys(links))


class _Origins:
    """The sources of a plan as nodes, by the names they have in its statement, in any case."""

    def __init__(self, view: MaterializedView, plan: SqlPlan) -> None:
        ids = {source.levels: source.table_id for source in view.sources}
        self._nodes = {
            (source.name.lower(), column.lower()): Node(ids[source.levels], column)
            for source in plan.sources
            for column in source.columns
        }

    def everything(self) -> list[Node]:
        return list(self._nodes.values())

    def find(self, table: str, column: str) -> Node | None:
        return self._nodes.get((table.lower(), column.lower()))


def _traced(plan: SqlPlan, origins: _Origins) -> list[tuple[str | None, Node]]:
    schema: Schema = {
        source.name: dict.fromkeys(source.columns, "unknown") for source in plan.sources if source.columns
    }
    traced: list[tuple[str | None, Node]] = []
    for name in _columns(plan):
        for found in lineage(name, plan.statement, schema=schema, dialect=DIALECT).walk():
            if isinstance(found.source, exp.Table):
                node = origins.find(found.source.name, sqlglot.parse_one(found.name).name)
                traced += [] if node is None else [(name, node)]
    known = {node for _, node in traced}
    for table, column in _named_columns(plan.statement, schema):
        node = origins.find(table, column.name)
        if node is not None and (node not in known or column.find_ancestor(*DECIDING) is not None):
            traced.append((None, node))
    return traced


def _columns(plan: SqlPlan) -> list[str]:
    """Those that the statement has by itself."""
    return [name for name in plan.output.names if name != KEY]


def _named_columns(statement: str, schema: Schema) -> Iterator[tuple[str, exp.Column]]:
    """Columns of tables, wherever the statement names them."""
    tree = qualify(sqlglot.parse_one(statement, dialect=DIALECT), schema=dict(schema), dialect=DIALECT)
    for scope in traverse_scope(tree):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            if isinstance(source, exp.Table):
                yield source.name, column
