"""Matches recomputed rows of a view with the rows it already has.

A refresh recomputes all rows of some keys (source rows or groups). `ViewWriter` then has to know, for each
new row, which existing row it replaces: equal rows stay untouched, changed rows are rewritten under their old
row id, and the rest is added or removed. Stable ids matter because other computed columns and views depend on
them. If every recomputed row were written as new, each refresh would make all of them stale, and columns that
others have added to the view would lose their values.

Everything is vectorized over whole batches. Rows are numbered by group (key, or key and position), hashes
find candidates, and the values decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.lance.changes import BITS, same_values
from tidemill.lance.key_hashes import NULL_HASH, SEED, Hashes, key_array

FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
POSITION_FACTOR: Final = np.uint64(0x5851F42D4C957F2D)
SHIFT: Final = np.uint64(31)

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NO_MATCH: Final = -1


@dataclass(frozen=True)
class Match:
    """For each new row the index of the old row it replaces, or NO_MATCH, and whether both are equal."""

    old: Numbers
    is_same: Mask


def match_rows(new: pa.RecordBatch, old: pa.RecordBatch, key: str, position: str | None) -> Match:
    """Pairs rows of two batches that have the same key; `position` names the column that orders them.

    First pairs rows at the same position with equal content, then rows with equal content elsewhere. Of the
    rest it pairs rows at the same position or, without positions, rows that are the only ones of their key.
    """
    match = Match(np.full(len(new), NO_MATCH), np.zeros(len(new), dtype=np.bool_))
    if not len(new) or not len(old):
        return match
    content = [name for name in new.schema.names if name not in (key, position)]
    groups = _group_numbers(_numbers(new, key), _numbers(old, key))
    aligned: Numbers | None = None
    if position is not None:
        aligned = _aligned(*_group_numbers(*groups, _numbers(new, position), _numbers(old, position)))
        _accept(match, new, old, np.arange(len(new)), aligned, content, is_same=True)
    unmatched = _unmatched(groups, match)
    if position is None:
        unmatched = _without_single_rows(groups, *unmatched)
    _match_content(match, new, old, groups, unmatched, content, is_same=position is None)
    _match_rest(match, groups, aligned)
    if position is None:
        pairs = np.flatnonzero((match.old != NO_MATCH) & ~match.is_same)
        match.is_same[pairs] = same_rows(new, old, pairs, match.old[pairs], content)
    return match


def numbered(groups: npt.NDArray[np.int64]) -> Numbers:
    """For each row, the number of preceding rows in its group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered, side="left")
    return numbers


def _match_content(
    match: Match,
    new: pa.RecordBatch,
    old: pa.RecordBatch,
    groups: tuple[Numbers, Numbers],
    unmatched: tuple[Numbers, Numbers],
    columns: Sequence[str],
    *,
    is_same: bool,
) -> None:
    """Pairs rows of the same key with equal content, in order."""
    new_unmatched, old_unmatched = unmatched
    if not len(new_unmatched) or not len(old_unmatched):
        return
    new_hashes = row_hashes(_rows(new, new_unmatched), columns).view(np.int64)
    old_hashes = row_hashes(_rows(old, old_unmatched), columns).view(np.int64)
    groups_by_content = _group_numbers(
        groups[0][new_unmatched], groups[1][old_unmatched], new_hashes, old_hashes
    )
    aligned = _aligned(
        *_group_numbers(*groups_by_content, numbered(groups_by_content[0]), numbered(groups_by_content[1]))
    )
    is_aligned = aligned != NO_MATCH
    _accept(
        match,
        new,
        old,
        new_unmatched[is_aligned],
        old_unmatched[aligned[is_aligned]],
        columns,
        is_same=is_same,
    )


def _accept(
    match: Match,
    new: pa.RecordBatch,
    old: pa.RecordBatch,
    new_rows: Numbers,
    old_rows: Numbers,
    columns: Sequence[str],
    *,
    is_same: bool,
) -> None:
    """Records the candidate pairs whose values are equal."""
    is_pair = old_rows != NO_MATCH
    new_rows, old_rows = new_rows[is_pair], old_rows[is_pair]
    equal = same_rows(new, old, new_rows, old_rows, columns)
    match.old[new_rows[equal]] = old_rows[equal]
    match.is_same[new_rows[equal]] = is_same


def _match_rest(match: Match, groups: tuple[Numbers, Numbers], aligned: Numbers | None) -> None:
    new_unmatched, old_unmatched = _unmatched(groups, match)
    if not len(new_unmatched):
        return
    if aligned is not None:
        is_free = np.zeros(len(groups[1]), dtype=np.bool_)
        is_free[old_unmatched] = True
        candidates = aligned[new_unmatched]
        is_usable = (candidates != NO_MATCH) & is_free[candidates]
        match.old[new_unmatched[is_usable]] = candidates[is_usable]
        return
    new_single, old_single = _single_rows(groups, new_unmatched, old_unmatched)
    order = np.argsort(groups[1][old_single], kind="stable")
    slots = np.searchsorted(groups[1][old_single], groups[0][new_single], sorter=order)
    match.old[new_single] = old_single[order[slots]]


def same_rows(
    new: pa.RecordBatch, old: pa.RecordBatch, new_rows: Numbers, old_rows: Numbers, columns: Sequence[str]
) -> Mask:
    """Compares pairs of rows: whether their values are equal."""
    is_same = np.ones(len(new_rows), dtype=np.bool_)
    for name in columns:
        is_same &= same_values(_taken(new.column(name), new_rows), _taken(old.column(name), old_rows))
    return is_same


def _group_numbers(
    new: Numbers, old: Numbers, new_more: Numbers | None = None, old_more: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """Numbers the distinct values (or pairs of values), consistently for both sides."""
    _, numbers = np.unique(np.concatenate([new, old]), return_inverse=True)
    if new_more is not None and old_more is not None:
        _, more = np.unique(np.concatenate([new_more, old_more]), return_inverse=True)
        width = int(more.max(initial=0)) + 1
        _, numbers = np.unique(numbers * width + more, return_inverse=True)
    return numbers[: len(new)], numbers[len(new) :]


def _aligned(new: Numbers, old: Numbers) -> Numbers:
    """For each new row, the first old row with the same number, or NO_MATCH."""
    first_rows = np.full(int(max(new.max(initial=0), old.max(initial=0))) + 1, NO_MATCH)
    # Assigned in reverse, so the first row wins.
    first_rows[old[::-1]] = np.arange(len(old))[::-1]
    aligned: Numbers = first_rows[new]
    return aligned


def _unmatched(groups: tuple[Numbers, Numbers], match: Match) -> tuple[Numbers, Numbers]:
    """Rows without a match, of keys that have such rows on both sides."""
    is_free = np.ones(len(groups[1]), dtype=np.bool_)
    is_free[match.old[match.old != NO_MATCH]] = False
    new_unmatched, old_unmatched = np.flatnonzero(match.old == NO_MATCH), np.flatnonzero(is_free)
    new_counts, old_counts = _counts(groups, new_unmatched, old_unmatched)
    has_both = (new_counts > 0) & (old_counts > 0)
    new_candidates = new_unmatched[has_both[groups[0][new_unmatched]]]
    old_candidates = old_unmatched[has_both[groups[1][old_unmatched]]]
    return new_candidates, old_candidates


def _single_rows(
    groups: tuple[Numbers, Numbers], new_rows: Numbers, old_rows: Numbers
) -> tuple[Numbers, Numbers]:
    """Rows that are the only ones of their key, on both sides."""
    new_counts, old_counts = _counts(groups, new_rows, old_rows)
    is_single = (new_counts == 1) & (old_counts == 1)
    return new_rows[is_single[groups[0][new_rows]]], old_rows[is_single[groups[1][old_rows]]]


def _without_single_rows(
    groups: tuple[Numbers, Numbers], new_rows: Numbers, old_rows: Numbers
) -> tuple[Numbers, Numbers]:
    """Leaves out rows that are the only ones of their key: they match whatever their content."""
    new_single, old_single = _single_rows(groups, new_rows, old_rows)
    return (
        np.setdiff1d(new_rows, new_single, assume_unique=True),
        np.setdiff1d(old_rows, old_single, assume_unique=True),
    )


def _counts(groups: tuple[Numbers, Numbers], new_rows: Numbers, old_rows: Numbers) -> tuple[Numbers, Numbers]:
    count = int(max(groups[0].max(initial=0), groups[1].max(initial=0))) + 1
    return (
        np.bincount(groups[0][new_rows], minlength=count),
        np.bincount(groups[1][old_rows], minlength=count),
    )


def _numbers(batch: pa.RecordBatch, column: str) -> Numbers:
    numbers: Numbers = batch.column(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _rows(batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
    return batch if len(rows) == len(batch) else batch.take(pa.array(rows))


def _taken(column: pa.Array, rows: Numbers) -> pa.Array:
    is_whole = len(rows) == len(column) and bool(np.all(rows == np.arange(len(rows))))
    return column if is_whole else column.take(pa.array(rows))


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
