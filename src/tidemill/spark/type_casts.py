"""Casts values that come from Spark to the types of a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.jobs.planner.sql_types import is_list


def cast_values(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts values to another type. Raises ValueError if they do not fit."""
    # Copies: Lance cannot use decimals in place in the buffers of Spark's stream.
    return _converted(pa.concat_arrays([column, column.slice(0, 0)]), kind)


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if not _holds_vectors(kind):
        return column.cast(kind)
    if pa.types.is_fixed_size_list(kind):
        return _vectors(column, kind)
    if pa.types.is_struct(kind):
        parts = [_converted(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    list_class = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    values = _converted(column.values, kind.value_type)
    return list_class.from_arrays(column.offsets, values, type=kind, mask=column.is_null())


def _holds_vectors(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_vectors(field.type) for field in kind)
    return pa.types.is_fixed_size_list(kind) or (is_list(kind) and _holds_vectors(kind.value_type))


def _vectors(column: pa.ListArray, kind: pa.FixedSizeListType) -> pa.Array:
    """Replaces Arrow's own cast, which crashes if all lists are null (pyarrow 26)."""
    size = kind.list_size
    lengths = pc.list_value_length(column).drop_null()
    if pc.any(pc.not_equal(lengths, size)).as_py():
        raise ValueError(f"a list does not have the length {size} that the column requires")
    values = _converted(column.flatten(), kind.value_type)
    if not column.null_count:
        return pa.FixedSizeListArray.from_arrays(values, type=kind)
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    starts = np.where(is_null, 0, (np.cumsum(~is_null) - 1) * size)
    indices = (starts[:, None] + np.arange(size)).ravel()
    filled = values.take(pa.array(indices, mask=np.repeat(is_null, size)))
    return pa.FixedSizeListArray.from_arrays(filled, type=kind, mask=column.is_null())
