"""Translates materialized views, as the specification, lancedb and Geneva define them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.catalog.model.functions import (
    OWN_ENVIRONMENT,
    Environment,
    Function,
    FunctionKind,
    decode_base64,
    decode_schema,
    geneva_function,
    received_function,
    value_output,
)
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.json_values import checked_expression
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.columns import quoted as quoted_name
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.model.views import INTERNAL_COLUMNS, RefreshPolicy, SourceQuery, ViewKind
from tidemill.jobs.service.views import DescribedView
from tidemill.jobs.views.definitions import FunctionColumn, ViewDefinition
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, text_mapping
from tidemill.protocols.lance.geneva_mapping import GENEVA_BACKEND, check_pickle, geneva_envelope
from tidemill.protocols.lance.lancedb_sql import is_sql, query_text, read_sql, view_text

EnvironmentReader = Callable[[Fields], Environment]
# Geneva calls a chunker a scalar udtf.
VIEW_KINDS: Final[Mapping[str, ViewKind]] = {
    **{kind.value: kind for kind in ViewKind},
    "scalar_udtf": ViewKind.CHUNKER,
}
# Query options that make no sense for a view over a plain scan, or would change its rows at each refresh.
UNSUPPORTED_QUERY_KEYS: Final = (
    "vector",
    "full_text_query",
    "order_by",
    "fragments",
    "fragment_ids",
    "take_offsets",
    "with_row_id",
    "with_row_address",
)
SOURCE_QUERY_FORMAT: Final = "tidemill.query/1"
SOURCE_QUERY_KEYS: Final = frozenset(
    {"format", "source", "columns", "filter", "limit", "offset", "functions"}
)
# For a definition that we store, but cannot read.
UNREADABLE_QUERY: Final = SourceQuery(())
# The metadata key in which lancedb's client looks for the definition when it opens the files of a view.
DEFINITION_KEY: Final = "mv.definition"
SCAN_FORMAT: Final = 1
# The client's format number for views that group rows, the only format for several tables that it reads.
STATEMENT_FORMAT: Final = 2
# What its client sends for a view without near-duplicate rows of a vector index.
VECTOR_DEDUP: Final = re.compile(r"\s*+SELECT\s++\*\s++FROM\s++vector_dedup\s*+\(", re.IGNORECASE)
VIEW_KEYS: Final = frozenset({"id", "query", "with_no_data", "identity", "context"})
# Those of the specification; the last three are our own.
DEFINITION_KEYS: Final = frozenset(
    {
        "id",
        "identity",
        "context",
        "kind",
        "source_query",
        "output_schema",
        "udtf_spec",
        "with_no_data",
        "auto_refresh",
        "policy",
        "on_error",
        "manifest",
    }
)
FUNCTION_KEYS: Final = frozenset(
    {
        "kind",
        "udtf",
        "udtf_sha",
        "udtf_name",
        "udtf_version",
        "input_columns",
        "partition_by",
        "partition_by_indexed_column",
        "num_cpus",
        "num_gpus",
        "memory",
        "error_handling",
        "batch",
        "manifest",
        "manifest_checksum",
    }
)


def environment_reader(call: Call) -> EnvironmentReader:
    """Reads the manifest of an object, which is JSON, or the name of a stored one."""

    def read(fields: Fields) -> Environment:
        text, name = fields.text("manifest"), fields.name_of("manifest")
        return call.operations.environments.resolve(call.caller, text, name) or OWN_ENVIRONMENT

    return read


def view_kind(fields: Fields) -> ViewKind:
    kind = fields.required_text("kind").lower()
    if kind not in VIEW_KINDS:
        raise InvalidInput("kind", f"{kind!r:.60} is none of {', '.join(ViewKind)}")
    return VIEW_KINDS[kind]


def function_spec(fields: Fields, kind: ViewKind) -> Fields | None:
    """The part of the body about the chunker or table function; a query view has none."""
    spec = fields.nested("udtf_spec")
    if kind is ViewKind.QUERY:
        if spec is not None:
            raise InvalidInput("udtf_spec", "must be null for a view of kind query")
        return None
    if spec is None:
        raise InvalidInput("udtf_spec", f"is missing; a view of kind {kind} needs it")
    spec.refuse_unknown(FUNCTION_KEYS)
    spec_kind = spec.text("kind")
    if spec_kind is not None and VIEW_KINDS.get(spec_kind.lower()) is not kind:
        raise InvalidInput("udtf_spec.kind", f"{spec_kind!r:.60} is not the kind of the view, {kind}")
    # The sum is over the base64 text as it stands in the request.
    expected = hashlib.sha256(spec.required_text("udtf").encode()).hexdigest()
    if spec.required_text("udtf_sha").lower() != expected:
        raise InvalidInput(
            "udtf_spec.udtf_sha", "is not the SHA-256 of udtf_spec.udtf; the envelope was damaged"
        )
    return spec


def with_options(
    definition: ViewDefinition, fields: Fields, spec: Fields | None, environment_of: EnvironmentReader
) -> ViewDefinition:
    """The definition with all that does not depend on its form."""
    definition = replace(
        definition,
        has_auto_refresh=fields.flag("auto_refresh") or False,
        is_populated=fields.flag("with_no_data") is False,
        policy=fields.choice("policy", RefreshPolicy.AUTO),
    )
    if spec is None:
        return replace(
            definition, on_error=_error_policy(fields, "on_error"), environment=environment_of(fields)
        )
    return replace(
        definition,
        partition_by=spec.text("partition_by") or None,
        partition_index=spec.text("partition_by_indexed_column") or None,
        on_error=_error_policy(spec, "error_handling"),
        environment=environment_of(spec),
    )


def _error_policy(fields: Fields, key: str) -> ErrorPolicy:
    return ErrorPolicy.from_json(fields.raw(key), fields.name_of(key)) if fields.has(key) else FAIL_AT_ONCE


def is_geneva_query(text: str) -> bool:
    """Geneva sends the source of a view as JSON with the scan under `base`."""
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(body, dict) and isinstance(body.get("base"), dict) and "source_table" in body


def geneva_view(
    fields: Fields, namespace: tuple[str, ...], environment_of: EnvironmentReader
) -> ViewDefinition:
    """The definition of a view. Its source is in the same namespace, because Geneva does not name one."""
    raw_query = fields.required_text("source_query")
    output = decode_schema(fields.required_text("output_schema"), "output_schema")
    query = Fields(orjson.loads(raw_query), "source_query")
    kind = view_kind(fields)
    spec = function_spec(fields, kind)
    function, inputs = (None, ()) if spec is None else _geneva_function(spec, kind)
    computed = set() if function is None or kind is ViewKind.UDTF else set(function.output.names)
    passed_through = [name for name in output.names if name not in INTERNAL_COLUMNS and name not in computed]
    definition = ViewDefinition(
        kind=kind,
        query=_geneva_source(query, namespace, kind, passed_through),
        raw_query=raw_query,
        output=output.with_metadata(_view_metadata(fields, query, kind)),
        function=function,
        inputs=inputs,
        columns=_geneva_function_columns(query, output) if kind is ViewKind.QUERY else (),
    )
    return with_options(definition, fields, spec, environment_of)


def _geneva_function(spec: Fields, kind: ViewKind) -> tuple[Function, tuple[str, ...]]:
    envelope = geneva_envelope(spec, "udtf")
    key = "chunker_payload" if kind is ViewKind.CHUNKER else "udtf_payload"
    body = check_pickle(envelope, "udtf_spec.udtf", key)
    _check_hints(spec, is_batch=body.flag("batch") or False)
    output = decode_schema(body.required_text("output_schema_bytes"), "udtf_spec.udtf.output_schema_bytes")
    function_kind = FunctionKind.CHUNKER if kind is ViewKind.CHUNKER else FunctionKind.TABLE
    name = spec.text("udtf_name") or body.text("name") or "function"
    inputs = spec.texts("input_columns") or body.texts("input_columns") or ()
    return geneva_function(name, function_kind, envelope, output), inputs


def _geneva_source(
    query: Fields, namespace: tuple[str, ...], kind: ViewKind, passed_through: list[str]
) -> SourceQuery:
    base = query.nested("base")
    assert base is not None
    for key in UNSUPPORTED_QUERY_KEYS:
        if base.raw(key) not in (None, False, []):
            raise Unsupported(f"{base.name_of(key)}: is not supported in a view; define it over a plain scan")
    if query.raw("shuffle"):
        raise Unsupported("source_query.shuffle: is not supported in a view; its rows have no order")
    columns = _geneva_columns(base)
    if kind is ViewKind.CHUNKER:
        available = {name: quoted_name(name) for name in passed_through} if columns is None else columns
        columns = {alias: expression for alias, expression in available.items() if alias in passed_through}
    return SourceQuery(
        source=(*namespace, query.required_text("source_table")),
        columns=columns,
        filter=base.expression("filter"),
        limit=base.integer("limit", 0),
        offset=base.integer("offset", 0),
    )


def _geneva_columns(base: Fields) -> dict[str, str] | None:
    """Reads a list of names or (alias, expression) pairs, or an object. Null means all columns."""
    raw, name = base.raw("columns"), base.name_of("columns")
    match raw:
        case None:
            return None
        case dict():
            pairs = text_mapping(raw, name)
        case list():
            pairs = dict(_pair(entry, name) for entry in raw)
        case _:
            raise InvalidInput(name, "must be a list of names or an object of expressions")
    return {
        alias: checked_expression(expression, f"{name}.{alias}"[:200]) for alias, expression in pairs.items()
    }


def _pair(entry: Any, field: str) -> tuple[str, str]:
    match entry:
        case str():
            return entry, quoted_name(entry)
        case [str() as alias, str() as expression]:
            return alias, expression
        case _:
            raise InvalidInput(field, f"{entry!r:.60} must be a name or a pair of name and expression")


def _geneva_function_columns(query: Fields, output: pa.Schema) -> tuple[FunctionColumn, ...]:
    columns = []
    for entry in query.objects("column_udfs"):
        name = entry.required_text("output_name")
        if name not in output.names:
            raise InvalidInput(entry.name_of("output_name"), f"{name!r:.60} is not in output_schema")
        udf = entry.nested("udf")
        if udf is None or udf.text("backend") != GENEVA_BACKEND:
            raise InvalidInput(entry.name_of("udf"), f"must be a function of the backend {GENEVA_BACKEND}")
        envelope = udf.required_text("udf_payload").encode()
        check_pickle(envelope, udf.name_of("udf_payload"), "udf_pickle")
        function = geneva_function(
            udf.text("name") or name,
            FunctionKind.VALUES,
            envelope,
            value_output(output.field(name).type),
        )
        index = entry.required_integer("output_index", 0)
        columns.append(FunctionColumn(name, index, function, entry.texts("input_columns") or ()))
    return tuple(columns)


def _view_metadata(fields: Fields, query: Fields, kind: ViewKind) -> dict[str, str]:
    """The schema metadata by which Geneva's client recognizes a view."""
    spec = fields.nested("udtf_spec")
    metadata = {
        "geneva::view::query": fields.required_text("source_query"),
        "geneva::view::base_table": query.required_text("source_table"),
        "geneva::view::base_table_db_uri": query.text("source_db_uri") or "",
        "geneva::view::version": "2" if kind is ViewKind.QUERY else kind.value,
    }
    if spec is not None:
        metadata[f"geneva::view::{kind.value}"] = decode_base64(
            spec.required_text("udtf"), "udtf_spec.udtf"
        ).decode("utf-8", "replace")
        for key in ("manifest", "manifest_checksum"):
            if spec.text(key):
                metadata[f"geneva::view::{key}"] = spec.text(key) or ""
    return metadata


def view_definition(call: Call, fields: Fields, ident: TableIdent) -> ViewDefinition:
    fields.refuse_unknown(DEFINITION_KEYS)
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


def _check_hints(spec: Fields, *, is_batch: bool) -> None:
    """The envelope says how the function is called, and Spark's settings what it gets of the machine.

    Without the GPU that it needs it would fail, so that is refused instead.
    """
    spec.text("udtf_version")
    spec.number("num_cpus", 0)
    spec.integer("memory", 0)
    if spec.flag("batch") not in (None, is_batch):
        raise InvalidInput("udtf_spec.batch", f"is not what the envelope says, {str(is_batch).lower()}")
    if spec.number("num_gpus", 0):
        raise Unsupported("udtf_spec.num_gpus: functions that need a GPU are not supported yet")


def _view_function(spec: Fields) -> tuple[Function, tuple[str, ...]]:
    _check_hints(spec, is_batch=False)
    return _function(spec, "udtf"), spec.texts("input_columns") or ()


def _function(fields: Fields, key: str) -> Function:
    name = fields.name_of(key)
    return received_function(decode_base64(fields.required_text(key), name), name)


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


def described_view_json(described: DescribedView, version: int | None) -> dict[str, Any]:
    """Says nothing of how a view is made to those who may not read what it is made from."""
    view, source = described.view, described.source
    if described.is_hidden:
        view, source = replace(view, query=UNREADABLE_QUERY, statement=None), None
    levels = view.query.source if source is None else source.ident.levels
    return {
        "name": described.table.ident.name,
        "namespace_path": list(described.table.ident.namespace.levels),
        "query": "" if described.is_hidden else view_text(view, levels, list(described.functions)),
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
