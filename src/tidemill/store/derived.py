"""Computed columns and materialized views as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyroaring import BitMap64
from sqlalchemy import ColumnElement, Connection, Row, Table, delete, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification, TableNotFound
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.jobs.model.columns import ColumnOutput, ComputedColumn, subject_of
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.jobs.model.views import (
    MaterializedView,
    RefreshPolicy,
    SourceQuery,
    ViewColumn,
    ViewKind,
    ViewSource,
)
from tidemill.store.bookkeeping import (
    SqlCoverageRepository,
    SqlRowErrorLedger,
    branches_of,
    forget_subjects,
)
from tidemill.store.column_types import value_of
from tidemill.store.driver_errors import is_foreign_key_violation
from tidemill.store.schema import computed_columns, materialized_views, view_sources


class SqlDerivedRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_column(self, column: ComputedColumn) -> None:
        row = {"column_id": column.column_id, "table_id": column.table_id, **_column_values(column)}
        self._insert(computed_columns, row, column.table_id, f"Column '{column.name}' already has a function")

    def find_column(self, table_id: UUID, name: str) -> ComputedColumn | None:
        return next((column for column in self.list_columns(table_id) if name in column.names), None)

    def list_columns(self, table_id: UUID) -> Sequence[ComputedColumn]:
        query = (
            select(computed_columns)
            .where(computed_columns.c.table_id == table_id)
            .order_by(computed_columns.c.name)
        )
        return [_column(row) for row in self._connection.execute(query)]

    def list_auto_columns(self) -> Sequence[ComputedColumn]:
        query = (
            select(computed_columns)
            .where(computed_columns.c.has_auto_backfill)
            .order_by(computed_columns.c.table_id, computed_columns.c.name)
        )
        return [_column(row) for row in self._connection.execute(query)]

    def replace_function(self, column: ComputedColumn) -> None:
        query = select(computed_columns.c.inputs).where(computed_columns.c.column_id == column.column_id)
        inputs = self._connection.scalar(query)
        self._update_column(column)
        for branch in branches_of(self._connection, column.table_id):
            subject_id = subject_of(column.column_id, branch)
            if inputs is not None and tuple(inputs) != column.inputs:
                self._outdate(subject_id)
            for digest in column.kept_digests:
                self._withdraw_failed(subject_id, column, digest)

    def _outdate(self, subject_id: UUID) -> None:
        """Values of other inputs are out of date, whichever function they are of."""
        coverage = SqlCoverageRepository(self._connection)
        for found in coverage.list_of(subject_id):
            if found.rows:
                coverage.put(subject_id, replace(found, rows=BitMap64(), outdated=found.held))

    def _withdraw_failed(self, subject_id: UUID, column: ComputedColumn, digest: str) -> None:
        """Rows that were skipped have no value to keep, also once the ledger has a later error for them."""
        failed = SqlRowErrorLedger(self._connection).rows_of(subject_id, digest)
        coverage = SqlCoverageRepository(self._connection)
        coverage.withdraw(subject_id, column.function_digest, failed, column.kept_digests)

    def bind_column(self, column: ComputedColumn) -> None:
        self._update_column(column)

    def rename_columns(self, table_id: UUID, names: Mapping[str, str]) -> None:
        for column in self.list_columns(table_id):
            renamed = column.renamed(names)
            if renamed != column:
                self._update_column(renamed)

    def remove_column(self, table_id: UUID, name: str) -> None:
        column = self.find_column(table_id, name)
        if column is not None:
            branches = branches_of(self._connection, table_id)
            subjects = (subject_of(column.column_id, branch) for branch in branches)
            forget_subjects(self._connection, subjects)
            self._connection.execute(
                delete(computed_columns).where(computed_columns.c.column_id == column.column_id)
            )

    def add_view(self, view: MaterializedView) -> None:
        values, sources = view_values(view), source_values(view)
        self._insert(materialized_views, values, view.view_id, f"View {view.view_id} is already defined")
        if sources:
            self._connection.execute(insert(view_sources), sources)

    def set_owner(self, view_id: UUID, owner: Caller) -> None:
        self._connection.execute(
            update(materialized_views)
            .where(materialized_views.c.view_id == view_id)
            .values(owner_values(owner))
        )

    def find_view(self, view_id: UUID) -> MaterializedView | None:
        return next(iter(self._views(materialized_views.c.view_id == view_id)), None)

    def list_views(self) -> Sequence[MaterializedView]:
        return self._views(true())

    def list_views_of(self, source_id: UUID) -> Sequence[MaterializedView]:
        readers = select(view_sources.c.view_id).where(view_sources.c.source_id == source_id)
        return self._views(materialized_views.c.view_id.in_(readers))

    def list_auto_views(self) -> Sequence[MaterializedView]:
        return self._views(materialized_views.c.has_auto_refresh)

    def _views(self, condition: ColumnElement[bool]) -> list[MaterializedView]:
        """Views ordered by id, read together with their sources in one statement for consistency."""
        query = (
            select(
                materialized_views,
                view_sources.c.source_id,
                view_sources.c.levels,
                view_sources.c.source_columns,
            )
            .outerjoin(view_sources, materialized_views.c.view_id == view_sources.c.view_id)
            .where(condition)
            .order_by(materialized_views.c.view_id, view_sources.c.place)
        )
        grouped = groupby(self._connection.execute(query), lambda row: row.view_id)
        return [view_of(list(rows)) for _, rows in grouped]

    def _update_column(self, column: ComputedColumn) -> None:
        self._connection.execute(
            update(computed_columns)
            .where(computed_columns.c.column_id == column.column_id)
            .values(_column_values(column))
        )

    def _insert(self, target: Table, row: Mapping[str, Any], table_id: UUID, conflict: str) -> None:
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(target).values(row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                # A dropped table no longer has a name.
                raise TableNotFound(TableIdent(NamespacePath(), str(table_id))) from error
            raise ConcurrentModification(conflict) from error


def _column_values(column: ComputedColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "function_digest": column.function_digest,
        "inputs": list(column.inputs),
        "siblings": [asdict(output) for output in column.siblings],
        "has_auto_backfill": column.has_auto_backfill,
        "field_ids": dict(column.field_ids),
        "bound_version": column.bound_version,
        "kept_digests": list(column.kept_digests),
        "function_namespace_id": column.function_namespace_id,
        **owner_values(column.owner),
    }


def owner_values(owner: Caller | None) -> dict[str, Any]:
    return {
        "owner": None if owner is None else owner.principal,
        "owner_roles": [] if owner is None else sorted(owner.roles),
    }


def owner_of(principal: str | None, roles: Sequence[str]) -> Caller | None:
    return None if principal is None else Caller(principal, frozenset(roles))


def _column(row: Row[Any]) -> ComputedColumn:
    return ComputedColumn(
        column_id=row.column_id,
        table_id=row.table_id,
        name=row.name,
        function_digest=row.function_digest,
        inputs=tuple(row.inputs),
        siblings=tuple(ColumnOutput(**output) for output in row.siblings),
        has_auto_backfill=row.has_auto_backfill,
        field_ids=row.field_ids,
        bound_version=row.bound_version,
        kept_digests=tuple(row.kept_digests),
        function_namespace_id=row.function_namespace_id,
        owner=owner_of(row.owner, row.owner_roles),
    )


def view_values(view: MaterializedView) -> dict[str, Any]:
    return {
        "view_id": view.view_id,
        "kind": view.kind,
        "query": asdict(view.query),
        "raw_query": view.raw_query,
        "digest": view.digest,
        "function_digest": view.function_digest,
        "inputs": list(view.inputs),
        "has_auto_refresh": view.has_auto_refresh,
        "output": None if view.output is None else view.output.serialize().to_pybytes(),
        "columns": [asdict(column) for column in view.columns],
        "partition_by": view.partition_by,
        "partition_index": view.partition_index,
        "statement": view.statement,
        "policy": view.policy,
        "on_error": asdict(view.on_error),
        "environment": asdict(view.environment),
        "function_namespace_id": view.function_namespace_id,
        **owner_values(view.owner),
    }


def source_values(view: MaterializedView) -> list[dict[str, Any]]:
    return [
        {
            "view_id": view.view_id,
            "place": position,
            "source_id": source.table_id,
            "levels": list(source.levels),
            "source_columns": list(source.columns),
        }
        for position, source in enumerate(view.sources)
    ]


def view_of(rows: Sequence[Row[Any]]) -> MaterializedView:
    """Builds a view from its row joined with each of its sources, in order."""
    row, query = rows[0], rows[0].query
    return MaterializedView(
        view_id=row.view_id,
        sources=tuple(
            ViewSource(source_row.source_id, tuple(source_row.levels), tuple(source_row.source_columns))
            for source_row in rows
            if source_row.source_id is not None
        ),
        kind=ViewKind(row.kind),
        query=SourceQuery(
            source=tuple(query["source"]),
            columns=query["columns"],
            filter=query["filter"],
            limit=query.get("limit"),
            offset=query.get("offset"),
        ),
        raw_query=row.raw_query,
        digest=row.digest,
        function_digest=row.function_digest,
        inputs=tuple(row.inputs),
        has_auto_refresh=row.has_auto_refresh,
        output=None if row.output is None else pa.ipc.read_schema(pa.py_buffer(row.output)),
        columns=tuple(
            ViewColumn(column["name"], column["function_digest"], tuple(column["inputs"]))
            for column in row.columns
        ),
        partition_by=row.partition_by,
        partition_index=row.partition_index,
        statement=row.statement,
        policy=RefreshPolicy(row.policy),
        on_error=value_of(ErrorPolicy, row.on_error),
        environment=value_of(Environment, row.environment),
        function_namespace_id=row.function_namespace_id,
        owner=owner_of(row.owner, row.owner_roles),
    )
