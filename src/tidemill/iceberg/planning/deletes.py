"""Which delete files say something about which data files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record

from tidemill.iceberg.planning.v3_manifests import CONTENT_OFFSET, REFERENCED_DATA_FILE, extra_field

# The id of `file_path` in position delete files; their bounds tell which data files they are about.
PATH_FIELD_ID: Final = 2147483546


class DeleteFiles:
    """Delete files by what they apply to: one data file, one partition, or the whole table."""

    def __init__(self, specs: Mapping[int, PartitionSpec]) -> None:
        self._specs = specs
        self._by_path: dict[str, list[ManifestEntry]] = defaultdict(list)
        self._by_partition: dict[tuple[int, Record], list[ManifestEntry]] = defaultdict(list)
        self._everywhere: list[ManifestEntry] = []

    def add(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        path = _only_target(file) if file.content == DataFileContent.POSITION_DELETES else None
        is_equality = file.content == DataFileContent.EQUALITY_DELETES
        if path is not None:
            self._by_path[path].append(entry)
        elif is_equality and self._specs[file.spec_id].is_unpartitioned():
            self._everywhere.append(entry)
        else:
            self._by_partition[_partition(file)].append(entry)

    def of(self, entry: ManifestEntry) -> tuple[DataFile, ...]:
        """The delete files that a reader of the data file has to apply, always in the same order."""
        file, number = entry.data_file, entry.sequence_number or 0
        by_path = [found for found in self._by_path.get(file.file_path, ()) if _is_later(found, number)]
        vectors = [found.data_file for found in by_path if _is_vector(found.data_file)]
        rest = [*self._by_partition.get(_partition(file), ()), *self._everywhere]
        others = [found for found in rest if _is_later(found, number) and _may_name(found.data_file, file)]
        # A deletion vector has everything in it that position deletes said before.
        positions = () if vectors else (*by_path, *(found for found in others if not _is_equality(found)))
        equality = [found.data_file for found in others if _is_equality(found)]
        return _sorted((*vectors, *(found.data_file for found in positions), *equality))


def delete_key(file: DataFile) -> tuple[str, int]:
    """What tells delete files apart: many vectors lie in one file."""
    return file.file_path, extra_field(file, CONTENT_OFFSET) or 0


def _sorted(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple(sorted(files, key=delete_key))


def _is_later(entry: ManifestEntry, number: int) -> bool:
    """Equality deletes spare what is written with them; position deletes do not."""
    own = entry.sequence_number or 0
    return own > number if _is_equality(entry) else own >= number


def _is_equality(entry: ManifestEntry) -> bool:
    return entry.data_file.content == DataFileContent.EQUALITY_DELETES


def _is_vector(file: DataFile) -> bool:
    return file.file_format == FileFormat.PUFFIN


def _partition(file: DataFile) -> tuple[int, Record]:
    return file.spec_id, file.partition or Record()


def _only_target(file: DataFile) -> str | None:
    """The data file that a position delete file is about, if it is one."""
    named: str | None = extra_field(file, REFERENCED_DATA_FILE)
    if named is not None:
        return named
    lower, upper = _path_bounds(file)
    return lower.decode() if lower is not None and lower == upper else None


def _may_name(deletes: DataFile, file: DataFile) -> bool:
    if deletes.content != DataFileContent.POSITION_DELETES:
        return True
    lower, upper = _path_bounds(deletes)
    path = file.file_path.encode()
    return (lower is None or lower <= path) and (upper is None or path <= upper)


def _path_bounds(file: DataFile) -> tuple[bytes | None, bytes | None]:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return lower.get(PATH_FIELD_ID), upper.get(PATH_FIELD_ID)
