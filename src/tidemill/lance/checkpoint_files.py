"""Checkpoint files: computed values by row id, and lists of column files that are not yet published."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs
from pyroaring import BitMap64

from tidemill.jobs.model.coverage import row_set
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.model.stages import CheckpointRef, ColumnFile
from tidemill.storage.filesystems import open_location

VALUES: Final = ".arrow"
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
) -> str:
    """Writes a checkpoint atomically; rows that failed have a null value and their error."""
    failed = {failure.row_id: json.dumps(asdict(failure)) for failure in failures}
    errors = pa.nulls(len(row_ids), pa.string())
    if failed:
        errors = pa.array([failed.get(int(row_id)) for row_id in row_ids], pa.string())
    batch = pa.record_batch(
        [pa.array(row_ids, pa.uint64()), values, errors], names=["row_id", "value", "error"]
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _write(location, f"v{version}-{uuid4()}{VALUES}", sink.getvalue())


def write_finished(location: str, version: int, files: Sequence[ColumnFile]) -> None:
    """Records complete column files, so that a resumed job can reuse their values."""
    _write(location, f"v{version}-{uuid4()}{FINISHED}", pickle.dumps(list(files)))


def read_finished(location: str) -> list[tuple[str, int, list[ColumnFile]]]:
    """The recorded lists of column files, each with its path and the version the files were computed at."""
    return [(path, version_of(path), pickle.loads(_read_all(path))) for path in _paths(location, FINISHED)]


def list_checkpoints(location: str) -> Sequence[Checkpoint]:
    return [
        Checkpoint(path, version_of(path), row_set(np.sort(_open_table(path)["row_id"].to_numpy())))
        for path in _paths(location, VALUES)
    ]


def remove_file(path: str) -> None:
    filesystem, name = open_location(path)
    filesystem.delete_file(name)


def remove_folder(location: str) -> None:
    filesystem, directory = open_location(location)
    if filesystem.get_file_info(directory).type is not fs.FileType.NotFound:
        filesystem.delete_dir(directory)


class CheckpointValues:
    """Looks up checkpointed values by row id; a file is read when one of its rows is requested.

    Rows on which the function failed are only used by a job that would skip them as well.
    """

    def __init__(self, refs: Iterable[CheckpointRef], *, with_failures: bool = False) -> None:
        self._refs = tuple(refs)
        self._with_failures = with_failures

    def find(
        self, row_ids: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], pa.Array | None, tuple[RowFailure, ...]]:
        """Positions in `row_ids` that have a value, their values, and the failures among them."""
        remaining = row_set(np.sort(row_ids)) if self._refs else BitMap64()
        positions: list[npt.NDArray[np.int64]] = []
        values: list[pa.Array] = []
        failures: list[RowFailure] = []
        for ref in self._refs:
            matching = ref.rows & remaining
            if not matching:
                continue
            remaining -= matching
            table = _narrowed(_open_table(ref.path), matching, with_failures=self._with_failures)
            positions.append(_positions(row_ids, table["row_id"].to_numpy()))
            values.append(table["value"].combine_chunks())
            failures += _failures(table)
        if not positions:
            return np.empty(0, dtype=np.int64), None, ()
        return np.concatenate(positions), pa.concat_arrays(values), tuple(failures)


def _narrowed(table: pa.Table, rows: BitMap64, *, with_failures: bool) -> pa.Table:
    wanted = np.isin(table["row_id"].to_numpy(), np.array(rows.to_array(), dtype=np.uint64))
    if not with_failures and table["error"].null_count < table.num_rows:
        wanted &= table["error"].is_null().to_numpy()
    return table.take(pa.array(np.flatnonzero(wanted)))


def _positions(row_ids: npt.NDArray[np.uint64], wanted_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    order = np.argsort(row_ids, kind="stable")
    return order[np.searchsorted(row_ids, wanted_ids, sorter=order)]


def _failures(table: pa.Table) -> list[RowFailure]:
    if table["error"].null_count == table.num_rows:
        return []
    return [RowFailure(**json.loads(text)) for text in table["error"].drop_null().to_pylist()]


def version_of(path: str) -> int:
    return int(path.rpartition("/")[2].split("-")[0][1:])


@lru_cache(maxsize=OPEN_FILES)
def _open_table(path: str) -> pa.Table:
    """Memory-maps local files, so that only the requested values are loaded."""
    filesystem, name = open_location(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        source = pa.memory_map(name)
    else:
        source = filesystem.open_input_file(name)
    return pa.ipc.open_file(source).read_all()


def _read_all(path: str) -> bytes:
    filesystem, name = open_location(path)
    with filesystem.open_input_file(name) as source:
        content: bytes = source.read()
    return content


def _write(location: str, name: str, content: bytes | pa.Buffer) -> str:
    filesystem, directory = open_location(location)
    filesystem.create_dir(directory)
    staged = f"{directory}/{name}.tmp"
    with filesystem.open_output_stream(staged) as sink:
        sink.write(content)
    filesystem.move(staged, f"{directory}/{name}")
    return f"{location}/{name}"


def _paths(location: str, suffix: str) -> list[str]:
    filesystem, directory = open_location(location)
    files = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return sorted(f"{location}/{info.base_name}" for info in files if info.base_name.endswith(suffix))
