"""Commits of finished work: column files put in place, view rows exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.fragment import DataFile, FragmentMetadata
from pyroaring import BitMap64

from tidemill.catalog.errors import ConcurrentModification, TableColumnNotFound
from tidemill.catalog.model.tables import Table
from tidemill.catalog.operations.versions import VersionOperations
from tidemill.catalog.ports import TransactionEffect
from tidemill.jobs.model.coverage import row_set
from tidemill.jobs.model.derived import SOURCE_ROW_ID
from tidemill.jobs.model.stages import ColumnFile, Published, ViewFragments
from tidemill.lance.changes import field_ids, files_of
from tidemill.lance.conflicts import pause
from tidemill.lance.data import LanceTableData, is_retryable, translated
from tidemill.lance.namespace import CommittingNamespace

ATTEMPTS: Final = 60


class LancePublisher:
    """Builds every attempt at the latest version; stale fragment metadata would bring deleted rows back."""

    def __init__(self, versions: VersionOperations, data: LanceTableData) -> None:
        self._versions = versions
        self._data = data

    def replace_column(
        self,
        table: Table,
        columns: Sequence[str],
        files: Sequence[ColumnFile],
        also: Callable[[Sequence[ColumnFile]], TransactionEffect],
    ) -> Published:
        for attempt in range(ATTEMPTS):
            dataset = self._data.open(table, None)
            for column in columns:
                if column not in dataset.schema.names:
                    raise TableColumnNotFound(table.ident, column, tuple(dataset.schema.names))
            kept, orphans = _fitting(dataset, columns, files)
            if not kept:
                return Published(None, (), orphans)
            operation = LanceOperation.DataReplacement(
                [LanceOperation.DataReplacementGroup(f.fragment_id, DataFile(**f.description)) for f in kept]
            )
            version = self._try(table, dataset, operation, also(kept))
            if version is not None:
                return Published(version, kept, orphans)
            pause(attempt)
        raise _too_busy(table)

    def update_view(
        self, view: Table, written: ViewFragments, stale: BitMap64 | None, also: TransactionEffect
    ) -> int:
        new = [FragmentMetadata.from_json(text) for text in written.fragments]
        for attempt in range(ATTEMPTS):
            dataset = self._data.open(view, None)
            updated, removed = _without(dataset, stale)
            operation = LanceOperation.Update(
                removed_fragment_ids=removed, updated_fragments=updated, new_fragments=new
            )
            version = self._try(view, dataset, operation, also)
            if version is not None:
                return version
            pause(attempt)
        raise _too_busy(view)

    def _try(
        self,
        table: Table,
        dataset: LanceDataset,
        operation: LanceOperation.BaseOperation,
        also: TransactionEffect,
    ) -> int | None:
        """One attempt; None when another writer came first and it has to be built anew."""
        namespace = CommittingNamespace(self._versions, table, also)
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


def _fitting(
    dataset: LanceDataset, columns: Sequence[str], files: Sequence[ColumnFile]
) -> tuple[tuple[ColumnFile, ...], tuple[ColumnFile, ...]]:
    """The files that fit their fragment with the rows they serve, and those (or their rows) that do not."""
    fields = field_ids(dataset, columns)
    every = field_ids(dataset, dataset.schema.names)
    present = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    kept: list[ColumnFile] = []
    orphans: list[ColumnFile] = []
    for file in files:
        fragment = present.get(file.fragment_id)
        rows = BitMap64()
        if fragment is not None and _fits(file, fragment, fields, every):
            rows = _rows_there(dataset, file, fragment)
        if rows:
            kept.append(file if rows == file.rows else replace(file, rows=rows))
        if rows != file.rows:
            orphans.append(replace(file, rows=file.rows - rows))
    return tuple(kept), tuple(orphans)


def _fits(file: ColumnFile, fragment: LanceFragment, fields: frozenset[int], every: frozenset[int]) -> bool:
    """Whether the fragment still holds what the file was computed from, and its columns are the same.

    An overwrite may use a fragment's number again, and a column may be dropped and another one get its name.
    """
    return (
        fields.issuperset(file.description["fields"])
        and fragment.physical_rows == file.physical_rows
        and file.input_files <= files_of(fragment, every)
        and file.carried_files in (None, files_of(fragment, fields))
    )


def _rows_there(dataset: LanceDataset, file: ColumnFile, fragment: LanceFragment) -> BitMap64:
    """The file's rows that have not left the fragment: an update moves a row and leaves a deletion behind."""
    if fragment.physical_rows - fragment.num_deletions == file.live_rows:
        return file.rows
    rows = dataset.scanner(columns=[], with_row_id=True, fragments=[fragment]).to_table()
    return file.rows & row_set(np.sort(rows["_rowid"].to_numpy()))


def _is_race(error: Exception) -> bool:
    """Another commit took the number, or took away the fragment we meant to change."""
    text = str(error)
    return any(words in text for words in ("concurrent", "Commit conflict", "does not exist", "was removed"))


def _without(dataset: LanceDataset, stale: BitMap64 | None) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose rows, and those that lose all of them."""
    updated: list[FragmentMetadata] = []
    removed: list[int] = []
    if stale is None:
        return updated, [fragment.fragment_id for fragment in dataset.get_fragments()]
    if not stale:
        return updated, removed
    for fragment in dataset.get_fragments():
        sources = (
            fragment.scanner(columns=[SOURCE_ROW_ID]).to_table()[SOURCE_ROW_ID].to_numpy().view("uint64")
        )
        hit = BitMap64() if not len(sources) else _distinct(sources) & stale
        if not hit:
            continue
        rest = fragment.delete(f"{SOURCE_ROW_ID} IN ({','.join(map(str, hit))})")
        if rest is None:
            removed.append(fragment.fragment_id)
        else:
            updated.append(rest)
    return updated, removed


def _distinct(sources: npt.NDArray[np.uint64]) -> BitMap64:
    return row_set(np.unique(sources))


def _too_busy(table: Table) -> ConcurrentModification:
    return ConcurrentModification(
        f"{table.ident} changed {ATTEMPTS} times while a commit was tried; giving up"
    )
