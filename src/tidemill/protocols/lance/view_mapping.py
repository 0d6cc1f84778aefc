"""Translates materialized views: source queries in the forms we can read, and lancedb's in SQL."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from tidemill.catalog.model.functions import Function, decode_base64, decode_envelope, decode_schema
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.json_values import checked_expression
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import SourceQuery, ViewKind
from tidemill.jobs.service.view_definitions import FunctionColumn, ViewDefinition
from tidemill.jobs.service.views import DescribedView
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, text_mapping
from tidemill.protocols.lance.geneva_views import geneva_view, is_geneva_query
from tidemill.protocols.lance.lancedb_sql import is_sql, query_text, read_sql, view_text
from tidemill.protocols.lance.view_options import environment_reader, function_spec, view_kind, with_options

SOURCE_QUERY_FORMAT: Final = "tidemill.query/1"
SOURCE_QUERY_KEYS: Final = frozenset(
    {"format", "source", "columns", "filter", "limit", "offset", "functions"}
)
# For a definition that we store, but cannot read.
UNREADABLE_QUERY: Final = SourceQuery(())


def view_definition(call: Call, fields: Fields, ident: TableIdent) -> ViewDefinition:
    raw_query = fields.required_text("source_query")
    environment_of = environment_reader(call)
    if is_geneva_query(raw_query):
        return geneva_view(fields, ident.namespace.levels, environment_of)
    kind = view_kind(fields)
    spec = function_spec(fields, kind)
    function, inputs = (None, ()) if spec is None else _view_function(spec)
    query, statement, columns = _source_query(raw_query, "source_query")
    has_output = fields.has("output_schema") or not is_sql(raw_query)
    definition = ViewDefinition(
        kind=kind,
        query=query,
        raw_query=raw_query,
        output=decode_schema(fields.required_text("output_schema"), "output_schema") if has_output else None,
        function=function,
        inputs=inputs,
        columns=columns,
        statement=statement,
    )
    return with_options(definition, fields, spec, environment_of)


def _source_query(text: str, field: str) -> tuple[SourceQuery, str | None, tuple[FunctionColumn, ...]]:
    """The scan or the statement, and the columns computed by functions. Empty if we cannot read it."""
    if is_sql(text):
        return (*read_sql(text, field), ())
    body = _json(text)
    if not isinstance(body, dict) or body.get("format") != SOURCE_QUERY_FORMAT:
        return UNREADABLE_QUERY, None, ()
    fields = Fields(body, field)
    fields.refuse_unknown(SOURCE_QUERY_KEYS)
    source = fields.texts("source") or ()
    table_ident(source, fields.name_of("source"))
    functions = tuple(_function_column(entry) for entry in fields.objects("functions"))
    query = SourceQuery(
        source=source,
        columns=_columns(fields, functions),
        filter=fields.expression("filter"),
        limit=fields.integer("limit", 0),
        offset=fields.integer("offset", 0),
    )
    return query, None, functions


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _columns(fields: Fields, functions: tuple[FunctionColumn, ...]) -> dict[str, str] | None:
    raw, name = fields.raw("columns"), fields.name_of("columns")
    if raw is None:
        return None
    columns = text_mapping(raw, name)
    if not columns and not functions:
        raise InvalidInput(name, "is empty; leave it out for all columns")
    return {
        alias: checked_expression(expression, f"{name}.{alias}"[:200])
        for alias, expression in columns.items()
    }


def _function_column(entry: Fields) -> FunctionColumn:
    return FunctionColumn(
        name=entry.required_text("name"),
        index=entry.required_integer("index", 0),
        function=_function(entry, "envelope"),
        inputs=entry.texts("inputs") or (),
        field=entry.name_of("envelope"),
    )


def _view_function(spec: Fields) -> tuple[Function, tuple[str, ...]]:
    spec.refuse_given("num_cpus", "num_gpus", "memory")
    return _function(spec, "udtf"), spec.texts("input_columns") or ()


def _function(fields: Fields, key: str) -> Function:
    name = fields.name_of(key)
    return decode_envelope(decode_base64(fields.required_text(key), name), name)


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
