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

import json
import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset
from lance.file import LanceFileReader
from pyarrow import fs
from pyroaring import BitMap64

from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import CheckpointRef, ColumnFile
from tidemill.jobs.model.coverage import Changes, Watched, is_ascending, member_mask, row_set
from tidemill.jobs.model.failures import RowFailure, is_on_row_of
from tidemill.lance.fingerprints import input_hashes, merge_segments
from tidemill.lance.fragments import get_fragment
from tidemill.lance.freshness import NO_FIELD
from tidemill.storage.warehouse import open_location

if TYPE_CHECKING:
    # Spark tasks import this module, and what commits to tables takes them a second and 50 MB to load.
    from tidemill.lance.datasets import LanceTableData
    from tidemill.lance.sources import LanceSourceTables


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
        except GONE:
            return None
        ids = {field.name(): field.id() for field in dataset.lance_schema.fields()}
        names = [fields.get(ids.get(name, NO_FIELD)) for name in Watched(watched.inputs).columns]
        return tuple(name for name in names if name is not None) if all(names) else None

    def _rows_of_same_inputs(
        self, checkpoint: Checkpoint, table: Table, version: int, watched: Watched
    ) -> BitMap64:
        """The rows whose inputs have the same fingerprints; none if no fingerprints were kept."""
        file = _open_file(checkpoint.path)
        dataset = self._data.open(table, version)
        # Without stable row ids the rows may be others by now.
        is_known = INPUTS in file.table.schema.names and watched.expressions and dataset.has_stable_row_ids
        if not is_known:
            return BitMap64()
        found, hashes = input_hashes(dataset, file.row_ids, watched.expressions)
        positions = _positions(file.row_ids, found)
        is_same = file.table[INPUTS].to_numpy()[positions] == hashes
        return row_set(found[is_same])

    def keep(self, location: str, table: Table, version: int, file: ColumnFile) -> None:
        try:
            dataset = self._data.open(table, version)
        except GONE:
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
            inputs = hashes[_positions(found, kept_ids)]
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


VALUES: Final = ".arrow"
# The column of fingerprints of what the values were computed from.
INPUTS: Final = "inputs"
FINISHED: Final = ".files"
OPEN_FILES: Final = 4


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint found in storage.

    Its value for a row is valid at another version if the row's inputs did not change in between.
    """

    path: str
    version: int
    rows: BitMap64


def write_checkpoint(
    location: str,
    version: int,
    row_ids: npt.NDArray[np.uint64],
    values: pa.Array,
    failures: Iterable[RowFailure] = (),
    inputs: npt.NDArray[np.uint64] | None = None,
) -> str:
    """Writes a checkpoint atomically; rows that failed have a null value and their error.

    With `inputs`, fingerprints of what each row's value was computed from, values are found by content.
    """
    batch = _checkpoint_batch(row_ids, values, failures, inputs)
    name = f"v{version}-{uuid4()}{VALUES}"
    with _new_file(location, name) as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return f"{location}/{name}"


def _checkpoint_batch(
    row_ids: npt.NDArray[np.uint64],
    values: pa.Array,
    failures: Iterable[RowFailure],
    inputs: npt.NDArray[np.uint64] | None,
) -> pa.RecordBatch:
    failed = {failure.row_id: json.dumps(asdict(failure)) for failure in failures}
    errors = pa.nulls(len(row_ids))
    if failed:
        errors = pa.array([failed.get(int(row_id)) for row_id in row_ids], pa.string())
    columns = {"row_id": pa.array(row_ids, pa.uint64()), "value": values, "error": errors}
    if inputs is not None:
        columns[INPUTS] = pa.array(inputs, pa.uint64())
    return pa.record_batch(columns)


class CheckpointWriter:
    """A checkpoint of one result that is written part by part, because it may not fit into memory.

    Nobody sees it before `finish`.
    """

    def __init__(self, location: str, version: int, row_id: int, inputs: int) -> None:
        self.inputs = inputs
        self._row_id = row_id
        self._filesystem, directory = open_location(location)
        self._filesystem.create_dir(directory)
        self._path = f"{directory}/v{version}-{uuid4()}{VALUES}"
        self._sink = self._filesystem.open_output_stream(f"{self._path}.tmp")
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def write(self, values: pa.Array) -> None:
        """Adds parts of the result, in order."""
        row_ids = np.full(len(values), self._row_id, dtype=np.uint64)
        batch = _checkpoint_batch(row_ids, values, (), np.full(len(values), self.inputs, dtype=np.uint64))
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._sink, batch.schema)
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._close()
        self._filesystem.move(f"{self._path}.tmp", self._path)

    def abandon(self) -> None:
        self._close()
        self._filesystem.delete_file(f"{self._path}.tmp")

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._sink.close()


def write_finished(location: str, version: int, files: Sequence[ColumnFile]) -> None:
    """Records complete column files, so that a resumed job can reuse their values."""
    with _new_file(location, f"v{version}-{uuid4()}{FINISHED}") as sink:
        sink.write(pickle.dumps(list(files)))


def read_finished(location: str) -> list[tuple[str, int, list[ColumnFile]]]:
    """The recorded lists of column files, each with its path and the version the files were computed at."""
    return [(path, version_of(path), pickle.loads(_read_all(path))) for path in _paths(location, FINISHED)]


def list_checkpoints(location: str) -> Sequence[Checkpoint]:
    return [
        Checkpoint(path, version_of(path), row_set(_open_file(path).row_ids))
        for path in _paths(location, VALUES)
    ]


def find_checkpoints(location: str, known: Iterable[CheckpointRef] = ()) -> list[CheckpointRef]:
    """All checkpoints whose values are found by content, without opening those that are known."""
    refs = {ref.path: ref for ref in known}
    for path in _paths(location, VALUES):
        if path not in refs:
            refs[path] = CheckpointRef(path, row_set(_open_file(path).row_ids))
    return list(refs.values())


def remove_file(path: str) -> None:
    filesystem, name = open_location(path)
    filesystem.delete_file(name)


def remove_folder(location: str) -> None:
    filesystem, directory = open_location(location)
    if filesystem.get_file_info(directory).type is not fs.FileType.NotFound:
        filesystem.delete_dir(directory)


@dataclass(frozen=True)
class SavedResult:
    """One result as it was checkpointed: its parts in order, or the failure that there was instead."""

    parts: Iterable[pa.Array]
    failure: RowFailure | None = None


@dataclass(frozen=True)
class SavedValues:
    """Values of some of the rows that were asked for, at which positions these are among them.

    `inputs` are fingerprints of what they were computed from, zero where none was kept. `values` is None if
    there are none, because then their type is not known.
    """

    positions: npt.NDArray[np.int64]
    values: pa.Array | None
    failures: tuple[RowFailure, ...]
    inputs: npt.NDArray[np.uint64]


def _joined(found: Sequence[SavedValues]) -> SavedValues:
    if not found:
        return SavedValues(np.empty(0, dtype=np.int64), None, (), np.empty(0, dtype=np.uint64))
    return SavedValues(
        np.concatenate([each.positions for each in found]),
        pa.concat_arrays([each.values for each in found]),
        tuple(failure for each in found for failure in each.failures),
        np.concatenate([each.inputs for each in found]),
    )


class CheckpointValues:
    """Looks up checkpointed values by row id; a file is read when one of its rows is requested.

    Rows on which the function failed are only used by a job that would skip them as well.
    """

    def __init__(self, refs: Iterable[CheckpointRef], *, with_failures: bool = False) -> None:
        self._refs = tuple(refs)
        self._with_failures = with_failures

    def find(
        self, row_ids: npt.NDArray[np.uint64], inputs: npt.NDArray[np.uint64] | None = None
    ) -> SavedValues:
        """What is known of the rows.

        With `inputs`, fingerprints of what the rows hold now, only values computed from the same are found.
        """
        remaining = row_set(row_ids) if self._refs else BitMap64()
        found: list[SavedValues] = []
        for ref in self._refs:
            matching = ref.rows & remaining
            if not matching:
                continue
            table = _narrowed(_open_file(ref.path), matching, with_failures=self._with_failures)
            if inputs is not None:
                table = _of_inputs(table, row_ids, inputs)
            ids = table["row_id"].to_numpy()
            remaining -= row_set(ids)
            kept = table[INPUTS].to_numpy() if INPUTS in table.schema.names else np.zeros_like(ids)
            found.append(
                SavedValues(_positions(row_ids, ids), _single(table["value"]), _failures(table), kept)
            )
        return found[0] if len(found) == 1 else _joined(found)

    def has(self, row_id: int) -> bool:
        """Whether there is a value for the row, whatever its inputs were."""
        return any(row_id in ref.rows for ref in self._refs)

    def find_result(self, row_id: int, inputs: int) -> SavedResult | None:
        """The result of one row that may be large: its parts are read one after another."""
        for ref in self._refs:
            if row_id not in ref.rows:
                continue
            file = _open_file(ref.path)
            table = file.table
            is_wanted = (file.row_ids == row_id) & (table[INPUTS].to_numpy() == inputs)
            if not is_wanted.any():
                continue
            failures = _failures(table.select(["error"]).filter(pa.array(is_wanted)))
            if not failures:
                return SavedResult(_parts(table, is_wanted))
            if self._with_failures:
                return SavedResult((), failures[0])
        return None


def _parts(table: pa.Table, is_wanted: npt.NDArray[np.bool_]) -> Iterator[pa.Array]:
    start = 0
    for batch in table.select(["value"]).to_batches():
        end = start + len(batch)
        if is_wanted[start:end].any():
            yield batch.column(0).filter(pa.array(is_wanted[start:end]))
        start = end


def _narrowed(file: _CheckpointFile, rows: BitMap64, *, with_failures: bool) -> pa.Table:
    """`rows` are among those of the file."""
    table, ids = file.table, file.row_ids
    if file.is_ascending:
        start, end = np.searchsorted(ids, np.array([rows.min(), rows.max() + 1], dtype=np.uint64))
        table, ids = table.slice(start, end - start), ids[start:end]
    wanted = np.ones(len(ids), dtype=np.bool_)
    if not (file.is_ascending and len(ids) == len(rows)):
        wanted = np.isin(ids, np.array(rows.to_array(), dtype=np.uint64))
    if not with_failures and table["error"].null_count < table.num_rows:
        wanted &= table["error"].is_null().to_numpy()
    return _filtered(table, wanted)


def _filtered(table: pa.Table, wanted: npt.NDArray[np.bool_]) -> pa.Table:
    return table if wanted.all() else table.take(pa.array(np.flatnonzero(wanted)))


def _of_inputs(table: pa.Table, row_ids: npt.NDArray[np.uint64], inputs: npt.NDArray[np.uint64]) -> pa.Table:
    is_same = table[INPUTS].to_numpy() == inputs[_positions(row_ids, table["row_id"].to_numpy())]
    return _filtered(table, is_same)


def _positions(row_ids: npt.NDArray[np.uint64], wanted_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Where the wanted ids stand, all of which are there."""
    if np.array_equal(row_ids, wanted_ids):
        return np.arange(len(row_ids))
    if is_ascending(row_ids):
        return np.searchsorted(row_ids, wanted_ids)
    order = np.argsort(row_ids, kind="stable")
    return order[np.searchsorted(row_ids, wanted_ids, sorter=order)]


def _single(column: pa.ChunkedArray) -> pa.Array:
    """Without a copy in the common case of one chunk."""
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])
    )


def _failures(table: pa.Table) -> tuple[RowFailure, ...]:
    if table["error"].null_count == table.num_rows:
        return ()
    return tuple(RowFailure(**json.loads(text)) for text in table["error"].drop_null().to_pylist())


def version_of(path: str) -> int:
    return int(path.rpartition("/")[2].split("-")[0][1:])


@dataclass(frozen=True)
class _CheckpointFile:
    table: pa.Table
    row_ids: npt.NDArray[np.uint64]
    is_ascending: bool


@lru_cache(maxsize=OPEN_FILES)
def _open_file(path: str) -> _CheckpointFile:
    """Memory-maps local files, so that only the requested values are loaded."""
    filesystem, name = open_location(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        source = pa.memory_map(name)
    else:
        source = filesystem.open_input_file(name)
    table = pa.ipc.open_file(source).read_all()
    row_ids = _single(table["row_id"]).to_numpy()
    return _CheckpointFile(table, row_ids, is_ascending(row_ids))


def _read_all(path: str) -> bytes:
    filesystem, name = open_location(path)
    with filesystem.open_input_file(name) as source:
        content: bytes = source.read()
    return content


@contextmanager
def _new_file(location: str, name: str) -> Iterator[pa.NativeFile]:
    """A file that nobody sees before it is complete."""
    filesystem, directory = open_location(location)
    filesystem.create_dir(directory)
    staged = f"{directory}/{name}.tmp"
    with filesystem.open_output_stream(staged) as sink:
        yield sink
    filesystem.move(staged, f"{directory}/{name}")


def _paths(location: str, suffix: str) -> list[str]:
    filesystem, directory = open_location(location)
    files = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return sorted(f"{location}/{info.base_name}" for info in files if info.base_name.endswith(suffix))
