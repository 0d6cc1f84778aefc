"""Reads manifests with the fields of format version 3, which pyiceberg defines but does not read."""

from __future__ import annotations

from collections.abc import Iterable
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
