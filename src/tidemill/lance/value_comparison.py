"""Compares row values at two versions, since row lineage records writes rather than changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.coverage import row_set

BATCH_ROWS: Final = 65536
ROW_ID: Final = "_rowid"
# Floats are compared by their bits, so that NaN equals NaN.
BITS: Final = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


def rows_that_differ(
    before: lance.LanceDataset, after: lance.LanceDataset, rows: BitMap64, columns: Sequence[str]
) -> BitMap64:
    """The rows whose values in the columns differ between the versions."""
    ids = np.array(rows.to_array(), dtype=np.uint64)
    differing = [
        _differing(before, after, ids[start : start + BATCH_ROWS], columns)
        for start in range(0, len(ids), BATCH_ROWS)
    ]
    return row_set(np.concatenate(differing)) if differing else BitMap64()


def _differing(
    before: lance.LanceDataset,
    after: lance.LanceDataset,
    ids: npt.NDArray[np.uint64],
    columns: Sequence[str],
) -> npt.NDArray[np.uint64]:
    first, second = _read(before, ids, columns), _read(after, ids, columns)
    common = np.intersect1d(_ids(first), _ids(second), assume_unique=True)
    first, second = _narrowed(first, common), _narrowed(second, common)
    is_same = np.ones(len(common), dtype=np.bool_)
    for number in range(len(columns)):
        is_same &= same_values(_column(first, number), _column(second, number))
    return np.union1d(common[~is_same], np.setdiff1d(ids, common, assume_unique=True))


def same_values(first: pa.Array, second: pa.Array) -> npt.NDArray[np.bool_]:
    """Compares two arrays of the same length element by element; works for every type."""
    if first.type != second.type:
        return np.zeros(len(first), dtype=np.bool_)
    if first.equals(second):
        return np.ones(len(first), dtype=np.bool_)
    if pa.types.is_floating(first.type):
        bits = BITS[first.type.bit_width]
        first, second = first.view(bits), second.view(bits)
    if not pa.types.is_nested(first.type):
        try:
            return _equal(first, second)
        except pa.ArrowNotImplementedError:
            pass
    return _by_halves(first, second)


def _equal(first: pa.Array, second: pa.Array) -> npt.NDArray[np.bool_]:
    equal = pc.fill_null(pc.equal(first, second), fill_value=False)
    both_null = pc.and_(first.is_null(), second.is_null())
    is_equal: npt.NDArray[np.bool_] = pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return is_equal


def _by_halves(first: pa.Array, second: pa.Array) -> npt.NDArray[np.bool_]:
    """Bisects the arrays, because Arrow compares nested values only as whole arrays."""
    is_same = np.ones(len(first), dtype=np.bool_)
    ranges = [(0, len(first))]
    while ranges:
        start, count = ranges.pop()
        if first.slice(start, count).equals(second.slice(start, count)):
            continue
        if count == 1:
            is_same[start] = False
            continue
        half = count // 2
        ranges += [(start, half), (start + half, count - half)]
    return is_same


def _read(dataset: lance.LanceDataset, ids: npt.NDArray[np.uint64], columns: Sequence[str]) -> pa.Table:
    wanted = {f"c{number}": quoted(name) for number, name in enumerate(columns)}
    return dataset._take_rows(ids, columns={**wanted, ROW_ID: ROW_ID}, blob_handling="all_binary")


def _ids(table: pa.Table) -> npt.NDArray[np.uint64]:
    row_ids: npt.NDArray[np.uint64] = table[ROW_ID].to_numpy()
    return row_ids


def _narrowed(table: pa.Table, common: npt.NDArray[np.uint64]) -> pa.Table:
    """The rows with these ids, in ascending order of id."""
    ids = _ids(table)
    order = np.argsort(ids, kind="stable")
    if len(ids) == len(common) and np.array_equal(ids, common):
        return table
    return table.take(pa.array(order[np.isin(ids[order], common, assume_unique=True)]))


def _column(table: pa.Table, number: int) -> pa.Array:
    return pa.concat_arrays(table.column(number).chunks) if table.num_rows else pa.nulls(0)
