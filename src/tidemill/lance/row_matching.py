"""Matches recomputed rows of a view with the rows it already has.

A refresh recomputes all rows of some keys (source rows or groups). `ViewWriter` then has to know, for each
new row, which existing row it replaces: equal rows stay untouched, changed rows are rewritten under their old
row id, and the rest is added or removed. Stable ids matter because other computed columns and views depend on
them. If every recomputed row were written as new, each refresh would make all of them stale, and columns that
others have added to the view would lose their values.

Chunks are matched by what they say before where they are: a chunk that moved keeps its row, and with it what
was computed beside it. Everything is vectorized over whole batches. Rows are numbered by group (key, or key
and position), hashes find candidates, and the values decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.lance.changes import BITS, same_values
from tidemill.lance.chunk_identity import Path, find_main_text, identity_parts
from tidemill.lance.key_hashes import NULL_HASH, SEED, Hashes, key_array

FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
POSITION_FACTOR: Final = np.uint64(0x5851F42D4C957F2D)
SHIFT: Final = np.uint64(31)

Numbers: TypeAlias = npt.NDArray[np.int64]
Pair: TypeAlias = tuple[Numbers, Numbers]
Mask: TypeAlias = npt.NDArray[np.bool_]

NO_MATCH: Final = -1


@dataclass(frozen=True)
class Match:
    """For each new row the index of the old row it replaces, or NO_MATCH, and whether both are equal."""

    old: Numbers
    is_same: Mask


def match_rows(new: pa.RecordBatch, old: pa.RecordBatch, key: str, position: str | None) -> Match:
    """Pairs rows of two batches that have the same key; `position` names the column that orders them.

    With positions, it pairs rows with the same position and content, then of the rest those with the same
    content, identity (see `chunk_identity`), longest text, or position, in this order. Without positions, it
    pairs rows with the same content, and rows that are the only ones of their key; nothing less will do,
    because there a number may be what identifies a row.
    """
    match = Match(np.full(len(new), NO_MATCH), np.zeros(len(new), dtype=np.bool_))
    if not len(new) or not len(old):
        return match
    content = [name for name in new.schema.names if name not in (key, position)]
    groups = _group_numbers(_numbers(new, key), _numbers(old, key))
    if position is None:
        _match_without_positions(match, new, old, groups, content)
        return match
    places = _numbers(new, position), _numbers(old, position)
    aligned = _aligned(*_group_numbers(*groups, *places))
    _match_unmoved(match, new, old, aligned, content)
    rows = _in_order(groups, places, _unmatched(groups, match))
    _match_moved(match, _candidates(new, old, groups, rows, content, has_identity=True))
    _match_positions(match, groups, aligned)
    return match


def _match_without_positions(
    match: Match, new: pa.RecordBatch, old: pa.RecordBatch, groups: Pair, content: Sequence[str]
) -> None:
    rows = _without_single_rows(groups, *_unmatched(groups, match))
    candidates = _candidates(new, old, groups, rows, content, has_identity=False)
    equal, _ = candidates.pair(match, candidates.new.columns)
    match.is_same[rows[0][equal]] = True
    _match_single_rows(match, groups)
    pairs = np.flatnonzero((match.old != NO_MATCH) & ~match.is_same)
    match.is_same[pairs] = same_rows(new, old, pairs, match.old[pairs], content)


def _match_unmoved(
    match: Match, new: pa.RecordBatch, old: pa.RecordBatch, aligned: Numbers, content: Sequence[str]
) -> None:
    """Pairs rows at the same position with equal content."""
    rows = np.flatnonzero(aligned != NO_MATCH)
    equal = rows[same_rows(new, old, rows, aligned[rows], content)]
    match.old[equal] = aligned[equal]
    match.is_same[equal] = True


def numbered(groups: npt.NDArray[np.int64]) -> Numbers:
    """For each row, the number of preceding rows in its group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered, side="left")
    return numbers


@dataclass(frozen=True)
class _Side:
    """Rows of one of the batches: their keys, columns and parts of columns, and the hashes of these."""

    rows: Numbers
    keys: Numbers
    values: Mapping[Path, pa.Array]
    hashes: Mapping[Path, Hashes]
    columns: Sequence[Path]
    identity: Sequence[Path]

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        groups: Numbers,
        rows: Numbers,
        columns: Sequence[str],
        *,
        has_identity: bool,
    ) -> _Side:
        taken = _rows(batch, rows)
        whole: dict[Path, pa.Array] = {(name,): taken.column(name) for name in columns}
        named = columns if has_identity else ()
        parts = {path: part for name in named for path, part in identity_parts(name, taken.column(name))}
        values = whole | parts
        hashes = {path: _hashes(array) for path, array in values.items()}
        return cls(rows, groups[rows], values, hashes, list(whole), list(parts))

    def is_constant(self, path: Path) -> bool:
        """Whether all rows of each key have the same value."""
        hashes = self.hashes[path]
        of_keys = np.zeros(int(self.keys.max(initial=0)) + 1, dtype=np.uint64)
        of_keys[self.keys] = hashes
        return bool(np.all(of_keys[self.keys] == hashes))

    def without(self, paired: Numbers) -> _Side:
        if not len(paired):
            return self
        kept = np.delete(np.arange(len(self.rows)), paired)
        return replace(
            self,
            rows=self.rows[kept],
            keys=self.keys[kept],
            values={path: self.values[path].take(pa.array(kept)) for path in self.identity},
            hashes={path: self.hashes[path][kept] for path in self.identity},
        )


@dataclass(frozen=True)
class _Candidates:
    """Rows of both batches that may still be paired."""

    new: _Side
    old: _Side

    def pair(self, match: Match, paths: Sequence[Path]) -> Pair:
        """Pairs rows of the same key with equal values there, in order; returns which rows it paired."""
        if not paths or not len(self.new.rows) or not len(self.old.rows):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        hashes = [_combined([side.hashes[path] for path in paths]) for side in (self.new, self.old)]
        new, old = _equal_hashes((self.new.keys, self.old.keys), (hashes[0], hashes[1]))
        is_same = np.ones(len(new), dtype=np.bool_)
        for path in paths:
            is_same &= same_values(_taken(self.new.values[path], new), _taken(self.old.values[path], old))
        match.old[self.new.rows[new[is_same]]] = self.old.rows[old[is_same]]
        return new[is_same], old[is_same]

    def without(self, paired: Pair) -> _Candidates:
        return _Candidates(self.new.without(paired[0]), self.old.without(paired[1]))


def _candidates(
    new: pa.RecordBatch,
    old: pa.RecordBatch,
    groups: Pair,
    rows: Pair,
    columns: Sequence[str],
    *,
    has_identity: bool,
) -> _Candidates:
    return _Candidates(
        _Side.of(new, groups[0], rows[0], columns, has_identity=has_identity),
        _Side.of(old, groups[1], rows[1], columns, has_identity=has_identity),
    )


def _match_moved(match: Match, candidates: _Candidates) -> None:
    """Pairs rows that are at another position, or whose numbers say that they are."""
    rest = candidates.without(candidates.pair(match, candidates.new.columns))
    # What is equal in all rows of a key, such as the title of the document, does not tell its chunks apart.
    telling = [p for p in rest.new.identity if not (rest.new.is_constant(p) and rest.old.is_constant(p))]
    paired = rest.pair(match, telling)
    main = find_main_text({path: (rest.new.values[path], rest.old.values[path]) for path in telling})
    if main is not None and telling != [main]:
        rest.without(paired).pair(match, [main])


def _equal_hashes(keys: Pair, hashes: tuple[Hashes, Hashes]) -> Pair:
    """Rows of both sides with equal keys and hashes: the first with the first, the second with the second."""
    # Rows with equal values have equal hashes, so that these differ after the mixing if the keys do.
    new, old = (part ^ (key.view(np.uint64) * FACTOR) for key, part in zip(keys, hashes, strict=True))
    new_order, old_order = np.argsort(new, kind="stable"), np.argsort(old, kind="stable")
    new, old = new[new_order], old[old_order]
    numbers = np.arange(len(new)) - np.searchsorted(new, new, side="left")
    partners = np.searchsorted(old, new, side="left") + numbers
    is_paired = partners < np.searchsorted(old, new, side="right")
    aligned = np.full(len(new), NO_MATCH)
    aligned[new_order[is_paired]] = old_order[partners[is_paired]]
    paired = np.flatnonzero(aligned != NO_MATCH)
    return paired, aligned[paired]


def _match_positions(match: Match, groups: Pair, aligned: Numbers) -> None:
    """Pairs rows at the same position, whatever their content: the chunk there was edited."""
    new_unmatched, old_unmatched = _unmatched(groups, match)
    is_free = np.zeros(len(groups[1]), dtype=np.bool_)
    is_free[old_unmatched] = True
    candidates = aligned[new_unmatched]
    is_usable = (candidates != NO_MATCH) & is_free[candidates]
    match.old[new_unmatched[is_usable]] = candidates[is_usable]


def _match_single_rows(match: Match, groups: Pair) -> None:
    new_single, old_single = _single_rows(groups, *_unmatched(groups, match))
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
) -> Pair:
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


def _in_order(groups: Pair, places: Pair, rows: Pair) -> Pair:
    """The rows by key and position, so that the same texts of a key are paired in the order they stand in."""
    width = int(max(places[0].max(initial=0), places[1].max(initial=0))) + 1
    ordered = [
        _sorted_by(number[of] * width + place[of], of)
        for number, place, of in zip(groups, places, rows, strict=True)
    ]
    return ordered[0], ordered[1]


def _sorted_by(values: Numbers, rows: Numbers) -> Numbers:
    return rows if np.all(values[1:] >= values[:-1]) else rows[np.argsort(values, kind="stable")]


def _unmatched(groups: Pair, match: Match) -> Pair:
    """Rows without a match, of keys that have such rows on both sides."""
    is_free = np.ones(len(groups[1]), dtype=np.bool_)
    is_free[match.old[match.old != NO_MATCH]] = False
    new_unmatched, old_unmatched = np.flatnonzero(match.old == NO_MATCH), np.flatnonzero(is_free)
    new_counts, old_counts = _counts(groups, new_unmatched, old_unmatched)
    has_both = (new_counts > 0) & (old_counts > 0)
    new_candidates = new_unmatched[has_both[groups[0][new_unmatched]]]
    old_candidates = old_unmatched[has_both[groups[1][old_unmatched]]]
    return new_candidates, old_candidates


def _single_rows(groups: Pair, new_rows: Numbers, old_rows: Numbers) -> Pair:
    """Rows that are the only ones of their key, on both sides."""
    new_counts, old_counts = _counts(groups, new_rows, old_rows)
    is_single = (new_counts == 1) & (old_counts == 1)
    return new_rows[is_single[groups[0][new_rows]]], old_rows[is_single[groups[1][old_rows]]]


def _without_single_rows(groups: Pair, new_rows: Numbers, old_rows: Numbers) -> Pair:
    """Leaves out rows that are the only ones of their key: they match whatever their content."""
    new_single, old_single = _single_rows(groups, new_rows, old_rows)
    return (
        np.setdiff1d(new_rows, new_single, assume_unique=True),
        np.setdiff1d(old_rows, old_single, assume_unique=True),
    )


def _counts(groups: Pair, new_rows: Numbers, old_rows: Numbers) -> Pair:
    count = int(max(groups[0].max(initial=0), groups[1].max(initial=0))) + 1
    return (
        np.bincount(groups[0][new_rows], minlength=count),
        np.bincount(groups[1][old_rows], minlength=count),
    )


def _numbers(batch: pa.RecordBatch, column: str) -> Numbers:
    numbers: Numbers = batch.column(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _rows(batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
    return batch if _is_all(rows, len(batch)) else batch.take(pa.array(rows))


def _taken(column: pa.Array, rows: Numbers) -> pa.Array:
    return column if _is_all(rows, len(column)) else column.take(pa.array(rows))


def _is_all(rows: Numbers, count: int) -> bool:
    return len(rows) == count and bool(np.all(rows == np.arange(count)))


def row_hashes(batch: pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """One hash per row; equal rows have equal hashes."""
    return _combined([np.full(len(batch), SEED), *(_hashes(batch.column(name)) for name in columns)])


def _combined(hashes: Sequence[Hashes]) -> Hashes:
    combined, *more = hashes
    for part in more:
        combined = combined * FACTOR + part
        combined ^= combined >> SHIFT
    return combined


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
