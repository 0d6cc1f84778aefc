"""Converts materialized views to rows and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from sqlalchemy import Row

from tidemill.catalog.model.environments import Environment
from tidemill.jobs.model.derived import (
    MaterializedView,
    RefreshPolicy,
    SourceQuery,
    ViewColumn,
    ViewKind,
    ViewSource,
)
from tidemill.jobs.model.failures import ErrorPolicy
from tidemill.store.values import value_of


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
    )
