"""Translation of computed columns and materialized views: envelopes, source queries, output types."""

from __future__ import annotations

import hashlib
from typing import Final

import orjson
import pyarrow as pa

from tidemill.catalog.model.functions import (
    Function,
    FunctionKind,
    decode_base64,
    decode_envelope,
    decode_schema,
)
from tidemill.catalog.model.identifiers import table_ident
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import ColumnOutput, SourceQuery, ViewKind
from tidemill.jobs.operations.columns import ColumnDeclaration, SqlExpression
from tidemill.jobs.operations.views import ViewDefinition
from tidemill.protocols.http.fields import Fields, checked_expression, text_mapping
from tidemill.protocols.lance.arrow_json import is_same_type
from tidemill.protocols.lance.geneva_mapping import GENEVA_BACKEND, geneva_column

BACKEND: Final = "tidemill"
SOURCE_QUERY_FORMAT: Final = "tidemill.query/1"
SOURCE_QUERY_KEYS: Final = frozenset({"format", "source", "columns", "filter"})
SOURCE_QUERY_FORM: Final = (
    f'has to be JSON of the form {{"format": "{SOURCE_QUERY_FORMAT}", "source": ["namespace", "table"], '
    '"columns": {"alias": "expression"} or null, "filter": "expression" or null}'
)
VIEW_KINDS: Final = {"query": ViewKind.QUERY, "chunker": ViewKind.CHUNKER, "scalar_udtf": ViewKind.CHUNKER}


def column_declarations(fields: Fields) -> tuple[ColumnDeclaration, ...]:
    entries = fields.objects("new_columns")
    if not entries:
        raise InvalidInput("new_columns", "is missing; it has to list at least one column")
    return tuple(_column_declaration(entry) for entry in entries)


def view_definition(fields: Fields) -> ViewDefinition:
    kind = _view_kind(fields)
    raw_query = fields.required_text("source_query")
    function, inputs = _view_function(fields, kind)
    if fields.flag("auto_refresh"):
        raise InvalidInput("auto_refresh", "is not supported yet; leave it out and call refresh")
    with_no_data = fields.flag("with_no_data")
    return ViewDefinition(
        kind=kind,
        query=decode_source_query(raw_query, "source_query"),
        raw_query=raw_query,
        output=decode_schema(fields.required_text("output_schema"), "output_schema"),
        function=function,
        inputs=inputs,
        has_auto_refresh=False,
        is_populated=with_no_data is False,
    )


def decode_source_query(text: str, field: str) -> SourceQuery:
    """Reads the one form of source query that we can maintain; any other is refused, not stored unread."""
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, SOURCE_QUERY_FORM) from error
    if not isinstance(body, dict) or body.get("format") != SOURCE_QUERY_FORMAT:
        raise InvalidInput(field, SOURCE_QUERY_FORM)
    fields = Fields(body, field)
    fields.refuse_unknown(SOURCE_QUERY_KEYS)
    source = fields.texts("source") or ()
    table_ident(source, fields.name_of("source"))
    return SourceQuery(source, _query_columns(fields), fields.expression("filter"))


def _query_columns(fields: Fields) -> dict[str, str] | None:
    raw, name = fields.raw("columns"), fields.name_of("columns")
    if raw is None:
        return None
    columns = text_mapping(raw, name)
    if not columns:
        raise InvalidInput(name, "is empty; null means all columns")
    return {
        alias: checked_expression(expression, f"{name}.{alias}"[:200])
        for alias, expression in columns.items()
    }


def _column_declaration(entry: Fields) -> ColumnDeclaration:
    name = entry.required_text("name")
    column = entry.nested("virtual_column")
    computed = entry.expression("computed")
    if computed is not None:
        if column is not None:
            raise InvalidInput(entry.name_of("computed"), "excludes virtual_column; give one of them")
        return ColumnDeclaration(name, SqlExpression(computed))
    if column is None:
        raise InvalidInput(
            entry.name_of("virtual_column"), "is missing; it has to hold the column's function"
        )
    if column.text("udf_backend") == GENEVA_BACKEND:
        return geneva_column(name, column)
    _require_backend(column)
    column.refuse_given("manifest", "manifest_checksum", "field_metadata")
    function = _function(column, "udf")
    if function.kind is FunctionKind.CHUNKER:
        raise InvalidInput(
            column.name_of("udf"), "is a chunker; a column needs a function of one value per row"
        )
    return ColumnDeclaration(
        name=name,
        function=function,
        inputs=column.texts("input_columns") or (),
        siblings=_siblings(column, name, function),
        has_auto_backfill=column.flag("auto_backfill") or False,
    )


def _siblings(column: Fields, name: str, function: Function) -> tuple[ColumnOutput, ...]:
    """The columns that get one field of a struct each; none if the column gets the whole result."""
    outputs = column.objects("outputs")
    if outputs and outputs[0].required_text("column") != name:
        raise InvalidInput(outputs[0].name_of("column"), f"has to be the name of the column, {name!r:.60}")
    value_type = function.value_type
    fields = [field.name for field in value_type] if pa.types.is_struct(value_type) else []
    is_unpacked = len(outputs) > 1 or any(output.text("struct_field") in fields for output in outputs)
    if not is_unpacked:
        for output in outputs:
            _check_type(output, value_type)
        return ()
    return tuple(_sibling(output, function) for output in outputs)


def _sibling(output: Fields, function: Function) -> ColumnOutput:
    field, value_type = output.required_text("struct_field"), function.value_type
    if not pa.types.is_struct(value_type) or value_type.get_field_index(field) < 0:
        raise InvalidInput(
            output.name_of("struct_field"), f"{function.name} gives {value_type}, which has no {field!r:.60}"
        )
    _check_type(output, value_type.field(field).type)
    return ColumnOutput(output.required_text("column"), field)


def _check_type(output: Fields, value_type: pa.DataType) -> None:
    given = output.raw("data_type")
    if given is not None and not is_same_type(given, value_type):
        problem = f"{given!r:.80} is not what the function gives, {value_type}"
        raise InvalidInput(output.name_of("data_type"), problem)


def _require_backend(column: Fields) -> None:
    backend = column.text("udf_backend")
    if backend is not None and backend != BACKEND:
        field = column.name_of("udf_backend")
        raise Unsupported(f"{field}: {backend!r:.60} is not supported; functions come as {BACKEND!r}")


def _view_kind(fields: Fields) -> ViewKind:
    kind = fields.required_text("kind").lower()
    if kind == "udtf":
        raise Unsupported("kind: 'udtf' is not supported yet; use query or chunker")
    if kind not in VIEW_KINDS:
        raise InvalidInput("kind", f"{kind!r:.60} is none of query, chunker, udtf")
    return VIEW_KINDS[kind]


def _view_function(fields: Fields, kind: ViewKind) -> tuple[Function | None, tuple[str, ...]]:
    spec = fields.nested("udtf_spec")
    if kind is ViewKind.QUERY:
        if spec is not None:
            raise InvalidInput("udtf_spec", "has to be null for a view of kind query")
        return None, ()
    if spec is None:
        raise InvalidInput("udtf_spec", "is missing; a view of kind chunker needs it")
    spec_kind = spec.text("kind")
    if spec_kind is not None and VIEW_KINDS.get(spec_kind.lower()) is not kind:
        raise InvalidInput("udtf_spec.kind", f"{spec_kind!r:.60} is not the kind of the view, {kind}")
    spec.refuse_given("partition_by", "partition_by_indexed_column", "num_cpus", "num_gpus", "memory")
    spec.refuse_given("error_handling", "manifest", "manifest_checksum")
    _check_sha(spec)
    function = _function(spec, "udtf")
    if function.kind is not FunctionKind.CHUNKER:
        raise InvalidInput("udtf_spec.udtf", f"is a {function.kind} function; the view needs a chunker")
    return function, spec.texts("input_columns") or ()


def _check_sha(spec: Fields) -> None:
    """The sum is over the base64 text as it stands in the request."""
    expected = hashlib.sha256(spec.required_text("udtf").encode()).hexdigest()
    if spec.required_text("udtf_sha").lower() != expected:
        raise InvalidInput(
            "udtf_spec.udtf_sha", "is not the SHA-256 of udtf_spec.udtf; the envelope was damaged"
        )


def _function(fields: Fields, key: str) -> Function:
    name = fields.name_of(key)
    return decode_envelope(decode_base64(fields.required_text(key), name), name)
