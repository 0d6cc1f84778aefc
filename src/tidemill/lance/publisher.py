"""Publishes the results of jobs: commits column files and exchanges rows of views.

A job computes against one version while other writers keep committing. Publishing each part of its results is
a loop: open the newest version, check which results still fit, build a Lance transaction for it and try to
commit. If another writer comes first, everything is rebuilt after a backoff. Lance's own rebase is not used
(`max_retries=0`): the prepared operation contains fragment metadata of the old version, and replaying it
would bring back rows that were deleted in the meantime.

A column file fits if its fragment still holds the data files it was computed from. Files or rows that no
longer fit are returned as orphans, which the job checkpoints to reuse their values in a later part. The
commit goes through `CommittingNamespace`, so the bookkeeping in `on_commit` becomes visible together with the
version.

Other writers may commit all the time, and an attempt wins only if nobody commits while it is built. So what
an attempt has read of a fragment is kept for the next one (`_LiveRows`), which reads only what has changed.
Column files that could not be committed after all attempts are returned as orphans as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.fragment import DataFile, FragmentMetadata
from pyroaring import BitMap, BitMap64

from tidemill.catalog.errors import ConcurrentModification, TableColumnNotFound
from tidemill.catalog.model.tables import Table
from tidemill.jobs.model.columns import ColumnFile, FileMarks, Published
from tidemill.jobs.model.coverage import Watched, row_set
from tidemill.jobs.model.views import WrittenRows
from tidemill.jobs.ports import TransactionEffect
from tidemill.jobs.stage_errors import ViewRowsChanged
from tidemill.lance.changes import field_ids, files_of, find_changes
from tidemill.lance.datasets import CommittingNamespace, LanceTableData, backoff, is_retryable, translated
from tidemill.lance.fragments import deletions_of, with_deletions
from tidemill.lance.freshness import WatchedFields, watched_fields
from tidemill.lance.versions.commit import VersionOperations
from tidemill.lance.view_edits import has_edits

ATTEMPTS: Final = 60
# A row's address combines the id of its fragment and its offset there.
FRAGMENT_SHIFT: Final = np.uint64(32)
OFFSET_MASK: Final = np.uint64(0xFFFFFFFF)


class LancePublisher:
    """Rebuilds every attempt on the latest version; stale fragment metadata would restore deleted rows."""

    def __init__(self, versions: VersionOperations, data: LanceTableData) -> None:
        self._versions = versions
        self._data = data

    def replace_column(
        self,
        table: Table,
        watched: Watched,
        files: Sequence[ColumnFile],
        on_commit: Callable[[Sequence[ColumnFile]], TransactionEffect],
    ) -> Published:
        live = _LiveRows()
        for attempt in range(ATTEMPTS):
            dataset = self._data.open(table, None)
            for column in watched.outputs:
                if column not in dataset.schema.names:
                    raise TableColumnNotFound(table.ident, column, tuple(dataset.schema.names))
            fitting, orphans = _split_by_fit(dataset, watched, files, live)
            if not fitting:
                return Published(None, (), orphans)
            operation = LanceOperation.DataReplacement(
                [
                    LanceOperation.DataReplacementGroup(f.fragment_id, DataFile(**f.description))
                    for f in fitting
                ]
            )
            version = self._try_commit(table, dataset, operation, on_commit(fitting))
            if version is not None:
                return Published(version, fitting, orphans)
            backoff(attempt)
        return Published(None, (), tuple(files))

    def update_view(
        self,
        view: Table,
        base: int,
        columns: Sequence[str],
        written: WrittenRows,
        removed: BitMap64,
        on_commit: TransactionEffect,
    ) -> int:
        new = [FragmentMetadata.from_json(text) for text in written.fragments]
        live = _LiveRows()
        for attempt in range(ATTEMPTS):
            dataset = self._data.open(view, None)
            _check_untouched(view, dataset, base, columns, written)
            updated, emptied = _remove_rows(dataset, view.data_location, removed, live)
            operation = LanceOperation.Update(
                removed_fragment_ids=emptied, updated_fragments=updated, new_fragments=new
            )
            version = self._try_commit(view, dataset, operation, on_commit)
            if version is not None:
                return version
            backoff(attempt)
        raise _too_busy(view)

    def _try_commit(
        self,
        table: Table,
        dataset: LanceDataset,
        operation: LanceOperation.BaseOperation,
        on_commit: TransactionEffect,
    ) -> int | None:
        """Tries once; returns None if another writer came first and the operation must be rebuilt."""
        namespace = CommittingNamespace(self._versions, table, on_commit)
        with translated(table.ident, namespace):
            try:
                committed = LanceDataset.commit(
                    table.data_location,
                    Transaction(dataset.version, operation),
                    max_retries=0,
                    namespace_client=namespace,
                    table_id=namespace.table_id,
                    namespace_client_managed_versioning=True,
                )
            except (OSError, ValueError) as error:
                is_lost = namespace.lost_race or is_retryable(error) or _is_race(error)
                if namespace.failure is None and is_lost:
                    return None
                raise
        return int(committed.version)


class _LiveRows:
    """The ids and addresses of the live rows of fragments; read once for each state of a fragment."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]] = {}

    def of(
        self, dataset: LanceDataset, fragments: Sequence[LanceFragment]
    ) -> list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]]:
        """Row ids and row addresses for each of the fragments."""
        unknown = [fragment for fragment in fragments if _state(fragment) not in self._known]
        if unknown:
            scanner = dataset.scanner(columns=[], with_row_id=True, with_row_address=True, fragments=unknown)
            rows = scanner.to_table()
            ids, addresses = rows["_rowid"].to_numpy(), rows["_rowaddr"].to_numpy()
            places = addresses >> FRAGMENT_SHIFT
            for fragment in unknown:
                is_here = places == fragment.fragment_id
                self._known[_state(fragment)] = ids[is_here], addresses[is_here]
        return [self._known[_state(fragment)] for fragment in fragments]


def _state(fragment: LanceFragment) -> tuple[object, ...]:
    """Equal for two versions of a fragment only if they have the same live rows.

    An overwrite may reuse a fragment id, with other files.
    """
    files = tuple(sorted(file.path for file in fragment.metadata.files))
    return fragment.fragment_id, files, deletions_of(fragment)


def _split_by_fit(
    dataset: LanceDataset, watched: Watched, files: Sequence[ColumnFile], live: _LiveRows
) -> tuple[tuple[ColumnFile, ...], tuple[ColumnFile, ...]]:
    """The files that still fit, restricted to the rows that are still there, and the remainder as orphans."""
    fields = field_ids(dataset, watched.outputs)
    marked = watched_fields(dataset, watched.inputs, watched.outputs)
    every = field_ids(dataset, dataset.schema.names)
    present = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    fitting: list[ColumnFile] = []
    orphans: list[ColumnFile] = []
    for file in files:
        fragment = present.get(file.fragment_id)
        rows = BitMap64()
        if fragment is not None and _fits(file, fragment, fields, every):
            rows = _rows_still_in(dataset, file, fragment, live)
        if fragment is not None and rows:
            fitting.append(replace(file, rows=rows, marks=_marks(file, fragment, marked)))
        if rows != file.rows:
            orphans.append(replace(file, rows=file.rows - rows))
    return tuple(fitting), tuple(orphans)


def _marks(file: ColumnFile, fragment: LanceFragment, fields: WatchedFields) -> FileMarks | None:
    if file.marks is None:
        return None
    is_same = fields.input_mark(fragment) == file.marks.inputs
    published = fields.marks(fragment, file.path) if is_same else ()
    return replace(file.marks, before=fields.marks(fragment), published=published)


def _fits(file: ColumnFile, fragment: LanceFragment, fields: frozenset[int], every: frozenset[int]) -> bool:
    """Whether the fragment still holds the file's inputs and the columns are still the same.

    An overwrite may reuse a fragment id, and a dropped column's name may be given to another column.
    """
    return (
        fields.issuperset(file.description["fields"])
        and fragment.physical_rows == file.physical_rows
        and file.input_files <= files_of(fragment, every)
        and file.carried_files in (None, files_of(fragment, fields))
    )


def _rows_still_in(
    dataset: LanceDataset, file: ColumnFile, fragment: LanceFragment, live: _LiveRows
) -> BitMap64:
    """The file's rows that are still in the fragment: an update moves a row and marks it as deleted here.

    None if a restore has put rows back for which the file has no values.
    """
    if deletions_of(fragment) == file.deletions:
        return file.rows
    [(ids, addresses)] = live.of(dataset, [fragment])
    if not file.gaps.isdisjoint(BitMap((addresses & OFFSET_MASK).astype(np.uint32))):
        return BitMap64()
    return file.rows & row_set(ids)


def _is_race(error: Exception) -> bool:
    """Whether another commit took the version number or removed a fragment of this operation."""
    text = str(error)
    return any(words in text for words in ("concurrent", "Commit conflict", "does not exist", "was removed"))


def _check_untouched(
    view: Table, dataset: LanceDataset, base: int, columns: Sequence[str], written: WrittenRows
) -> None:
    """Changed rows carry over columns written by others, which must not have changed since `base`.

    Nor must the view's own columns have changed in any row: nobody would see it afterwards. Raises
    ViewRowsChanged.
    """
    if dataset.version == base:
        return
    if has_edits(dataset.checkout_version(base), dataset, columns):
        raise ViewRowsChanged(view.ident)
    if not written.moved:
        return
    changes = find_changes(dataset, base, Watched(tuple(dataset.schema.names)))
    if changes.is_total or not changes.updated.isdisjoint(written.moved):
        raise ViewRowsChanged(view.ident)


def _remove_rows(
    dataset: LanceDataset, location: str, removed: BitMap64, live: _LiveRows
) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments with rows marked as deleted, and the ids of fragments that lose all rows."""
    updated: list[FragmentMetadata] = []
    emptied: list[int] = []
    if not removed:
        return updated, emptied
    fragments = dataset.get_fragments()
    members = np.array(removed.to_array(), dtype=np.uint64)
    for fragment, (ids, addresses) in zip(fragments, live.of(dataset, fragments), strict=True):
        is_removed = np.isin(ids, members)
        if not is_removed.any():
            continue
        remaining = (addresses[~is_removed] & OFFSET_MASK).astype(np.uint32)
        if not len(remaining):
            emptied.append(fragment.fragment_id)
            continue
        deleted = BitMap(range(fragment.physical_rows)) - BitMap(remaining)
        updated.append(with_deletions(fragment.metadata, location, dataset.version, deleted))
    return updated, emptied


def _too_busy(table: Table) -> ConcurrentModification:
    return ConcurrentModification(
        f"others have committed to {table.ident} during each of {ATTEMPTS} attempts to publish a refresh; "
        "refresh it again while fewer writers write into the view"
    )
