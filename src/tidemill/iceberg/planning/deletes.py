"""Matches delete files with the data files that they apply to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record

from tidemill.iceberg.planning.v3_manifests import CONTENT_OFFSET, REFERENCED_DATA_FILE, extra_field

# The field id of `file_path` in position delete files; its bounds limit the data files they refer to.
PATH_FIELD_ID: Final = 2147483546


class DeleteFiles:
    """Delete files, indexed by what they apply to: one data file, one partition, or the whole table."""

    def __init__(self, specs: Mapping[int, PartitionSpec]) -> None:
        self._specs = specs
        self._by_path: dict[str, list[ManifestEntry]] = defaultdict(list)
        self._by_partition: dict[tuple[int, Record], list[ManifestEntry]] = defaultdict(list)
        self._global: list[ManifestEntry] = []

    def add(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        path = _single_target(file) if file.content == DataFileContent.POSITION_DELETES else None
        is_equality = file.content == DataFileContent.EQUALITY_DELETES
        if path is not None:
            self._by_path[path].append(entry)
        elif is_equality and self._specs[file.spec_id].is_unpartitioned():
            self._global.append(entry)
        else:
            self._by_partition[_partition(file)].append(entry)

    def applicable_to(self, entry: ManifestEntry) -> tuple[DataFile, ...]:
        """The delete files that a reader of this data file must apply, in a stable order."""
        file, sequence = entry.data_file, entry.sequence_number or 0
        by_path = [
            delete
            for delete in self._by_path.get(file.file_path, ())
            if _applies_to_sequence(delete, sequence)
        ]
        vectors = [delete.data_file for delete in by_path if _is_vector(delete.data_file)]
        rest = [*self._by_partition.get(_partition(file), ()), *self._global]
        others = [
            delete
            for delete in rest
            if _applies_to_sequence(delete, sequence) and _may_reference(delete.data_file, file)
        ]
        # A deletion vector includes all earlier position deletes of its data file.
        positions = () if vectors else (*by_path, *(delete for delete in others if not _is_equality(delete)))
        equality = [delete.data_file for delete in others if _is_equality(delete)]
        return _sorted((*vectors, *(delete.data_file for delete in positions), *equality))


def delete_key(file: DataFile) -> tuple[str, int]:
    """Identifies a delete file: one file can contain several deletion vectors."""
    return file.file_path, extra_field(file, CONTENT_OFFSET) or 0


def _sorted(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple(sorted(files, key=delete_key))


def _applies_to_sequence(entry: ManifestEntry, sequence: int) -> bool:
    """Equality deletes apply only to older data files; position deletes also to those of the same commit."""
    deleted_at = entry.sequence_number or 0
    return deleted_at > sequence if _is_equality(entry) else deleted_at >= sequence


def _is_equality(entry: ManifestEntry) -> bool:
    return entry.data_file.content == DataFileContent.EQUALITY_DELETES


def _is_vector(file: DataFile) -> bool:
    return file.file_format == FileFormat.PUFFIN


def _partition(file: DataFile) -> tuple[int, Record]:
    return file.spec_id, file.partition or Record()


def _single_target(file: DataFile) -> str | None:
    """The data file that a position delete file refers to, if it is exactly one."""
    referenced: str | None = extra_field(file, REFERENCED_DATA_FILE)
    if referenced is not None:
        return referenced
    lower, upper = _path_bounds(file)
    return lower.decode() if lower is not None and lower == upper else None


def _may_reference(deletes: DataFile, file: DataFile) -> bool:
    if deletes.content != DataFileContent.POSITION_DELETES:
        return True
    lower, upper = _path_bounds(deletes)
    path = file.file_path.encode()
    return (lower is None or lower <= path) and (upper is None or path <= upper)


def _path_bounds(file: DataFile) -> tuple[bytes | None, bytes | None]:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return lower.get(PATH_FIELD_ID), upper.get(PATH_FIELD_ID)
