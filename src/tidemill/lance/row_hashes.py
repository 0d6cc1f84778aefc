"""Hashes of whole rows, to find rows that may be equal; callers compare the values afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.lance.key_hashes import NULL_HASH, SEED, Hashes, key_array
from tidemill.lance.value_comparison import BITS

FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
POSITION_FACTOR: Final = np.uint64(0x5851F42D4C957F2D)
SHIFT: Final = np.uint64(31)


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """One hash per row; equal rows have equal hashes."""
    hashes = np.full(len(batch), SEED, dtype=np.uint64)
    for name in columns:
        hashes = hashes * FACTOR + _hashes(batch.column(name))
        hashes ^= hashes >> SHIFT
    return hashes


def _hashes(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), NULL_HASH, dtype=np.uint64)
    if pa.types.is_floating(kind):
        return key_array([array.view(BITS[kind.bit_width])])
    if pa.types.is_struct(kind):
        return _with_nulls(row_hashes(_fields(array), [str(n) for n in range(kind.num_fields)]), array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _with_nulls(_list_hashes(array), array)
    try:
        return key_array([array])
    except TypeError:
        return key_array([pa.array([repr(value) for value in array.to_pylist()], pa.string())])


def _fields(array: pa.StructArray) -> pa.RecordBatch:
    names = [str(number) for number in range(array.type.num_fields)]
    return pa.record_batch(array.flatten(), names=names) if names else pa.record_batch([array], names=["0"])


def _list_hashes(array: pa.Array) -> Hashes:
    """Combines the hashes of the elements, weighted by position so that their order matters."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = _hashes(array.flatten())
    ends = np.cumsum(lengths)
    positions = np.arange(len(values)) - np.repeat(ends - lengths, lengths)
    powers = np.multiply.accumulate(np.full(int(positions.max(initial=0)) + 1, POSITION_FACTOR))
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(powers[positions] * values, out=sums[1:])
    hashes: Hashes = (sums[ends] - sums[ends - lengths]) ^ lengths.view(np.uint64)
    return hashes


def _with_nulls(hashes: Hashes, array: pa.Array) -> Hashes:
    if not array.null_count:
        return hashes
    is_null: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_null, NULL_HASH, hashes)
