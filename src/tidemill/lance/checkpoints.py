"""Checkpoints: values computed but not published yet, safe from crashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader
from pyarrow import fs
from pyroaring import BitMap64

from tidemill.catalog.model.tables import Table
from tidemill.jobs.model.coverage import Changes, member_mask, row_set
from tidemill.jobs.model.stages import CheckpointRef, ColumnFile
from tidemill.lance.column_files import get_fragment
from tidemill.lance.data import LanceTableData
from tidemill.lance.sources import LanceSourceTables
from tidemill.storage.filesystems import open_location

SUFFIX: Final = ".arrow"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file as found in storage.

    Its value for a row still holds at another version if the row's inputs did not change between the two.
    """

    path: str
    version: int
    rows: BitMap64


def write_checkpoint(location: str, version: int, row_ids: npt.NDArray[np.uint64], values: pa.Array) -> str:
    """Writes a file that is there whole or not at all."""
    filesystem, directory = open_location(location)
    filesystem.create_dir(directory)
    name = f"v{version}-{uuid4()}{SUFFIX}"
    staged = f"{directory}/{name}.tmp"
    batch = pa.record_batch([pa.array(row_ids, pa.uint64()), values], names=["row_id", "value"])
    with filesystem.open_output_stream(staged) as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    filesystem.move(staged, f"{directory}/{name}")
    return f"{location}/{name}"


def list_checkpoints(location: str) -> Sequence[Checkpoint]:
    filesystem, directory = open_location(location)
    found = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    paths = [f"{location}/{info.base_name}" for info in found if info.base_name.endswith(SUFFIX)]
    return [Checkpoint(path, _version_of(path), row_set(np.sort(_read(path)[0]))) for path in paths]


def remove_checkpoints(location: str) -> None:
    filesystem, directory = open_location(location)
    if filesystem.get_file_info(directory).type is not fs.FileType.NotFound:
        filesystem.delete_dir(directory)


class CheckpointValues:
    """Values found in checkpoints, by row id."""

    def __init__(self, refs: Iterable[CheckpointRef]) -> None:
        ids: list[npt.NDArray[np.uint64]] = []
        values: list[pa.Array] = []
        for ref in refs:
            row_ids, found = _read(ref.path)
            usable = member_mask(row_ids, ref.rows)
            ids.append(row_ids[usable])
            values.append(found.filter(pa.array(usable)))
        self._ids = np.concatenate(ids) if ids else np.empty(0, dtype=np.uint64)
        self._order = np.argsort(self._ids, kind="stable")
        self._values = pa.concat_arrays(values) if values else None

    def find(self, row_ids: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], pa.Array | None]:
        """Positions in `row_ids` that have a value, and the values."""
        if self._values is None or not len(self._ids):
            return np.empty(0, dtype=np.int64), None
        places = np.searchsorted(self._ids, row_ids, sorter=self._order)
        places = self._order[np.minimum(places, len(self._ids) - 1)]
        positions = np.flatnonzero(self._ids[places] == row_ids)
        return positions, self._values.take(pa.array(places[positions]))


class LanceCheckpoints:
    """Checkpoints of columns, and which of their values still hold."""

    def __init__(self, root: str, data: LanceTableData, sources: LanceSourceTables) -> None:
        self._root = root
        self._data = data
        self._sources = sources

    def location(self, subject_id: UUID, digest: str, scope: str) -> str:
        return f"{self._root}/{subject_id}/{digest.removeprefix('sha256:')[:16]}/{scope}"

    def find_usable(
        self, location: str, table: Table, version: int, inputs: Sequence[str]
    ) -> Sequence[CheckpointRef]:
        refs = []
        changes: dict[int, Changes] = {}
        for checkpoint in list_checkpoints(location):
            if checkpoint.version not in changes:
                first, last = sorted((checkpoint.version, version))
                changes[checkpoint.version] = self._sources.changes(table, first, last, inputs)
            since = changes[checkpoint.version]
            usable = BitMap64() if since.is_total else checkpoint.rows - since.updated
            if usable:
                refs.append(CheckpointRef(checkpoint.path, usable))
        return refs

    def keep(self, location: str, table: Table, version: int, file: ColumnFile) -> None:
        """Saves the values of a column file whose fragment was moved away before it could be published."""
        dataset = self._data.open(table, version)
        values = _as_one(LanceFileReader(f"{table.data_location}/data/{file.path}").read_all().to_table())
        fragment = get_fragment(dataset, file.fragment_id)
        rows = fragment.scanner(columns=[], with_row_id=True, with_row_address=True).to_table()
        row_ids = rows["_rowid"].to_numpy()
        wanted = member_mask(row_ids, file.rows)
        offsets = (rows["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF))[wanted]
        write_checkpoint(location, version, row_ids[wanted], values.take(pa.array(offsets)))

    def clear(self, location: str) -> None:
        remove_checkpoints(location)


def _version_of(path: str) -> int:
    return int(path.rpartition("/")[2].split("-")[0][1:])


def _as_one(columns: pa.Table) -> pa.Array:
    """The column, or several as the fields of one: a checkpoint has one value per row."""
    arrays = [column.combine_chunks() for column in columns.columns]
    return arrays[0] if len(arrays) == 1 else pa.StructArray.from_arrays(arrays, names=columns.column_names)


def _read(path: str) -> tuple[npt.NDArray[np.uint64], pa.Array]:
    filesystem, name = open_location(path)
    with filesystem.open_input_file(name) as source, pa.ipc.open_file(source) as reader:
        table = reader.read_all()
    return table["row_id"].to_numpy(), table["value"].combine_chunks()
