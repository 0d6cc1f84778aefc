"""Translation of materialized views that lancedb's client gives as SQL."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import SOURCE_ROW_ID, SourceQuery, ViewKind, view_output
from tidemill.jobs.operations.views import DescribedView, ViewDefinition
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.lance.lancedb_sql import query_text, read_query, view_text

# Where lancedb's client, opening a view's files itself, looks for the view's definition.
DEFINITION_KEY: Final = "mv.definition"
DEFINITION_FORMAT: Final = 1
VIEW_KEYS: Final = frozenset({"id", "query", "with_no_data", "identity", "context"})


def is_sql_view(fields: Fields) -> bool:
    """lancedb's client sends `query`, everybody else `source_query`."""
    if fields.has("query") and fields.has("source_query"):
        raise InvalidInput("query", "excludes source_query; give one of them")
    return fields.has("query")


def sql_view_query(fields: Fields) -> SourceQuery:
    fields.refuse_unknown(VIEW_KEYS)
    return read_query(fields.required_text("query"), "query")


def sql_view_definition(fields: Fields, query: SourceQuery, projected: pa.Schema) -> ViewDefinition:
    """`projected` is what the query yields from its source as it is now."""
    if SOURCE_ROW_ID in projected.names:
        raise InvalidInput("query", f"yields a column {SOURCE_ROW_ID}, which the view needs for itself")
    definition = orjson.dumps({"format": DEFINITION_FORMAT, "query": query_text(query)})
    output = view_output(ViewKind.QUERY, projected, None)
    return ViewDefinition(
        kind=ViewKind.QUERY,
        query=query,
        raw_query=fields.required_text("query"),
        output=output.with_metadata({DEFINITION_KEY: definition}),
        is_populated=not fields.flag("with_no_data"),
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
        "source_table": levels[-1],
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
