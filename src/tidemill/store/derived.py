"""Computed columns and materialized views as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Table, insert, select
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification, TableNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.jobs.model.derived import ComputedColumn, MaterializedView, SourceQuery, ViewKind
from tidemill.store.faults import is_foreign_key_violation
from tidemill.store.schema import computed_columns, materialized_views


class SqlDerivedRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_column(self, column: ComputedColumn) -> None:
        row = {
            "column_id": column.column_id,
            "table_id": column.table_id,
            "name": column.name,
            "function_digest": column.function_digest,
            "inputs": list(column.inputs),
        }
        self._insert(computed_columns, row, column.table_id, f"Column '{column.name}' has a function already")

    def find_column(self, table_id: UUID, name: str) -> ComputedColumn | None:
        query = select(computed_columns).where(
            computed_columns.c.table_id == table_id, computed_columns.c.name == name
        )
        row = self._connection.execute(query).first()
        return None if row is None else _column(row)

    def list_columns(self, table_id: UUID) -> Sequence[ComputedColumn]:
        query = (
            select(computed_columns)
            .where(computed_columns.c.table_id == table_id)
            .order_by(computed_columns.c.name)
        )
        return [_column(row) for row in self._connection.execute(query)]

    def add_view(self, view: MaterializedView) -> None:
        row = {
            "view_id": view.view_id,
            "source_id": view.source_id,
            "kind": view.kind,
            "query": asdict(view.query),
            "raw_query": view.raw_query,
            "digest": view.digest,
            "function_digest": view.function_digest,
            "inputs": list(view.inputs),
            "has_auto_refresh": view.has_auto_refresh,
        }
        self._insert(materialized_views, row, view.view_id, f"View {view.view_id} is defined already")

    def find_view(self, view_id: UUID) -> MaterializedView | None:
        query = select(materialized_views).where(materialized_views.c.view_id == view_id)
        row = self._connection.execute(query).first()
        return None if row is None else _view(row)

    def list_views_of(self, source_id: UUID) -> Sequence[MaterializedView]:
        query = (
            select(materialized_views)
            .where(materialized_views.c.source_id == source_id)
            .order_by(materialized_views.c.view_id)
        )
        return [_view(row) for row in self._connection.execute(query)]

    def _insert(self, target: Table, row: Mapping[str, Any], table_id: UUID, conflict: str) -> None:
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(target).values(row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                # A dropped table has no name any more.
                raise TableNotFound(TableIdent(NamespacePath(), str(table_id))) from error
            raise ConcurrentModification(conflict) from error


def _column(row: Row[Any]) -> ComputedColumn:
    return ComputedColumn(row.column_id, row.table_id, row.name, row.function_digest, tuple(row.inputs))


def _view(row: Row[Any]) -> MaterializedView:
    return MaterializedView(
        view_id=row.view_id,
        source_id=row.source_id,
        kind=ViewKind(row.kind),
        query=SourceQuery(tuple(row.query["source"]), row.query["columns"], row.query["filter"]),
        raw_query=row.raw_query,
        digest=row.digest,
        function_digest=row.function_digest,
        inputs=tuple(row.inputs),
        has_auto_refresh=row.has_auto_refresh,
    )
