"""Translates columns that the Geneva client declares, with its pickled functions and its names of types."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa

from tidemill.catalog.model.functions import (
    FunctionKind,
    decode_base64,
    geneva_function,
    value_output,
)
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import ColumnOutput
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.lance.arrow_json import parse_type

GENEVA_BACKEND: Final = "DockerUDFSpecV1"
# What a package manifest can require of the environment of a function.
MANIFEST_KEYS: Final = (
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
PRINTED: Final = re.compile(r"(?P<family>[a-z_]+)(?P<width>[0-9]*)[\[(](?P<arguments>[^\])]*)[\])]")


def geneva_column(name: str, column: Fields) -> ColumnDeclaration:
    outputs = _checked_outputs(column, name)
    types = {output.required_text("column"): _type(output) for output in outputs}
    siblings = () if len(outputs) == 1 else tuple(map(_sibling, outputs))
    value_type = types[name] if not siblings else _struct(siblings, types)
    declared = geneva_replacement(name, column, value_type)
    return replace(declared, siblings=siblings, metadata=dict.fromkeys(types, declared.metadata[name]))


def geneva_replacement(name: str, column: Fields, value_type: pa.DataType) -> ColumnDeclaration:
    """A new function for an existing column. The client does not repeat the type."""
    envelope = geneva_envelope(column, "udf")
    check_pickle(envelope, column.name_of("udf"), "udf_pickle")
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


def find_geneva_replacement(declared: Fields) -> tuple[str, Fields] | None:
    """The name and new function of a column whose function is replaced by one of Geneva's, else None."""
    (entry,) = declared.objects("new_columns")
    column = entry.nested("virtual_column")
    if column is None or column.text("udf_backend") != GENEVA_BACKEND:
        return None
    return entry.required_text("name"), column


def check_manifest(fields: Fields) -> None:
    """Rejects a package manifest that requires anything of the environment; an empty one is fine."""
    text, name = fields.text("manifest"), fields.name_of("manifest")
    if not text:
        return
    try:
        manifest = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(name, "is the name of a manifest; only backfill_column accepts names") from error
    if not isinstance(manifest, dict):
        raise InvalidInput(name, "must be a JSON object")
    for key in MANIFEST_KEYS:
        if manifest.get(key):
            raise InvalidInput(
                f"{name}.{key}",
                "is not supported here yet; pass the manifest to backfill_column, or leave it out",
            )


def _checked_outputs(column: Fields, name: str) -> tuple[Fields, ...]:
    outputs = column.objects("outputs")
    if not outputs:
        raise InvalidInput(column.name_of("outputs"), "is missing; it must list the columns and their types")
    if outputs[0].required_text("column") != name:
        raise InvalidInput(outputs[0].name_of("column"), f"must be the name of the column, {name!r:.60}")
    return outputs


def _type(output: Fields) -> pa.DataType:
    return geneva_type(output.raw("data_type"), output.name_of("data_type"))


def _sibling(output: Fields) -> ColumnOutput:
    return ColumnOutput(output.required_text("column"), output.required_text("struct_field"))


def _struct(siblings: tuple[ColumnOutput, ...], types: Mapping[str, pa.DataType]) -> pa.DataType:
    return pa.struct([(sibling.struct_field or sibling.name, types[sibling.name]) for sibling in siblings])


def _column_metadata(column: Fields, path: str) -> dict[str, str]:
    """The metadata that Geneva's client reads before it submits a backfill."""
    field_metadata = column.texts_by_name("field_metadata") or {}
    reserved = {
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
            reserved[f"virtual_column.{key}"] = column.text(key) or ""
    extra = column.texts_by_name("metadata") or {}
    return {**field_metadata, **extra, **reserved}


def geneva_envelope(fields: Fields, key: str) -> bytes:
    return decode_base64(fields.required_text(key), fields.name_of(key))


def check_pickle(envelope: bytes, field: str, key: str) -> Fields:
    """Checks that the envelope contains code. The code is unpickled only where it runs, never here."""
    try:
        body = orjson.loads(envelope)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(field, f"is not Geneva's JSON envelope ({error})") from error
    if not isinstance(body, dict):
        raise InvalidInput(field, "is not Geneva's JSON envelope")
    fields = Fields(body, field)
    decode_base64(fields.required_text(key), fields.name_of(key))
    return fields


def geneva_type(raw_type: Any, field: str) -> pa.DataType:
    """Reads a type from JSON; raises InvalidInput."""
    return parse_type(_with_lance_names(raw_type), field)


def _with_lance_names(raw_type: Any, depth: int = 0) -> Any:
    """Converts all names to Lance's. Leaves what it cannot read to the parser, which reports it."""
    if isinstance(raw_type, str):
        return _lance_name(raw_type)
    if not isinstance(raw_type, dict) or depth > 64:
        return raw_type
    renamed = {**raw_type, "type": _with_lance_names(raw_type.get("type"), depth + 1)}
    if isinstance(raw_type.get("fields"), list):
        renamed["fields"] = [
            {**field, "type": _with_lance_names(field.get("type"), depth + 1)}
            if isinstance(field, dict)
            else field
            for field in raw_type["fields"]
        ]
    return renamed


def _lance_name(text: str) -> str:
    matched = PRINTED.fullmatch(text)
    if matched is None:
        return text
    arguments = [argument.strip().removeprefix("tz=") for argument in matched["arguments"].split(",")]
    if matched["family"] == "decimal":
        return ":".join(["decimal", matched["width"], *arguments])
    return ":".join([matched["family"] + matched["width"], *arguments])
