"""Translates materialized views that lancedb's client defines by SQL."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import ViewKind
from tidemill.jobs.operations.view_definitions import ViewDefinition
from tidemill.jobs.operations.views import DescribedView
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.lance.lancedb_sql import query_text, read_sql, view_text

# The metadata key in which lancedb's client looks for the definition when it opens the files of a view.
DEFINITION_KEY: Final = "mv.definition"
SCAN_FORMAT: Final = 1
# The client's format number for views that group rows, the only format for several tables that it reads.
STATEMENT_FORMAT: Final = 2
# What its client sends for a view without near-duplicate rows of a vector index.
VECTOR_DEDUP: Final = re.compile(r"\s*+SELECT\s++\*\s++FROM\s++vector_dedup\s*+\(", re.IGNORECASE)
VIEW_KEYS: Final = frozenset({"id", "query", "with_no_data", "identity", "context"})


def is_sql_view(fields: Fields) -> bool:
    """lancedb's client sends `query`, all others send `source_query`."""
    if fields.has("query") and fields.has("source_query"):
        raise InvalidInput("query", "cannot be combined with source_query")
    return fields.has("query")


def sql_view_definition(fields: Fields) -> ViewDefinition:
    fields.refuse_unknown(VIEW_KEYS)
    text = fields.required_text("query")
    if VECTOR_DEDUP.match(text):
        raise Unsupported("query: vector_dedup() is not supported yet; define the view over tables")
    query, statement = read_sql(text, "query")
    canonical = query_text(query) if statement is None else statement
    definition_format = SCAN_FORMAT if statement is None else STATEMENT_FORMAT
    definition = orjson.dumps({"format": definition_format, "query": canonical}).decode()
    return ViewDefinition(
        kind=ViewKind.QUERY,
        query=query,
        raw_query=text,
        output=None,
        is_populated=not fields.flag("with_no_data"),
        statement=statement,
        metadata={DEFINITION_KEY: definition},
        query_field="query",
    )


def described_view_json(
    described: DescribedView, version: int | None, functions: list[str]
) -> dict[str, Any]:
    view, source = described.view, described.source
    levels = view.query.source if source is None else source.ident.levels
    return {
        "name": described.table.ident.name,
        "namespace_path": list(described.table.ident.namespace.levels),
        "query": view_text(view, levels, functions),
        "source_table": levels[-1] if levels else "",
        "source_namespace": list(NamespacePath(tuple(levels[:-1])).levels),
        "projections": [
            {"output_column": alias, "expression": expression}
            for alias, expression in (view.query.columns or {}).items()
        ],
        "filter": view.query.filter,
        "limit": view.query.limit,
        "version": version,
        "incarnation": str(view.view_id),
    }
