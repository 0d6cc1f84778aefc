"""Tells which results still hold at a version of a table.

Two things decide, and neither needs an earlier version of the table or its log of transactions:

- *Data files never change.* A fragment whose files hold the watched fields in the same way as when its rows
  were last looked at (`fragment_marks`) has the same values, whatever happened to the table in between. So
  only fragments with other marks are looked at, those written by updates, compactions, column rewrites and
  restores, and rows that are in a fragment again from which they had been deleted.
- *Fingerprints* (`tidemill.lance.fingerprints`) tell which of the rows there hold a right result.

A mark contains the ids and types of the watched fields besides the files: if a name stands for another field
than before, no mark is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import LanceFragment
from pyroaring import BitMap64

from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.coverage import Changes, Coverage, Watched, member_mask, row_set, top_level
from tidemill.jobs.model.plans import RowLocations
from tidemill.lance.changes import changed_since, check_gone
from tidemill.lance.fingerprints import Hashes, KnownResults, fingerprints, paired

ROW_ID: Final = "_rowid"
WHOLE_BLOBS: Final = "all_binary"
BATCH_ROWS: Final = 65536
# Below this share of a fragment's rows, taking single rows is faster than a scan.
DENSE: Final = 0.2
NO_FIELD: Final = -1
# A row's address combines the id of its fragment and its offset there.
FRAGMENT_SHIFT: Final = np.uint64(32)


@dataclass(frozen=True)
class WatchedFields:
    """The fields that names stand for in one version: what is read, and what is filled."""

    inputs: frozenset[int]
    outputs: frozenset[int]
    shape: str

    def mark(self, fragment: LanceFragment, new_output: str | None = None) -> int:
        """The mark of a fragment; `new_output` is a file that is about to hold all outputs."""
        files = [(str(file.path), set(file.fields)) for file in fragment.data_files()]
        read = sorted((path, sorted(ids & self.inputs)) for path, ids in files if ids & self.inputs)
        filled = sorted((path, sorted(ids & self.outputs)) for path, ids in files if ids & self.outputs)
        if new_output is not None:
            filled = [(new_output, sorted(self.outputs))]
        return _number(f"{self.shape}|{read}|{filled}")

    def marks(self, fragment: LanceFragment, new_output: str | None = None) -> tuple[int, int]:
        """Without and with what is deleted in the fragment."""
        mark = self.mark(fragment, new_output)
        return mark, with_deletions(mark, fragment)

    def input_mark(self, fragment: LanceFragment) -> int:
        """The mark of the inputs alone."""
        return replace(self, outputs=frozenset()).mark(fragment)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def watched_fields(
    dataset: lance.LanceDataset, inputs: Iterable[str], outputs: Iterable[str]
) -> WatchedFields:
    """Whole columns at the top level: those are written as a whole. Their order counts, not their names."""
    fields = {field.name(): field for field in dataset.lance_schema.fields()}
    read = [name for name in dict.fromkeys(map(top_level, inputs)) if name in fields]
    filled = [name for name in dict.fromkeys(map(top_level, outputs)) if name in fields]
    shape = [(_ids(fields[name]), str(dataset.schema.field(name).type)) for name in (*read, *filled)]
    return WatchedFields(
        inputs=frozenset(i for name in read for i in _ids(fields[name])),
        outputs=frozenset(i for name in filled for i in _ids(fields[name])),
        shape=str(shape),
    )


def field_paths(dataset: lance.LanceDataset) -> dict[str, int]:
    """The ids of all fields, by dotted paths."""

    def walk(field: Any, path: str) -> Iterator[tuple[str, int]]:
        yield path, field.id()
        for child in field.children():
            yield from walk(child, f"{path}.{child.name()}")

    return {path: i for field in dataset.lance_schema.fields() for path, i in walk(field, field.name())}


def trace_field(dataset: lance.LanceDataset, path: str, field_id: int, since: int) -> str:
    """What a field of an earlier version is called now, as far as the versions in between can be read.

    A field keeps its id when it is renamed. If it was dropped, or all was overwritten, the path stands for
    the field that has it from then on.
    """
    for version in range(since + 1, dataset.version + 1):
        try:
            transaction = dataset.read_transaction(version)
            ids = field_paths(dataset.checkout_version(version))
        except (OSError, ValueError, TypeError) as error:
            check_gone(error)
            continue
        paths = {i: name for name, i in ids.items()}
        is_replaced = transaction is not None and isinstance(transaction.operation, LanceOperation.Overwrite)
        if field_id in paths and not is_replaced:
            path = paths[field_id]
        else:
            field_id = ids.get(path, NO_FIELD)
    return path


def _ids(field: Any) -> list[int]:
    return [field.id(), *(i for child in field.children() for i in _ids(child))]


def fragment_marks(dataset: lance.LanceDataset, watched: Watched) -> BitMap64:
    """The marks of all fragments, without and with what is deleted in them."""
    fields = watched_fields(dataset, watched.inputs, watched.outputs)
    marks = BitMap64()
    for fragment in dataset.get_fragments():
        marks.update(fields.marks(fragment))
    return marks


def with_deletions(mark: int, fragment: LanceFragment) -> int:
    """The mark of a fragment with exactly the rows that it has now.

    A row that was deleted here, because an update moved it, comes back with what it held before when the
    table is restored.
    """
    deletions = fragment.metadata.deletion_file
    return _number(f"{mark}|{'' if deletions is None else deletions.json()}")


def check_results(dataset: lance.LanceDataset, coverage: Coverage, watched: Watched) -> Changes:
    """What became of a function's results: covered rows that do not hold one, and others that do."""
    files = fragment_marks(dataset, watched)
    if not coverage.segments:
        return Changes(files=files)
    versions = (coverage.watermark, coverage.published)
    unknown = list(_unknown_rows(dataset, coverage, watched, versions))
    if not unknown:
        return Changes(files=files)
    if any(top_level(name) not in dataset.schema.names for name in (*watched.inputs, *watched.outputs)):
        return Changes(coverage.rows, files=files)
    known = KnownResults(coverage.segments)
    updated, right = BitMap64(), BitMap64()
    held = coverage.held | _filled_rows(dataset, [fragment for fragment, _ in unknown], watched)
    for fragment, rows in unknown:
        candidates = rows & held
        for row_ids, hashes in _fingerprints(dataset, fragment, candidates, watched):
            is_known = known.match(hashes)
            right |= row_set(row_ids[is_known])
        updated |= rows & coverage.rows
    return Changes(updated - right, regained=right, files=files)


def changed_rows(dataset: lance.LanceDataset, coverage: Coverage, columns: Sequence[str]) -> Changes:
    """Which of the covered rows of a source have other values in these columns than at the watermark.

    Without that version, every row in a fragment that was written since counts as changed.
    """
    # By name, because a mark tells fields apart by their order.
    watched = Watched(tuple(sorted(columns)))
    candidates = BitMap64()
    for _, rows in _unknown_rows(dataset, coverage, watched, (coverage.watermark,)):
        candidates |= rows & coverage.rows
    changed = changed_since(dataset, coverage.watermark, dataset, candidates, watched)
    return Changes(changed, files=fragment_marks(dataset, watched))


def _unknown_rows(
    dataset: lance.LanceDataset, coverage: Coverage, watched: Watched, versions: Sequence[int]
) -> Iterator[tuple[LanceFragment, BitMap64]]:
    """Fragments with the rows in them of whose values nothing is known; `versions` are those marks are of."""
    fields = watched_fields(dataset, watched.inputs, watched.outputs)
    marked = [(fragment, *fields.marks(fragment)) for fragment in dataset.get_fragments()]
    unknown = [(fragment, mark) for fragment, mark, exact in marked if exact not in coverage.files]
    rows_now = _rows_of(dataset, [fragment for fragment, _ in unknown])
    for fragment, mark in unknown:
        rows = rows_now.get(fragment.fragment_id, BitMap64())
        if mark in coverage.files:
            rows -= _rows_then(dataset, fragment.fragment_id, mark, watched, versions)
        if rows:
            yield fragment, rows


def _rows_then(
    dataset: lance.LanceDataset, fragment_id: int, mark: int, watched: Watched, versions: Sequence[int]
) -> BitMap64:
    """The rows that a fragment had when it was marked; none if that cannot be told any more."""
    for version in dict.fromkeys(versions):
        try:
            then = dataset.checkout_version(version)
            fragment = then.get_fragment(fragment_id)
        except (OSError, ValueError) as error:
            check_gone(error)
            continue
        fields = watched_fields(then, watched.inputs, watched.outputs)
        if fragment is not None and fields.mark(fragment) == mark:
            return _rows_of(then, [fragment]).get(fragment_id, BitMap64())
    return BitMap64()


def _rows_of(dataset: lance.LanceDataset, fragments: Sequence[LanceFragment]) -> dict[int, BitMap64]:
    """The ids of the live rows of each fragment that has any."""
    if not fragments:
        return {}
    scanner = dataset.scanner(columns=[], with_row_id=True, with_row_address=True, fragments=list(fragments))
    rows = scanner.to_table()
    places = rows["_rowaddr"].to_numpy() >> FRAGMENT_SHIFT
    return RowLocations(rows[ROW_ID].to_numpy(), places).by_fragment()


def _filled_rows(
    dataset: lance.LanceDataset, fragments: Sequence[LanceFragment], watched: Watched
) -> BitMap64:
    """Rows that hold anything in the outputs. Whether a null is a result, only coverage can tell."""
    outputs = watched_fields(dataset, (), watched.outputs).outputs
    filled = [f for f in fragments if any(outputs & set(file.fields) for file in f.data_files())]
    if not filled:
        return BitMap64()
    condition = " OR ".join(f"{quoted(name)} IS NOT NULL" for name in watched.outputs)
    rows = dataset.scanner(columns=[], filter=condition, with_row_id=True, fragments=filled).to_table()
    return row_set(rows[ROW_ID].to_numpy())


def _fingerprints(
    dataset: lance.LanceDataset, fragment: LanceFragment, rows: BitMap64, watched: Watched
) -> Iterator[tuple[npt.NDArray[np.uint64], Hashes]]:
    """Row ids and fingerprints of what these rows hold, batch by batch."""
    if not rows:
        return
    columns = {f"i{number}": text for number, text in enumerate(watched.expressions)}
    columns |= {f"o{number}": quoted(name) for number, name in enumerate(watched.outputs)}
    live = fragment.physical_rows - fragment.num_deletions
    if len(rows) >= DENSE * max(live, 1):
        scanner = dataset.scanner(
            columns=columns,
            with_row_id=True,
            fragments=[fragment],
            batch_size=BATCH_ROWS,
            blob_handling=WHOLE_BLOBS,
        )
        for batch in scanner.to_batches():
            chosen = batch.filter(pa.array(member_mask(batch[ROW_ID].to_numpy(), rows)))
            yield chosen[ROW_ID].to_numpy(), _result_hashes(chosen, watched)
        return
    ids = np.array(rows.to_array(), dtype=np.uint64)
    for start in range(0, len(ids), BATCH_ROWS):
        taken = dataset._take_rows(
            ids[start : start + BATCH_ROWS], columns={**columns, ROW_ID: ROW_ID}, blob_handling=WHOLE_BLOBS
        )
        yield taken[ROW_ID].to_numpy(), _result_hashes(taken, watched)


def _result_hashes(rows: pa.RecordBatch | pa.Table, watched: Watched) -> Hashes:
    given = fingerprints([rows.column(f"i{number}") for number in range(len(watched.expressions))])
    return paired(given, fingerprints([rows.column(f"o{number}") for number in range(len(watched.outputs))]))
