"""Files of checkpoints: values by row id, what they were computed from, and failures.

Spark tasks write and read them; which values still hold is decided by `checkpoints`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs
from pyroaring import BitMap64

from tidemill.jobs.model.columns import CheckpointRef, ColumnFile
from tidemill.jobs.model.coverage import is_ascending, row_set
from tidemill.jobs.model.failures import RowFailure
from tidemill.storage.warehouse import open_location

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
        Checkpoint(path, version_of(path), row_set(open_checkpoint(path).row_ids))
        for path in _paths(location, VALUES)
    ]


def find_checkpoints(location: str, known: Iterable[CheckpointRef] = ()) -> list[CheckpointRef]:
    """All checkpoints whose values are found by content, without opening those that are known."""
    refs = {ref.path: ref for ref in known}
    for path in _paths(location, VALUES):
        if path not in refs:
            refs[path] = CheckpointRef(path, row_set(open_checkpoint(path).row_ids))
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
            table = _narrowed(open_checkpoint(ref.path), matching, with_failures=self._with_failures)
            if inputs is not None:
                table = _of_inputs(table, row_ids, inputs)
            ids = table["row_id"].to_numpy()
            remaining -= row_set(ids)
            kept = table[INPUTS].to_numpy() if INPUTS in table.schema.names else np.zeros_like(ids)
            found.append(
                SavedValues(positions_of(row_ids, ids), _single(table["value"]), _failures(table), kept)
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
            file = open_checkpoint(ref.path)
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


def _narrowed(file: CheckpointFile, rows: BitMap64, *, with_failures: bool) -> pa.Table:
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
    is_same = table[INPUTS].to_numpy() == inputs[positions_of(row_ids, table["row_id"].to_numpy())]
    return _filtered(table, is_same)


def positions_of(
    row_ids: npt.NDArray[np.uint64], wanted_ids: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
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
class CheckpointFile:
    table: pa.Table
    row_ids: npt.NDArray[np.uint64]
    is_ascending: bool


@lru_cache(maxsize=OPEN_FILES)
def open_checkpoint(path: str) -> CheckpointFile:
    """Memory-maps local files, so that only the requested values are loaded."""
    filesystem, name = open_location(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        source = pa.memory_map(name)
    else:
        source = filesystem.open_input_file(name)
    table = pa.ipc.open_file(source).read_all()
    row_ids = _single(table["row_id"]).to_numpy()
    return CheckpointFile(table, row_ids, is_ascending(row_ids))


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
