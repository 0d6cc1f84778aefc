"""Translation of what the Geneva client declares: columns of pickled functions, views over its queries."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
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
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import (
    CHILD_INDEX,
    IS_SET,
    SOURCE_ROW_ID,
    ColumnOutput,
    SourceQuery,
    ViewKind,
)
from tidemill.jobs.model.derived import quoted as quoted_name
from tidemill.jobs.operations.columns import ColumnDeclaration
from tidemill.jobs.operations.views import FunctionColumn, ViewDefinition
from tidemill.protocols.http.fields import Fields, checked_expression, text_mapping
from tidemill.protocols.lance.geneva_types import geneva_type

GENEVA_BACKEND: Final = "DockerUDFSpecV1"
KINDS: Final[Mapping[str, ViewKind]] = {
    "query": ViewKind.QUERY,
    "chunker": ViewKind.CHUNKER,
    "scalar_udtf": ViewKind.CHUNKER,
    "udtf": ViewKind.UDTF,
}
# What a view over a plain scan cannot mean, or what would make it another view at each refresh.
UNSERVED_QUERY_KEYS: Final = (
    "vector",
    "full_text_query",
    "order_by",
    "fragments",
    "fragment_ids",
    "take_offsets",
    "with_row_id",
    "with_row_address",
)
# What a manifest can ask of the environment that functions run in.
MANIFEST_DEMANDS: Final = (
    "pip",
    "pip_extra_index_urls",
    "conda",
    "conda_environment_path",
    "requirements_path",
    "py_modules",
    "env_vars",
    "head_image",
    "worker_image",
    "zips",
)
HIDDEN: Final = frozenset({SOURCE_ROW_ID, CHILD_INDEX, IS_SET})


def geneva_column(name: str, column: Fields) -> ColumnDeclaration:
    outputs = _outputs(column, name)
    types = {output.required_text("column"): _type(output) for output in outputs}
    siblings = () if len(outputs) == 1 else tuple(map(_sibling, outputs))
    value_type = types[name] if not siblings else _struct(siblings, types)
    declared = geneva_exchange(name, column, value_type)
    return replace(declared, siblings=siblings, metadata=dict.fromkeys(types, declared.metadata[name]))


def geneva_exchange(name: str, column: Fields, value_type: pa.DataType) -> ColumnDeclaration:
    """Another function for a column that has this type: the client does not say it again."""
    envelope = _envelope(column, "udf")
    _check_pickle(envelope, column.name_of("udf"), "udf_pickle")
    check_manifest(column)
    function = geneva_function(
        column.text("udf_name") or name, FunctionKind.VALUES, envelope, value_output(value_type)
    )
    path = f"_udfs/{hashlib.sha256(envelope).hexdigest()}"
    return ColumnDeclaration(
        name=name,
        function=function,
        inputs=column.texts("input_columns") or (),
        metadata={name: _column_metadata(column, path)},
        files={path: envelope},
        has_auto_backfill=column.flag("auto_backfill") or False,
    )


def geneva_exchange_of(declared: Fields) -> tuple[str, Fields] | None:
    """The name and function of a column whose function is exchanged, if it is one of Geneva's."""
    (entry,) = declared.objects("new_columns")
    column = entry.nested("virtual_column")
    if column is None or column.text("udf_backend") != GENEVA_BACKEND:
        return None
    return entry.required_text("name"), column


def check_manifest(fields: Fields) -> None:
    """A manifest says what an environment has to hold; one that asks for nothing is met by ours."""
    text, name = fields.text("manifest"), fields.name_of("manifest")
    if not text:
        return
    try:
        wanted = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(name, "is the name of a manifest; only backfill_column takes those") from error
    if not isinstance(wanted, dict):
        raise InvalidInput(name, "has to be a JSON object")
    for key in MANIFEST_DEMANDS:
        if wanted.get(key):
            raise InvalidInput(
                f"{name}.{key}",
                "is not supported here yet; give the manifest to backfill_column, or leave it out",
            )


def is_geneva_query(text: str) -> bool:
    """Geneva writes a view's source as JSON that has the scan under `base`."""
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(body, dict) and isinstance(body.get("base"), dict) and "source_table" in body


def geneva_view(fields: Fields, namespace: tuple[str, ...]) -> ViewDefinition:
    """The view in the namespace it is made in: Geneva names its source without one."""
    raw_query = fields.required_text("source_query")
    output = decode_schema(fields.required_text("output_schema"), "output_schema")
    query = Fields(orjson.loads(raw_query), "source_query")
    kind_text = fields.required_text("kind").lower()
    if kind_text not in KINDS:
        raise InvalidInput("kind", f"{kind_text!r:.60} is none of query, chunker, udtf")
    kind = KINDS[kind_text]
    if fields.flag("auto_refresh"):
        raise InvalidInput("auto_refresh", "is not supported yet; leave it out and call refresh")
    function, inputs, partition_by = _view_function(fields, kind)
    made = set() if function is None or kind is ViewKind.UDTF else set(function.output.names)
    source = _source(query, namespace, kind, [n for n in output.names if n not in HIDDEN and n not in made])
    return ViewDefinition(
        kind=kind,
        query=source,
        raw_query=raw_query,
        output=output.with_metadata(_view_metadata(fields, query, kind)),
        function=function,
        inputs=inputs,
        is_populated=fields.flag("with_no_data") is False,
        columns=_function_columns(query, output) if kind is ViewKind.QUERY else (),
        partition_by=partition_by,
    )


def _outputs(column: Fields, name: str) -> tuple[Fields, ...]:
    outputs = column.objects("outputs")
    if not outputs:
        raise InvalidInput(column.name_of("outputs"), "is missing; it has to say what the column holds")
    if outputs[0].required_text("column") != name:
        raise InvalidInput(outputs[0].name_of("column"), f"has to be the name of the column, {name!r:.60}")
    return outputs


def _type(output: Fields) -> pa.DataType:
    return geneva_type(output.raw("data_type"), output.name_of("data_type"))


def _sibling(output: Fields) -> ColumnOutput:
    return ColumnOutput(output.required_text("column"), output.required_text("struct_field"))


def _struct(siblings: tuple[ColumnOutput, ...], types: Mapping[str, pa.DataType]) -> pa.DataType:
    return pa.struct([(sibling.struct_field or sibling.name, types[sibling.name]) for sibling in siblings])


def _column_metadata(column: Fields, path: str) -> dict[str, str]:
    """What Geneva's client looks for in a column before it asks for a backfill."""
    given = column.texts_by_name("field_metadata") or {}
    own = {
        "virtual_column": "true",
        "virtual_column.udf_backend": GENEVA_BACKEND,
        "virtual_column.udf_name": column.text("udf_name") or "",
        "virtual_column.udf_version": column.text("udf_version") or "",
        "virtual_column.udf": path,
        "virtual_column.udf_inputs": orjson.dumps(column.texts("input_columns") or []).decode(),
        "virtual_column.auto_backfill": "true" if column.flag("auto_backfill") else "false",
    }
    for key in ("manifest", "manifest_checksum"):
        if column.text(key):
            own[f"virtual_column.{key}"] = column.text(key) or ""
    extra = column.texts_by_name("metadata") or {}
    return {**given, **extra, **own}


def _view_function(fields: Fields, kind: ViewKind) -> tuple[Function | None, tuple[str, ...], str | None]:
    spec = fields.nested("udtf_spec")
    if kind is ViewKind.QUERY:
        if spec is not None:
            raise InvalidInput("udtf_spec", "has to be null for a view of kind query")
        return None, (), None
    if spec is None:
        raise InvalidInput("udtf_spec", f"is missing; a view of kind {kind} needs it")
    check_manifest(spec)
    if spec.raw("num_gpus"):
        raise Unsupported("udtf_spec.num_gpus: functions that need a GPU are not supported yet")
    if spec.raw("num_cpus") not in (None, 1):
        raise Unsupported("udtf_spec.num_cpus: other than 1 is not supported yet")
    spec.refuse_given("memory", "error_handling")
    if spec.raw("partition_by_indexed_column"):
        raise Unsupported("udtf_spec.partition_by_indexed_column: is not supported yet; use partition_by")
    expected = hashlib.sha256(spec.required_text("udtf").encode()).hexdigest()
    if spec.required_text("udtf_sha").lower() != expected:
        raise InvalidInput(
            "udtf_spec.udtf_sha", "is not the SHA-256 of udtf_spec.udtf; the envelope was damaged"
        )
    envelope = _envelope(spec, "udtf")
    key = "chunker_payload" if kind is ViewKind.CHUNKER else "udtf_payload"
    body = _check_pickle(envelope, "udtf_spec.udtf", key)
    output = decode_schema(body.required_text("output_schema_bytes"), "udtf_spec.udtf.output_schema_bytes")
    made = FunctionKind.CHUNKER if kind is ViewKind.CHUNKER else FunctionKind.TABLE
    name = spec.text("udtf_name") or body.text("name") or "function"
    inputs = spec.texts("input_columns") or body.texts("input_columns") or ()
    return geneva_function(name, made, envelope, output), inputs, spec.text("partition_by")


def _source(query: Fields, namespace: tuple[str, ...], kind: ViewKind, shown: list[str]) -> SourceQuery:
    base = query.nested("base")
    assert base is not None
    for key in UNSERVED_QUERY_KEYS:
        if base.raw(key) not in (None, False, []):
            raise Unsupported(
                f"{base.name_of(key)}: is not supported in a view; a view is made from a plain scan"
            )
    if query.raw("shuffle"):
        raise Unsupported("source_query.shuffle: is not supported in a view; its rows have no order")
    columns = _columns(base)
    if kind is ViewKind.CHUNKER:
        known = {name: quoted_name(name) for name in shown} if columns is None else columns
        columns = {alias: expression for alias, expression in known.items() if alias in shown}
    return SourceQuery(
        source=(*namespace, query.required_text("source_table")),
        columns=columns,
        filter=base.expression("filter"),
        limit=base.integer("limit", 0),
        offset=base.integer("offset", 0),
    )


def _columns(base: Fields) -> dict[str, str] | None:
    """A list of names, pairs of alias and expression, or an object of them; null is all columns."""
    raw, name = base.raw("columns"), base.name_of("columns")
    match raw:
        case None:
            return None
        case dict():
            pairs = text_mapping(raw, name)
        case list():
            pairs = dict(_pair(entry, name) for entry in raw)
        case _:
            raise InvalidInput(name, "has to be a list of names or an object of expressions")
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
            raise InvalidInput(field, f"{entry!r:.60} is neither a name nor a pair of name and expression")


def _function_columns(query: Fields, output: pa.Schema) -> tuple[FunctionColumn, ...]:
    columns = []
    for entry in query.objects("column_udfs"):
        name = entry.required_text("output_name")
        if name not in output.names:
            raise InvalidInput(entry.name_of("output_name"), f"{name!r:.60} is not in output_schema")
        udf = entry.nested("udf")
        if udf is None or udf.text("backend") != GENEVA_BACKEND:
            raise InvalidInput(entry.name_of("udf"), f"has to be a function of the backend {GENEVA_BACKEND}")
        envelope = udf.required_text("udf_payload").encode()
        _check_pickle(envelope, udf.name_of("udf_payload"), "udf_pickle")
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
    """What Geneva's client reads from a view's schema to tell what it has before it."""
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


def _envelope(fields: Fields, key: str) -> bytes:
    return decode_base64(fields.required_text(key), fields.name_of(key))


def _check_pickle(envelope: bytes, field: str, key: str) -> Fields:
    """Looks whether the code is there; it is opened where it runs, never here."""
    try:
        body = orjson.loads(envelope)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, f"is not Geneva's JSON envelope ({error})") from error
    if not isinstance(body, dict):
        raise InvalidInput(field, "is not Geneva's JSON envelope")
    fields = Fields(body, field)
    decode_base64(fields.required_text(key), fields.name_of(key))
    return fields
