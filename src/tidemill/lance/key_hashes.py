"""Row keys: a 64-bit hash over the values of some columns, stable across processes and releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes: TypeAlias = npt.NDArray[np.uint64]

# Views store keys in their rows: changing these constants would invalidate every view.
NULL_HASH: Final = np.uint64(0x9AE16A3B2F90404F)
SEED: Final = np.uint64(0x2545F4914F6CDD1D)
STEP: Final = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR: Final = np.uint64(0x94D049BB133111EB)
BYTE_FACTOR: Final = np.uint64(0x5851F42D4C957F2D)


def key_array(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Hashes:
    """The key of each row; equal values have equal keys, whatever the width of an integer or string type.

    Raises TypeError for types whose equality is not that of their bits, such as floats.
    """
    if not columns:
        raise TypeError("a key needs at least one column")
    keys = np.full(len(columns[0]), SEED, dtype=np.uint64)
    for column in columns:
        keys = _mixed(keys * FIRST_FACTOR + _column_hashes(column))
    return keys


def _column_hashes(column: pa.Array | pa.ChunkedArray) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        hashes = [_array_hashes(chunk) for chunk in column.chunks]
        return np.concatenate([np.empty(0, dtype=np.uint64), *hashes])
    return _array_hashes(column)


def _array_hashes(array: pa.Array) -> Hashes:
    if isinstance(array, pa.DictionaryArray):
        hashes = _array_hashes(array.dictionary)
        indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return _with_nulls(hashes[indices] if len(hashes) else np.zeros(len(array), np.uint64), array.indices)
    return _with_nulls(_value_hashes(array), array)


def _value_hashes(array: pa.Array) -> Hashes:
    kind = array.type
    if _is_bytes(kind):
        return _bytes_hashes(array.cast(pa.large_binary()))
    if pa.types.is_boolean(kind):
        return _number_hashes(array.cast(pa.int64()))
    if pa.types.is_integer(kind):
        return _number_hashes(array)
    if pa.types.is_date(kind):
        return _number_hashes(array.cast(pa.date32()).cast(pa.int32()))
    if pa.types.is_timestamp(kind):
        return _number_hashes(array.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()))
    raise TypeError(f"values of type {kind} cannot be a key")


def _is_bytes(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(check(kind) for check in (*texts, *binaries, pa.types.is_fixed_size_binary))


def _number_hashes(array: pa.Array) -> Hashes:
    filled = array.fill_null(0).to_numpy(zero_copy_only=False)
    wide = filled if filled.dtype == np.uint64 else filled.astype(np.int64).view(np.uint64)
    return _mixed(wide)


def _bytes_hashes(array: pa.LargeBinaryArray) -> Hashes:
    """A polynomial over the bytes of each value, which can be computed for all values at once."""
    lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    _, offsets, data = array.buffers()
    if data is None or offsets is None or not len(array):
        return _mixed(lengths.view(np.uint64))
    starts = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, dtype=np.uint8)[starts[0] : starts[-1]]
    bounds = starts - starts[0]
    positions = np.arange(len(content)) - np.repeat(bounds[:-1], np.diff(bounds))
    powers = np.multiply.accumulate(np.full(int(positions.max(initial=0)) + 1, BYTE_FACTOR))
    sums = np.zeros(len(content) + 1, dtype=np.uint64)
    np.cumsum(powers[positions] * (content.astype(np.uint64) + np.uint64(1)), out=sums[1:])
    return _mixed((sums[bounds[1:]] - sums[bounds[:-1]]) ^ lengths.view(np.uint64))


def _with_nulls(hashes: Hashes, array: pa.Array) -> Hashes:
    if not array.null_count:
        return hashes
    return np.where(array.is_null().to_numpy(zero_copy_only=False), NULL_HASH, hashes)


def _mixed(values: Hashes) -> Hashes:
    """The finalizer of SplitMix64: every bit of a value affects every bit of the hash."""
    mixed = values + STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST_FACTOR
    mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND_FACTOR
    return mixed ^ (mixed >> np.uint64(31))
