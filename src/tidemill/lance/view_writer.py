"""Writes the rows of a view that differ from its current rows, as fragments that are not committed yet.

Tasks use a `ViewWriter` for every kind of view. They put recomputed rows, all rows of a key together, and the
writer compares them with the rows that the view has for those keys:

- Equal rows are only recorded as kept.
- Changed rows are rewritten with their old row ids, together with the columns that others added (`carried`).
- New rows are written to fragments of their own.

`finish` returns the fragments and row ids. The worker then removes the recomputed rows that were not kept,
including old copies of changed rows, and commits everything at once through `publisher.update_view`; until
then readers see the old rows. In a dry run (`is_dry`) nothing is written: differences are counted and a few
examples collected.

`put_stream` serves table functions, whose output for one key may not fit into memory. It matches rows by
content alone, batch by batch, with an index of row hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.coverage import key_mask, row_set
from tidemill.jobs.model.views import Difference, ViewTarget, WrittenRows
from tidemill.lance.fingerprints import Hashes, SetFingerprint, fingerprints
from tidemill.lance.fragments import FragmentSink, with_row_ids
from tidemill.lance.row_matching import NO_MATCH, Match, match_rows, numbered, row_hashes, same_rows

EXAMPLES: Final = 10
LONGEST_TEXT: Final = 200
ROWS_AT_ONCE: Final = 65536
WHOLE_BLOBS: Final = "all_binary"


@dataclass(frozen=True)
class HeldRows:
    """Rows that a view has now: their ids, and their contents with the columns that others added."""

    row_ids: npt.NDArray[np.uint64]
    rows: pa.RecordBatch


class ViewWriter:
    """Accepts rows with the view's own columns; leaving the block releases threads and buffers.

    `wanted` are the keys of all rows to come, as unsigned numbers, if known in advance.
    """

    def __init__(self, target: ViewTarget, wanted: BitMap64 | None = None) -> None:
        self._target = target
        self._existing = None if target.is_empty else ExistingRows(target, wanted)
        self._open = ExitStack()
        self._new = self._sink(target.output)
        self._changed = self._sink(self._full_schema())
        self._changed_ids: list[npt.NDArray[np.uint64]] = []
        self._kept: list[npt.NDArray[np.uint64]] = []
        self._moved: list[npt.NDArray[np.uint64]] = []
        self._examples: list[Difference] = []
        self._missing = 0
        self._different = 0

    def __enter__(self) -> ViewWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def find(self, keys: npt.NDArray[np.int64]) -> HeldRows | None:
        """What the view holds for these keys, to be passed on to `put`; None for an empty view."""
        return None if self._existing is None else self._existing.of(keys)

    def put(self, batch: pa.RecordBatch, held: HeldRows | None = None) -> None:
        """Adds rows of some keys; a key's rows must all be in one batch.

        `held` is what the view holds for these keys, and perhaps for others, if it has been read already.
        """
        if not len(batch):
            return
        if self._existing is None or self._target.key is None:
            self._add(batch)
            return
        if held is None:
            held = self._existing.of(_keys(batch, self._target.key))
        old = held.rows
        match = match_rows(batch, old.select(batch.schema.names), self._target.key, self._target.place)
        self._apply_match(batch, old, held.row_ids, match)

    def put_stream(self, key: int | None, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds the rows of one key (None: of the whole view) in batches; rows are matched by content."""
        waiting = None if self._existing is None else WaitingRows(self._existing, key)
        for batch in batches:
            if waiting is None or not len(waiting):
                self._add(batch)
                continue
            is_there, row_ids = waiting.take_same(batch)
            self._keep(row_ids)
            self._add(batch.filter(pa.array(~is_there)))

    def keep(self, key: int | None) -> None:
        """Leaves the rows of one key (None: of the whole view) as they are."""
        if self._existing is not None:
            self._keep(self._existing.ids_of(key))

    def held_fingerprint(self, key: int | None) -> Hashes:
        """A hash over the rows that the view has of one key (None: of the whole view)."""
        return SetFingerprint().value if self._existing is None else self._existing.fingerprint(key)

    def finish(self) -> WrittenRows:
        new = [json.dumps(fragment.to_json()) for fragment in self._new.close()]
        changed = self._identified(self._changed.close())
        return WrittenRows(
            fragments=(*new, *changed),
            rows=self._new.rows + self._changed.rows,
            kept=_set(self._kept),
            moved=_set(self._moved),
            differences=tuple(self._examples),
            missing=self._missing,
            different=self._different,
        )

    def _apply_match(
        self, batch: pa.RecordBatch, old: pa.RecordBatch, row_ids: npt.NDArray[np.uint64], match: Match
    ) -> None:
        self._keep(row_ids[match.old[match.is_same]])
        changed = np.flatnonzero((match.old != NO_MATCH) & ~match.is_same)
        new = np.flatnonzero(match.old == NO_MATCH)
        if len(changed):
            self._change(_taken(batch, changed), _taken(old, match.old[changed]), row_ids[match.old[changed]])
        if len(new):
            self._add(_taken(batch, new))

    def _keep(self, row_ids: npt.NDArray[np.uint64]) -> None:
        if len(row_ids):
            self._kept.append(row_ids)

    def _add(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        if self._target.is_dry:
            self._missing += len(batch)
            self._add_example("missing", batch, None)
            return
        self._new.put(batch)

    def _change(self, batch: pa.RecordBatch, old: pa.RecordBatch, row_ids: npt.NDArray[np.uint64]) -> None:
        self._moved.append(row_ids)
        if self._target.is_dry:
            self._different += len(batch)
            self._add_example("different", batch, old)
            return
        self._changed_ids.append(row_ids)
        carried = [old.column(name) for name in self._target.carried]
        self._changed.put(pa.record_batch([*batch.columns, *carried], schema=self._full_schema()))

    def _add_example(self, kind: str, batch: pa.RecordBatch, old: pa.RecordBatch | None) -> None:
        for position in range(min(len(batch), EXAMPLES - len(self._examples))):
            self._examples.append(difference(kind, self._target.key, batch, old, position))

    def _sink(self, schema: pa.Schema) -> FragmentSink:
        sink = FragmentSink(self._target.location, schema, self._target.max_rows_per_fragment)
        self._open.callback(sink.abandon)
        return sink

    def _full_schema(self) -> pa.Schema:
        own = list(self._target.output)
        if self._existing is None:
            return pa.schema(own)
        existing = self._existing.schema
        return pa.schema([*own, *(existing.field(name) for name in self._target.carried)])

    def _identified(self, fragments: Sequence[Any]) -> list[str]:
        """The fragments of changed rows as JSON, with the existing row ids."""
        if not fragments:
            return []
        row_ids = np.concatenate(self._changed_ids)
        ends = np.cumsum([fragment.physical_rows for fragment in fragments])
        return [
            json.dumps(with_row_ids(fragment, row_ids[end - fragment.physical_rows : end]))
            for fragment, end in zip(fragments, ends, strict=True)
        ]


class ExistingRows:
    """The current rows of a view, looked up by key."""

    def __init__(self, target: ViewTarget, wanted: BitMap64 | None) -> None:
        self._target = target
        self._dataset = lance.dataset(target.location, version=target.version)
        self.schema: pa.Schema = self._dataset.schema
        self.own: Sequence[str] = target.output.names
        self._columns = {name: quoted(name) for name in (*self.own, *target.carried)}
        found = self._dataset.scanner(
            columns=[] if target.key is None else [target.key], with_row_id=True
        ).to_table()
        keys = np.zeros(len(found), np.int64) if target.key is None else found[target.key].to_numpy()
        row_ids = found["_rowid"].to_numpy()
        if wanted is not None:
            is_wanted = key_mask(keys.view(np.uint64), wanted)
            keys, row_ids = keys[is_wanted], row_ids[is_wanted]
        order = np.lexsort((row_ids, keys))
        self._keys, self._row_ids = keys[order], row_ids[order]

    def of(self, keys: npt.NDArray[np.int64]) -> HeldRows:
        """The rows with one of these keys."""
        row_ids = self._ids_of(keys)
        return HeldRows(row_ids, self.take(row_ids))

    def ids_of(self, key: int | None) -> npt.NDArray[np.uint64]:
        """The ids of the rows with the key, or of all rows if it is None."""
        return self._row_ids if key is None else self._ids_of(np.array([key], dtype=np.int64))

    def fingerprint(self, key: int | None) -> Hashes:
        """A hash over the rows with the key, or over all if it is None; the key itself does not count."""
        held, row_ids = SetFingerprint(), self.ids_of(key)
        names = [name for name in self.own if name != self._target.key]
        for start in range(0, len(row_ids), ROWS_AT_ONCE):
            rows = self.take(row_ids[start : start + ROWS_AT_ONCE])
            held.add(fingerprints([rows.column(name) for name in names]))
        return held.value

    def _ids_of(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        wanted = np.unique(keys)
        first = np.searchsorted(self._keys, wanted, side="left")
        counts = np.searchsorted(self._keys, wanted, side="right") - first
        starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        found: npt.NDArray[np.uint64] = self._row_ids[starts + np.arange(counts.sum())]
        return found

    def take(self, row_ids: npt.NDArray[np.uint64]) -> pa.RecordBatch:
        """The contents of these rows, in order."""
        schema = pa.schema(
            [*self._target.output, *(self.schema.field(name) for name in self._target.carried)]
        )
        if not len(row_ids):
            return _empty(schema)
        table = self._dataset._take_rows(row_ids, columns=self._columns, blob_handling=WHOLE_BLOBS)
        batch = table.combine_chunks().to_batches()[0]
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        return pa.record_batch(columns, names=schema.names)


class WaitingRows:
    """Current rows that have not been recomputed yet; each is matched at most once."""

    def __init__(self, existing: ExistingRows, key: int | None) -> None:
        self._existing = existing
        row_ids = existing.ids_of(key)
        hashes = [
            row_hashes(existing.take(row_ids[start : start + ROWS_AT_ONCE]), existing.own)
            for start in range(0, len(row_ids), ROWS_AT_ONCE)
        ]
        all_hashes = np.concatenate([np.empty(0, np.uint64), *hashes])
        order = np.argsort(all_hashes, kind="stable")
        self._hashes, self._row_ids = all_hashes[order], row_ids[order]
        self._is_taken = np.zeros(len(row_ids), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._row_ids)

    def take_same(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
        """A mask of the rows that exist already, and their ids; these are not matched again."""
        hashes = row_hashes(batch, self._existing.own)
        free = np.flatnonzero(~self._is_taken)
        first = np.searchsorted(self._hashes[free], hashes, side="left") + numbered(hashes.view(np.int64))
        is_there = first < len(free)
        is_there[is_there] = self._hashes[free[first[is_there]]] == hashes[is_there]
        places = np.flatnonzero(is_there)
        spots = free[first[places]]
        old = self._existing.take(self._row_ids[spots])
        is_same = same_rows(batch, old, places, np.arange(len(places)), self._existing.own)
        is_there[places[~is_same]] = False
        self._is_taken[spots[is_same]] = True
        return is_there, self._row_ids[spots[is_same]]


def difference(
    kind: str, key: str | None, expected: pa.RecordBatch | None, found: pa.RecordBatch | None, position: int
) -> Difference:
    """Describes a row that differs from the expected one, in printable values."""
    should = None if expected is None else expected.slice(position, 1).to_pylist()[0]
    has = None if found is None else found.slice(position, 1).to_pylist()[0]
    row = should or has or {}
    differing = () if should is None or has is None else tuple(n for n in should if should[n] != has.get(n))
    return Difference(kind, None if key is None else row.get(key), differing, _shown(should), _shown(has))


def _shown(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    is_plain = value is None or isinstance(value, bool | int | float)
    return value if is_plain else str(value)[:LONGEST_TEXT]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in schema], names=schema.names)


def _keys(batch: pa.RecordBatch, key: str) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = batch.column(key).to_numpy()
    return found


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Takes the rows in this order; avoids the copy if that changes nothing."""
    return batch if np.array_equal(rows, np.arange(len(batch))) else batch.take(pa.array(rows))


def _set(parts: Sequence[npt.NDArray[np.uint64]]) -> BitMap64:
    return row_set(np.concatenate(parts)) if parts else BitMap64()
