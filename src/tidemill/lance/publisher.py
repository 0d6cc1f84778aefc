"""Commits of finished work: column files put in place, view rows exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from lance import LanceDataset, LanceOperation, Transaction
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
            kept = _fitting(dataset, columns, files)
            orphans = tuple(f for f in files if f not in kept)
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
                if namespace.failure is None and (is_retryable(error) or _is_race(error)):
                    return None
                raise
        return int(committed.version)


def _fitting(
    dataset: LanceDataset, columns: Sequence[str], files: Sequence[ColumnFile]
) -> tuple[ColumnFile, ...]:
    """The files whose fragment still holds what they were computed from, and whose columns are the same.

    An overwrite may use a fragment's number again, and a column may be dropped and another one get its name.
    """
    fields = field_ids(dataset, columns)
    every = field_ids(dataset, dataset.schema.names)
    present = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    return tuple(
        file
        for file in files
        if fields.issuperset(file.description["fields"])
        and (fragment := present.get(file.fragment_id)) is not None
        and fragment.physical_rows == file.physical_rows
        and file.input_files <= files_of(fragment, every)
    )


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
