"""Iceberg tables in a directory, written by pyiceberg, and manifests that pyiceberg cannot write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pyarrow as pa
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType, StructType

from tidemill.catalog.model.identifiers import table_ident
from tidemill.iceberg.files import CatalogFileIO
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.iceberg.planning.scans import Plan, ScanPlanner, ScanRequest
from tidemill.storage.local import LocalTableFiles

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "day", DateType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "score", DoubleType(), required=False),
)
BY_DAY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
UNPARTITIONED = PartitionSpec()


@dataclass(frozen=True)
class Lake:
    warehouse: Path
    catalog: SqlCatalog
    planner: ScanPlanner

    def create(self, spec: PartitionSpec = UNPARTITIONED, schema: Schema = SCHEMA) -> Table:
        return self.catalog.create_table(("lake", f"t{uuid4().hex}"), schema, partition_spec=spec)

    def plan(self, table: Table, request: ScanRequest) -> Plan:
        return self.plan_at(table.metadata_location, metadata_of(table), request)

    def plan_at(self, metadata_location: str, metadata: bytes, request: ScanRequest) -> Plan:
        ident = table_ident(("lake", "t"))
        entry = Entry(UUID(int=1), ident, EntryKind.TABLE, "", metadata_location, metadata)
        return self.planner.plan(entry, request)


def open_adapters(directory: Path) -> Lake:
    warehouse = directory / "warehouse"
    files = LocalTableFiles(warehouse)
    catalog = SqlCatalog("lake", uri="sqlite:///:memory:", warehouse=f"file://{warehouse}")
    catalog.create_namespace("lake")
    return Lake(warehouse, catalog, ScanPlanner(lambda _: CatalogFileIO(files)))


def rows(*ids: int | None) -> pa.Table:
    """Rows whose every value follows from their number."""
    return pa.table(
        {
            "id": ids,
            "day": [None if number is None else date(2024, 1, 1 + number % 3) for number in ids],
            "name": [None if number is None else f"row {number}" for number in ids],
            "score": [None if number is None else number / 2 for number in ids],
        },
        schema=SCHEMA.as_arrow(),
    )


def metadata_of(table: Table) -> bytes:
    return Path(table.metadata_location.removeprefix("file://")).read_bytes()


def data_file(path: str, version: Any = 3, **fields: Any) -> DataFile:
    known = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 10,
        "file_size_in_bytes": 100,
        **fields,
    }
    file = DataFile.from_args(_table_format_version=version, **known)
    file.spec_id = 0
    return file


def entry(file: DataFile, sequence_number: int | None = 1) -> ManifestEntry:
    return ManifestEntry.from_args(
        _table_format_version=3,
        status=ManifestEntryStatus.ADDED,
        snapshot_id=1,
        sequence_number=sequence_number,
        file_sequence_number=sequence_number,
        data_file=file,
    )


def write_manifest(
    path: Path, entries: Iterable[ManifestEntry], content: ManifestContent, first_row_id: int | None = None
) -> ManifestFile:
    """A manifest of format version 3 for files that are not partitioned."""
    schema = manifest_entry_schema_with_data_file(3, data_file_with_partition(StructType(), 3))
    found = list(entries)
    with AvroOutputFile[ManifestEntry](
        PyArrowFileIO().new_output(str(path)), schema, "manifest_entry", schema, {"format-version": "3"}
    ) as writer:
        writer.write_block(found)
    return ManifestFile.from_args(
        _table_format_version=3,
        manifest_path=str(path),
        manifest_length=path.stat().st_size,
        partition_spec_id=0,
        content=content,
        sequence_number=7,
        min_sequence_number=1,
        added_snapshot_id=1,
        added_files_count=len(found),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(item.data_file.record_count for item in found),
        existing_rows_count=0,
        deleted_rows_count=0,
        first_row_id=first_row_id,
    )


def write_manifest_list(path: Path, manifests: Iterable[ManifestFile]) -> None:
    schema = MANIFEST_LIST_FILE_SCHEMAS[3]
    with AvroOutputFile[ManifestFile](
        PyArrowFileIO().new_output(str(path)), schema, "manifest_file", schema, {"format-version": "3"}
    ) as writer:
        writer.write_block(list(manifests))


def metadata_with(location: Path, manifest_list: str, version: int = 3) -> bytes:
    """The metadata of a table with one snapshot, whose manifest list is that."""
    document: dict[str, Any] = {
        "format-version": version,
        "table-uuid": str(uuid4()),
        "location": str(location),
        "last-sequence-number": 7,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 4,
        "schemas": [orjson.loads(SCHEMA.model_dump_json())],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": 1,
        "snapshots": [
            {
                "snapshot-id": 1,
                "sequence-number": 7,
                "timestamp-ms": 1_700_000_000_000,
                "manifest-list": manifest_list,
                "summary": {"operation": "append"},
                "schema-id": 0,
                "first-row-id": 0,
                "added-rows": 0,
            }
        ],
        "next-row-id": 100,
    }
    return orjson.dumps(document)
