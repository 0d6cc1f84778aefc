"""Manifests: fields of format version 3 that pyiceberg does not read, and the delete files of a data file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record

READ_VERSION: Final = 3
# Positions of these fields in version 3 records.
FIRST_ROW_ID_OF_MANIFEST: Final = 15
FIRST_ROW_ID: Final = 16
REFERENCED_DATA_FILE: Final = 17
CONTENT_OFFSET: Final = 18
CONTENT_SIZE: Final = 19


class V3Manifest(ManifestFile):
    """A manifest whose entries have all v3 fields; entries inherit what they omit from the manifest."""

    def fetch_manifest_entry(
        self,
        io: FileIO,
        discard_deleted: bool = True,  # noqa: FBT001, FBT002 - pyiceberg's signature
    ) -> list[ManifestEntry]:
        with AvroFile[ManifestEntry](
            io.new_input(self.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[READ_VERSION],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            entries = [_with_inherited_values(entry, self) for entry in reader]
        _assign_first_row_ids(entries, self[FIRST_ROW_ID_OF_MANIFEST])
        return [
            entry for entry in entries if not discard_deleted or entry.status != ManifestEntryStatus.DELETED
        ]


def read_manifests(io: FileIO, manifest_list: str) -> list[ManifestFile]:
    with AvroFile[V3Manifest](
        io.new_input(manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[READ_VERSION],
        read_types={-1: V3Manifest, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return list(reader)


def extra_field(data_file: DataFile, position: int) -> Any:
    """A version 3 field; None if the file was read without such fields."""
    return data_file[position] if len(data_file) > position else None


def _with_inherited_values(entry: ManifestEntry, manifest: V3Manifest) -> ManifestEntry:
    """Inherits sequence numbers, snapshot and partition spec as the table specification defines."""
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    is_new = manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED
    if is_new and entry.sequence_number is None:
        entry.sequence_number = manifest.sequence_number
    if is_new and entry.file_sequence_number is None:
        entry.file_sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id
    return entry


def _assign_first_row_ids(entries: Iterable[ManifestEntry], first_row_id: int | None) -> None:
    """Numbers files without a first row id consecutively, starting at that of the manifest."""
    if first_row_id is None:
        return
    for entry in entries:
        is_data = entry.data_file.content == DataFileContent.DATA
        if is_data and entry.status != ManifestEntryStatus.DELETED and entry.data_file[FIRST_ROW_ID] is None:
            entry.data_file[FIRST_ROW_ID] = first_row_id
            first_row_id += entry.data_file.record_count


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
