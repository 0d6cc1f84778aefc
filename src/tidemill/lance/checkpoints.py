"""Checkpoints: computed values that are not yet published but survive a crash.

A job that is killed, paused or loses its lease has usually spent most of its time in user functions. While it
runs, tasks write checkpoint files below `<root>/<subject>/<digest>/<scope>`; when a job for the same subject
and function starts, `find_usable` tells which of their values still hold.

A value holds if the row's inputs are the same at the version the new job reads. A checkpoint may be older or
newer than that version, so the check runs `find_changes` between the two and drops the rows that differ.
Where names stand for other fields by now, or the log is gone, fingerprints of the inputs decide.
Using a value without this check would publish results of old inputs as current.

Column files that were finished but never published are converted first: their values become ordinary
checkpoints. `sweep` removes what no job has picked up for some time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.file import LanceFileReader
from pyarrow import fs
from pyroaring import BitMap64

from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import CheckpointRef, ColumnFile
from tidemill.jobs.model.coverage import Changes, Watched, member_mask, row_set
from tidemill.jobs.model.failures import is_on_row_of
from tidemill.lance.changes import check_gone
from tidemill.lance.checkpoint_files import (
    INPUTS,
    Checkpoint,
    CheckpointValues,
    list_checkpoints,
    open_checkpoint,
    positions_of,
    read_finished,
    remove_file,
    remove_folder,
    write_checkpoint,
)
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.fingerprints import input_hashes, merge_segments
from tidemill.lance.fragments import get_fragment
from tidemill.lance.freshness import NO_FIELD
from tidemill.lance.sources import LanceSourceTables
from tidemill.storage.warehouse import open_location

# What opening a version raises that was cleaned up.
GONE: Final = (OSError, ValueError, InvalidInput)


class LanceCheckpoints:
    """Finds, writes and removes the checkpoints of computed columns."""

    def __init__(self, root: str, data: LanceTableData, sources: LanceSourceTables) -> None:
        self._root = root
        self._data = data
        self._sources = sources

    def location(self, subject_id: UUID, digest: str, scope: str) -> str:
        return f"{self._root}/{subject_id}/{digest.removeprefix('sha256:')[:16]}/{scope}"

    def segment_location(self, subject_id: UUID, digest: str) -> str:
        return f"{self._segment_root}/{subject_id}/{digest.removeprefix('sha256:')[:16]}"

    @property
    def _segment_root(self) -> str:
        return f"{self._root.rpartition('/')[0]}/fingerprints"

    def merge_segments(self, location: str, segments: Sequence[str], rows: int) -> tuple[str, ...]:
        return merge_segments(location, segments, rows)

    def find_usable(
        self, location: str, table: Table, version: int, watched: Watched
    ) -> Sequence[CheckpointRef]:
        self._salvage(location, table)
        refs = []
        changes: dict[int, Changes] = {}
        for checkpoint in list_checkpoints(location):
            if checkpoint.version not in changes:
                changes[checkpoint.version] = self._changes(table, checkpoint.version, version, watched)
            since = changes[checkpoint.version]
            if since.is_total:
                usable = self._rows_of_same_inputs(checkpoint, table, version, watched)
            else:
                usable = checkpoint.rows - since.updated
            if usable:
                refs.append(CheckpointRef(checkpoint.path, usable))
        return refs

    def _changes(self, table: Table, saved: int, version: int, watched: Watched) -> Changes:
        """What changed between a checkpoint's version and the one to read, which may be the older one."""
        if saved < version:
            return self._sources.changes(table, saved, version, Watched(watched.inputs))
        if saved == version:
            return Changes()
        names = self._names_at(table, saved, self._data.open(table, version), watched)
        if names is None:
            return Changes(is_total=True, reason="inputs are gone")
        return self._sources.changes(table, version, saved, Watched(names))

    def _names_at(
        self, table: Table, later: int, dataset: LanceDataset, watched: Watched
    ) -> tuple[str, ...] | None:
        """The names that the inputs' fields have at a later version; None if one is gone."""
        try:
            fields = {
                field.id(): field.name() for field in self._data.open(table, later).lance_schema.fields()
            }
        except GONE as error:
            check_gone(error)
            return None
        ids = {field.name(): field.id() for field in dataset.lance_schema.fields()}
        names = [fields.get(ids.get(name, NO_FIELD)) for name in Watched(watched.inputs).columns]
        return tuple(name for name in names if name is not None) if all(names) else None

    def _rows_of_same_inputs(
        self, checkpoint: Checkpoint, table: Table, version: int, watched: Watched
    ) -> BitMap64:
        """The rows whose inputs have the same fingerprints; none if no fingerprints were kept."""
        file = open_checkpoint(checkpoint.path)
        dataset = self._data.open(table, version)
        # Without stable row ids the rows may be others by now.
        is_known = INPUTS in file.table.schema.names and watched.expressions and dataset.has_stable_row_ids
        if not is_known:
            return BitMap64()
        found, hashes = input_hashes(dataset, file.row_ids, watched.expressions)
        positions = positions_of(file.row_ids, found)
        is_same = file.table[INPUTS].to_numpy()[positions] == hashes
        return row_set(found[is_same])

    def keep(self, location: str, table: Table, version: int, file: ColumnFile) -> None:
        try:
            dataset = self._data.open(table, version)
        except GONE as error:
            check_gone(error)
            # Without the version nobody can tell which row a value belongs to.
            return
        values = _as_single_array(
            LanceFileReader(f"{table.data_location}/data/{file.path}").read_all().to_table()
        )
        fragment = get_fragment(dataset, file.fragment_id)
        rows = fragment.scanner(columns=[], with_row_id=True, with_row_address=True).to_table()
        row_ids = rows["_rowid"].to_numpy()
        wanted = member_mask(row_ids, file.rows)
        offsets = (rows["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF))[wanted]
        failures = [failure for failure in file.failures if is_on_row_of(failure, file.rows)]
        kept_ids, inputs = row_ids[wanted], None
        if file.expressions:
            found, hashes = input_hashes(dataset, kept_ids, file.expressions)
            inputs = hashes[positions_of(found, kept_ids)]
        write_checkpoint(location, version, kept_ids, values.take(pa.array(offsets)), failures, inputs)

    def read(self, refs: Sequence[CheckpointRef], rows: BitMap64) -> pa.Table:
        row_ids = np.array(rows.to_array(), dtype=np.uint64)
        found = CheckpointValues(refs, with_failures=True).find(row_ids)
        values = pa.nulls(0) if found.values is None else found.values
        return pa.table({"row_id": pa.array(row_ids[found.positions]), "value": values})

    def clear(self, location: str) -> None:
        remove_folder(location)

    def sweep(self, age: timedelta) -> None:
        """Removes files that are older than `age`."""
        _sweep(self._root, age, frozenset())

    def sweep_segments(self, age: timedelta, used: Collection[str]) -> None:
        """Removes segments that are older than `age` and not among those used."""
        _sweep(self._segment_root, age, frozenset(path.rpartition("/")[2] for path in used))

    def _salvage(self, location: str, table: Table) -> None:
        """Converts column files that were finished but never published into checkpoints."""
        for path, version, files in read_finished(location):
            for file in files:
                self.keep(location, table, version, file)
            remove_file(path)


def _sweep(root: str, age: timedelta, kept: frozenset[str]) -> None:
    filesystem, directory = open_location(root)
    selector = fs.FileSelector(directory, allow_not_found=True, recursive=True)
    oldest = datetime.now(UTC) - age
    for info in filesystem.get_file_info(selector):
        is_old = info.type is fs.FileType.File and info.mtime is not None and info.mtime < oldest
        if is_old and info.base_name not in kept:
            filesystem.delete_file(info.path)


def _as_single_array(columns: pa.Table) -> pa.Array:
    """The single column, or a struct of several: a checkpoint has one value per row."""
    arrays = [column.combine_chunks() for column in columns.columns]
    return arrays[0] if len(arrays) == 1 else pa.StructArray.from_arrays(arrays, names=columns.column_names)
