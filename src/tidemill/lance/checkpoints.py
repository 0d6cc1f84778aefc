"""Checkpoints: computed values that are not yet published but survive a crash.

A job that is killed, paused or loses its lease has usually spent most of its time in user functions. While it
runs, tasks write checkpoint files below `<root>/<subject>/<digest>/<scope>`; when a job for the same subject
and function starts, `find_usable` tells which of their values still hold.

A value holds if the row's inputs are the same at the version the new job reads. A checkpoint may be older or
newer than that version, so the check runs `find_changes` between the two and drops the rows that differ.
Using a value without this check would publish results of old inputs as current.

Column files that were finished but never published are converted first: their values become ordinary
checkpoints. `sweep` removes what no job has picked up for some time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader
from pyarrow import fs
from pyroaring import BitMap64

from tidemill.catalog.model.tables import Table
from tidemill.jobs.model.coverage import Changes, Watched, member_mask
from tidemill.jobs.model.failures import is_on_row_of
from tidemill.jobs.model.stages import CheckpointRef, ColumnFile
from tidemill.lance.checkpoint_files import (
    CheckpointValues,
    list_checkpoints,
    read_finished,
    remove_file,
    remove_folder,
    write_checkpoint,
)
from tidemill.lance.column_files import get_fragment
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.sources import LanceSourceTables
from tidemill.storage.filesystems import open_location


class LanceCheckpoints:
    """Finds, writes and removes the checkpoints of computed columns."""

    def __init__(self, root: str, data: LanceTableData, sources: LanceSourceTables) -> None:
        self._root = root
        self._data = data
        self._sources = sources

    def location(self, subject_id: UUID, digest: str, scope: str) -> str:
        return f"{self._root}/{subject_id}/{digest.removeprefix('sha256:')[:16]}/{scope}"

    def find_usable(
        self, location: str, table: Table, version: int, inputs: Sequence[str]
    ) -> Sequence[CheckpointRef]:
        self._salvage(location, table)
        refs = []
        changes: dict[int, Changes] = {}
        for checkpoint in list_checkpoints(location):
            if checkpoint.version not in changes:
                first, last = sorted((checkpoint.version, version))
                changes[checkpoint.version] = self._sources.changes(
                    table, first, last, Watched(tuple(inputs))
                )
            since = changes[checkpoint.version]
            usable = BitMap64() if since.is_total else checkpoint.rows - since.updated
            if usable:
                refs.append(CheckpointRef(checkpoint.path, usable))
        return refs

    def keep(self, location: str, table: Table, version: int, file: ColumnFile) -> None:
        dataset = self._data.open(table, version)
        values = _as_single_array(
            LanceFileReader(f"{table.data_location}/data/{file.path}").read_all().to_table()
        )
        fragment = get_fragment(dataset, file.fragment_id)
        rows = fragment.scanner(columns=[], with_row_id=True, with_row_address=True).to_table()
        row_ids = rows["_rowid"].to_numpy()
        wanted = member_mask(row_ids, file.rows)
        offsets = (rows["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF))[wanted]
        failures = [failure for failure in file.failures if is_on_row_of(failure, file.rows)]
        write_checkpoint(location, version, row_ids[wanted], values.take(pa.array(offsets)), failures)

    def read(self, refs: Sequence[CheckpointRef], rows: BitMap64) -> pa.Table:
        row_ids = np.array(rows.to_array(), dtype=np.uint64)
        positions, values, _ = CheckpointValues(refs, with_failures=True).find(row_ids)
        column = pa.nulls(0) if values is None else values
        return pa.table({"row_id": pa.array(row_ids[positions]), "value": column})

    def clear(self, location: str) -> None:
        remove_folder(location)

    def sweep(self, age: timedelta) -> None:
        """Removes files that are older than `age`."""
        filesystem, directory = open_location(self._root)
        selector = fs.FileSelector(directory, allow_not_found=True, recursive=True)
        oldest = datetime.now(UTC) - age
        for info in filesystem.get_file_info(selector):
            if info.type is fs.FileType.File and info.mtime is not None and info.mtime < oldest:
                filesystem.delete_file(info.path)

    def _salvage(self, location: str, table: Table) -> None:
        """Converts column files that were finished but never published into checkpoints."""
        for path, version, files in read_finished(location):
            for file in files:
                self.keep(location, table, version, file)
            remove_file(path)


def _as_single_array(columns: pa.Table) -> pa.Array:
    """The single column, or a struct of several: a checkpoint has one value per row."""
    arrays = [column.combine_chunks() for column in columns.columns]
    return arrays[0] if len(arrays) == 1 else pa.StructArray.from_arrays(arrays, names=columns.column_names)
