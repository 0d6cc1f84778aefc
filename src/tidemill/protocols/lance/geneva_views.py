"""Translates views that the Geneva client defines: scans, functions, metadata."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    decode_base64,
    decode_schema,
    geneva_function,
    value_output,
)
from tidemill.catalog.model.json_values import checked_expression
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import CHILD_INDEX, IS_SET, SOURCE_ROW_ID, SourceQuery, ViewKind
from tidemill.jobs.model.derived import quoted as quoted_name
from tidemill.jobs.service.view_definitions import FunctionColumn, ViewDefinition
from tidemill.protocols.http.fields import Fields, text_mapping
from tidemill.protocols.lance.geneva_mapping import GENEVA_BACKEND, check_pickle, geneva_envelope
from tidemill.protocols.lance.view_options import EnvironmentReader, function_spec, view_kind, with_options

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
HIDDEN_COLUMNS: Final = frozenset({SOURCE_ROW_ID, CHILD_INDEX, IS_SET})


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
    function, inputs = (None, ()) if spec is None else _view_function(spec, kind)
    computed = set() if function is None or kind is ViewKind.UDTF else set(function.output.names)
    passed_through = [name for name in output.names if name not in HIDDEN_COLUMNS and name not in computed]
    definition = ViewDefinition(
        kind=kind,
        query=_source(query, namespace, kind, passed_through),
        raw_query=raw_query,
        output=output.with_metadata(_view_metadata(fields, query, kind)),
        function=function,
        inputs=inputs,
        columns=_function_columns(query, output) if kind is ViewKind.QUERY else (),
    )
    return with_options(definition, fields, spec, environment_of)


def _view_function(spec: Fields, kind: ViewKind) -> tuple[Function, tuple[str, ...]]:
    if spec.raw("num_gpus"):
        raise Unsupported("udtf_spec.num_gpus: functions that need a GPU are not supported yet")
    if spec.raw("num_cpus") not in (None, 1):
        raise Unsupported("udtf_spec.num_cpus: values other than 1 are not supported yet")
    spec.refuse_given("memory")
    envelope = geneva_envelope(spec, "udtf")
    key = "chunker_payload" if kind is ViewKind.CHUNKER else "udtf_payload"
    body = check_pickle(envelope, "udtf_spec.udtf", key)
    output = decode_schema(body.required_text("output_schema_bytes"), "udtf_spec.udtf.output_schema_bytes")
    function_kind = FunctionKind.CHUNKER if kind is ViewKind.CHUNKER else FunctionKind.TABLE
    name = spec.text("udtf_name") or body.text("name") or "function"
    inputs = spec.texts("input_columns") or body.texts("input_columns") or ()
    return geneva_function(name, function_kind, envelope, output), inputs


def _source(
    query: Fields, namespace: tuple[str, ...], kind: ViewKind, passed_through: list[str]
) -> SourceQuery:
    base = query.nested("base")
    assert base is not None
    for key in UNSUPPORTED_QUERY_KEYS:
        if base.raw(key) not in (None, False, []):
            raise Unsupported(f"{base.name_of(key)}: is not supported in a view; define it over a plain scan")
    if query.raw("shuffle"):
        raise Unsupported("source_query.shuffle: is not supported in a view; its rows have no order")
    columns = _columns(base)
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


def _columns(base: Fields) -> dict[str, str] | None:
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


def _function_columns(query: Fields, output: pa.Schema) -> tuple[FunctionColumn, ...]:
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
