"""Which rows of a view are those made anew: unchanged ones stay, changed ones keep their identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.lance.row_hashes import row_hashes
from tidemill.lance.value_comparison import same_values

Numbers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

NONE: Final = -1


@dataclass(frozen=True)
class Match:
    """For each new row the place of the old one that it takes over from, or -1, and whether both are same."""

    old: Numbers
    is_same: Mask


def match_rows(new: pa.RecordBatch, old: pa.RecordBatch, key: str, place: str | None) -> Match:
    """Pairs the rows of two batches that have the same key.

    First those at the same place with the same content, then those with the same content elsewhere; of what
    is left, those at the same place, or the only ones of their key.
    """
    match = Match(np.full(len(new), NONE), np.zeros(len(new), dtype=np.bool_))
    if not len(new) or not len(old):
        return match
    content = [name for name in new.schema.names if name not in (key, place)]
    groups = _grouped(_numbers(new, key), _numbers(old, key))
    aligned: Numbers | None = None
    if place is not None:
        aligned = _aligned(*_grouped(*groups, _numbers(new, place), _numbers(old, place)))
        _accept(match, new, old, np.arange(len(new)), aligned, content, is_same=True)
    left = _left_over(groups, match)
    if place is None:
        left = _without_only_ones(groups, *left)
    _match_content(match, new, old, groups, left, content, is_same=place is None)
    _match_rest(match, groups, aligned)
    if place is None:
        paired = np.flatnonzero((match.old != NONE) & ~match.is_same)
        match.is_same[paired] = same_rows(new, old, paired, match.old[paired], content)
    return match


def numbered(groups: npt.NDArray[np.int64]) -> Numbers:
    """For each row how many of its group come before it."""
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
    left: tuple[Numbers, Numbers],
    columns: Sequence[str],
    *,
    is_same: bool,
) -> None:
    """Rows of one key with the same content, the first with the first and so on."""
    new_left, old_left = left
    if not len(new_left) or not len(old_left):
        return
    new_hashes = row_hashes(_rows(new, new_left), columns).view(np.int64)
    old_hashes = row_hashes(_rows(old, old_left), columns).view(np.int64)
    alike = _grouped(groups[0][new_left], groups[1][old_left], new_hashes, old_hashes)
    found = _aligned(*_grouped(*alike, numbered(alike[0]), numbered(alike[1])))
    is_found = found != NONE
    _accept(match, new, old, new_left[is_found], old_left[found[is_found]], columns, is_same=is_same)


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
    """Notes those of the pairs that hold the same values."""
    is_pair = old_rows != NONE
    new_rows, old_rows = new_rows[is_pair], old_rows[is_pair]
    equal = same_rows(new, old, new_rows, old_rows, columns)
    match.old[new_rows[equal]] = old_rows[equal]
    match.is_same[new_rows[equal]] = is_same


def _match_rest(match: Match, groups: tuple[Numbers, Numbers], aligned: Numbers | None) -> None:
    new_left, old_left = _left_over(groups, match)
    if not len(new_left):
        return
    if aligned is not None:
        is_free = np.zeros(len(groups[1]), dtype=np.bool_)
        is_free[old_left] = True
        candidates = aligned[new_left]
        is_fit = (candidates != NONE) & is_free[candidates]
        match.old[new_left[is_fit]] = candidates[is_fit]
        return
    new_only, old_only = _only_ones(groups, new_left, old_left)
    order = np.argsort(groups[1][old_only], kind="stable")
    spots = np.searchsorted(groups[1][old_only], groups[0][new_only], sorter=order)
    match.old[new_only] = old_only[order[spots]]


def same_rows(
    new: pa.RecordBatch, old: pa.RecordBatch, new_rows: Numbers, old_rows: Numbers, columns: Sequence[str]
) -> Mask:
    """Place by place, whether the rows at these places hold the same values."""
    is_same = np.ones(len(new_rows), dtype=np.bool_)
    for name in columns:
        is_same &= same_values(_taken(new.column(name), new_rows), _taken(old.column(name), old_rows))
    return is_same


def _grouped(
    new: Numbers, old: Numbers, new_more: Numbers | None = None, old_more: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """Small numbers, the same for the same values on both sides; two values together count as one."""
    _, numbers = np.unique(np.concatenate([new, old]), return_inverse=True)
    if new_more is not None and old_more is not None:
        _, more = np.unique(np.concatenate([new_more, old_more]), return_inverse=True)
        width = int(more.max(initial=0)) + 1
        _, numbers = np.unique(numbers * width + more, return_inverse=True)
    return numbers[: len(new)], numbers[len(new) :]


def _aligned(new: Numbers, old: Numbers) -> Numbers:
    """For each new row the (only) old one with the same number, or -1."""
    places = np.full(int(max(new.max(initial=0), old.max(initial=0))) + 1, NONE)
    # The first one counts.
    places[old[::-1]] = np.arange(len(old))[::-1]
    found: Numbers = places[new]
    return found


def _left_over(groups: tuple[Numbers, Numbers], match: Match) -> tuple[Numbers, Numbers]:
    """The rows without a counterpart, of the keys that have some on both sides."""
    is_free = np.ones(len(groups[1]), dtype=np.bool_)
    is_free[match.old[match.old != NONE]] = False
    new_left, old_left = np.flatnonzero(match.old == NONE), np.flatnonzero(is_free)
    new_counts, old_counts = _counts(groups, new_left, old_left)
    has_both = (new_counts > 0) & (old_counts > 0)
    return new_left[has_both[groups[0][new_left]]], old_left[has_both[groups[1][old_left]]]


def _only_ones(
    groups: tuple[Numbers, Numbers], new_left: Numbers, old_left: Numbers
) -> tuple[Numbers, Numbers]:
    """Those that are the only ones of their key, on both sides."""
    new_counts, old_counts = _counts(groups, new_left, old_left)
    is_single = (new_counts == 1) & (old_counts == 1)
    return new_left[is_single[groups[0][new_left]]], old_left[is_single[groups[1][old_left]]]


def _without_only_ones(
    groups: tuple[Numbers, Numbers], new_left: Numbers, old_left: Numbers
) -> tuple[Numbers, Numbers]:
    """Where there is one on each side they are the same row anyway, whatever they hold."""
    new_only, old_only = _only_ones(groups, new_left, old_left)
    return (
        np.setdiff1d(new_left, new_only, assume_unique=True),
        np.setdiff1d(old_left, old_only, assume_unique=True),
    )


def _counts(groups: tuple[Numbers, Numbers], new_left: Numbers, old_left: Numbers) -> tuple[Numbers, Numbers]:
    count = int(max(groups[0].max(initial=0), groups[1].max(initial=0))) + 1
    return (
        np.bincount(groups[0][new_left], minlength=count),
        np.bincount(groups[1][old_left], minlength=count),
    )


def _numbers(batch: pa.RecordBatch, column: str) -> Numbers:
    found: Numbers = batch.column(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _rows(batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
    return batch if len(rows) == len(batch) else batch.take(pa.array(rows))


def _taken(column: pa.Array, rows: Numbers) -> pa.Array:
    is_whole = len(rows) == len(column) and bool(np.all(rows == np.arange(len(rows))))
    return column if is_whole else column.take(pa.array(rows))
