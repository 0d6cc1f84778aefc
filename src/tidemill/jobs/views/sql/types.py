"""Types between Arrow and Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp
from sqlglot.expressions import DType

from tidemill.jobs.model.derived import quoted

WIDEST_DECIMAL: Final = 38
DEFAULT_DIGITS: Final = 10
BLOB: Final = "lance.blob.v2"
EXTENSION_NAME: Final = b"ARROW:extension:name"

SAME_IN_SPARK: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}
# What Spark has no type for is read as one that holds all its values.
READ_AS: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
TOLD: Final[Mapping[DType, pa.DataType]] = {
    DType.BOOLEAN: pa.bool_(),
    DType.TINYINT: pa.int8(),
    DType.SMALLINT: pa.int16(),
    DType.INT: pa.int32(),
    DType.BIGINT: pa.int64(),
    DType.FLOAT: pa.float32(),
    DType.DOUBLE: pa.float64(),
    DType.CHAR: pa.string(),
    DType.VARCHAR: pa.string(),
    DType.TEXT: pa.string(),
    DType.BINARY: pa.binary(),
    DType.VARBINARY: pa.binary(),
    DType.DATE: pa.date32(),
    DType.TIMESTAMP: pa.timestamp("us", "UTC"),
    DType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    DType.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    DType.TIMESTAMPNTZ: pa.timestamp("us"),
}


def read_type(field: pa.Field) -> pa.DataType:
    """The type that values of a stored column have when they are read: blobs come as their bytes."""
    name = (field.metadata or {}).get(EXTENSION_NAME, b"").decode()
    is_blob = BLOB in (name, getattr(field.type, "extension_name", ""))
    return pa.large_binary() if is_blob else field.type


def spark_type(kind: pa.DataType) -> pa.DataType | None:
    """The Arrow type as which Spark gets such values; None where it has no type that holds them."""
    if kind in SAME_IN_SPARK:
        return kind
    if kind in READ_AS:
        return READ_AS[kind]
    if isinstance(kind, pa.BaseExtensionType):
        return spark_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us") if kind.tz is None else pa.timestamp("us", "UTC")
    if pa.types.is_decimal(kind):
        fits = kind.precision <= WIDEST_DECIMAL and kind.scale >= 0
        return pa.decimal128(kind.precision, kind.scale) if fits else None
    return _nested_spark_type(kind)


def _nested_spark_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(kind):
        parts = [(field.name, spark_type(field.type)) for field in kind]
        known = [(name, part) for name, part in parts if part is not None]
        return pa.struct(known) if len(known) == len(parts) and parts else None
    if pa.types.is_map(kind):
        key, item = spark_type(kind.key_type), spark_type(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if is_list(kind):
        value = spark_type(kind.value_type)
        return None if value is None else pa.list_(value)
    return None


def is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in (*lists, pa.types.is_list_view, pa.types.is_large_list_view))


def holds_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if pa.types.is_struct(kind):
        return any(holds_map(field.type) for field in kind)
    return is_list(kind) and holds_map(kind.value_type)


def sql_type(kind: pa.DataType) -> str:
    """How Spark SQL calls the type; only for those that Spark has."""
    if kind in SAME_IN_SPARK:
        return SAME_IN_SPARK[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {sql_type(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    return f"ARRAY<{sql_type(kind.value_type)}>"


def told_type(kind: exp.DataType | None) -> pa.DataType | None:
    """The Arrow type of one that is written in a CAST."""
    if kind is None:
        return None
    if kind.this in TOLD:
        return TOLD[kind.this]
    parts = list(kind.expressions)
    match kind.this:
        case DType.DECIMAL:
            return _decimal(parts)
        case DType.ARRAY | DType.LIST if len(parts) == 1:
            value = told_type(parts[0])
            return None if value is None else pa.list_(value)
        case DType.MAP if len(parts) == 2:
            key, item = told_type(parts[0]), told_type(parts[1])
            return None if key is None or item is None else pa.map_(key, item)
        case DType.STRUCT:
            return _struct(parts)
        case _:
            return None


def _decimal(parts: Sequence[exp.Expr]) -> pa.DataType:
    digits = [int(part.name) for part in parts] or [DEFAULT_DIGITS]
    return pa.decimal128(digits[0], digits[1] if len(digits) > 1 else 0)


def _struct(parts: Sequence[exp.Expr]) -> pa.DataType | None:
    fields = [(part.name, told_type(part.args.get("kind"))) for part in parts]
    known = [(name, kind) for name, kind in fields if name and kind is not None]
    return pa.struct(known) if known and len(known) == len(fields) else None
