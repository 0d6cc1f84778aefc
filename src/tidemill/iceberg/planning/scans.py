"""Planning scans: from a table's metadata and a filter to the files that a reader has to open."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock
from typing import Final
from uuid import UUID

from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import ResidualEvaluator, residual_evaluator_of
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Operation, ancestors_between_ids
from pyiceberg.types import IcebergType, UnknownType
from zstandard import ZstdError

from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.errors import MetadataFileNotFound
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.planning.deletes import DeleteFiles
from tidemill.iceberg.planning.filter_binding import fitted_filter
from tidemill.iceberg.planning.requests import ScanRequest, pinned
from tidemill.iceberg.planning.v3_manifests import read_manifests

BATCH: Final = 1000
"""So many tasks are answered at once; plans that are longer are kept for those who ask for the rest."""
MOST_KEPT_PLANS: Final = 8
# What pyiceberg raises for metadata it does not know, and for manifests that are none.
UNREADABLE: Final = (
    ResolveError,
    ValidationError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    EOFError,
    NotImplementedError,
    # Its Avro decoder, for lengths that cannot be.
    SystemError,
    MemoryError,
    struct.error,
    # Of the codecs that manifests may be compressed with, one of which is not there.
    zlib.error,
    ZstdError,
    ImportError,
)
GONE: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def is_content(error: Exception) -> bool:
    """Whether it is about what is in a file: bzip2 says so with an error of the operating system's class."""
    return not isinstance(error, OSError) or error.errno is None


@dataclass(frozen=True, slots=True)
class FileTask:
    """A data file, the delete files to apply to it, and what is left of the filter for its rows."""

    data_file: DataFile
    deletes: tuple[DataFile, ...]
    residual: BooleanExpression

    @property
    def sure_rows(self) -> int:
        """How many rows it yields at least."""
        return self.data_file.record_count if not self.deletes and self.residual == AlwaysTrue() else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All tasks of a scan, always in the same order; `request` is pinned to the state it was made for."""

    request: ScanRequest
    tasks: Sequence[FileTask]
    schema: Schema
    partition_types: Mapping[int, tuple[IcebergType, ...]]


class ScanPlanner:
    """`files_of` gives the files that the table with this id may name, and has to refuse all others."""

    def __init__(self, files_of: Callable[[UUID], FileIO]) -> None:
        self._files_of = files_of
        self._lock = Lock()
        self._kept: OrderedDict[tuple[bytes, str], Plan] = OrderedDict()

    def plan(self, table_entry: Entry, request: ScanRequest) -> Plan:
        """Raises InvalidInput for what the table has not got, Unsupported for tables it cannot read."""
        metadata_location, metadata = table_entry.metadata_location, table_entry.metadata
        digest = hashlib.sha256(table_entry.entry_id.bytes + metadata).digest()
        if (kept := self._find((digest, repr(request)))) is not None:
            return kept
        with _reading(metadata_location):
            table = TableMetadataUtil.parse_raw(metadata.decode())
        exact = pinned(table, request)
        table = table.model_copy(update={"current_schema_id": exact.schema_id})
        scanned = replace(exact, filter=fitted_filter(table.schema(), exact))
        with _reading(metadata_location):
            found = self._tasks(table, self._files_of(table_entry.entry_id), scanned)
            tasks = sorted(found, key=lambda task: task.data_file.file_path)
            plan = Plan(
                exact, _enough(tasks, exact.min_rows_requested), table.schema(), _partition_types(table)
            )
        if len(plan.tasks) > BATCH:
            self._keep((digest, repr(exact)), plan)
        return plan

    def _tasks(self, table: TableMetadata, files: FileIO, request: ScanRequest) -> Iterator[FileTask]:
        scan = ManifestGroupPlanner(table, files, request.filter, request.is_case_sensitive)
        residuals = _Residuals(table, request)
        if request.is_incremental:
            for entry in _appended(table, files, scan, request):
                yield FileTask(entry.data_file, (), residuals.of(entry.data_file))
            return
        snapshot = table.snapshot_by_id(request.snapshot_id or 0)
        manifests = [] if snapshot is None else read_manifests(files, snapshot.manifest_list)
        data, deletes = [], DeleteFiles(table.specs())
        for entry in _entries(scan, manifests):
            if entry.data_file.content == DataFileContent.DATA:
                data.append(entry)
            else:
                deletes.add(entry)
        for entry in data:
            yield FileTask(entry.data_file, deletes.of(entry), residuals.of(entry.data_file))

    def _find(self, key: tuple[bytes, str]) -> Plan | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: tuple[bytes, str], plan: Plan) -> None:
        with self._lock:
            self._kept[key] = plan
            while len(self._kept) > MOST_KEPT_PLANS:
                self._kept.popitem(last=False)


def _appended(
    table: TableMetadata, files: FileIO, scan: ManifestGroupPlanner, request: ScanRequest
) -> Iterator[ManifestEntry]:
    """The files that snapshots of appends added; what others did between them is not part of it."""
    appends = {
        snapshot.snapshot_id: snapshot
        for snapshot in ancestors_between_ids(request.start_snapshot_id, request.end_snapshot_id or 0, table)
        if snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND
    }
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in appends.values()
        for manifest in read_manifests(files, snapshot.manifest_list)
        if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in appends
    }
    for entry in _entries(scan, manifests.values()):
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in appends:
            yield entry


class _Residuals:
    """What a partition leaves of the filter; one evaluator for each way of partitioning."""

    def __init__(self, table: TableMetadata, request: ScanRequest) -> None:
        self._table = table
        self._request = request
        self._evaluators: dict[int, ResidualEvaluator] = {}

    def of(self, file: DataFile) -> BooleanExpression:
        if self._request.filter == AlwaysTrue():
            return self._request.filter
        if file.spec_id not in self._evaluators:
            self._evaluators[file.spec_id] = residual_evaluator_of(
                spec=self._table.specs()[file.spec_id],
                expr=self._request.filter,
                case_sensitive=self._request.is_case_sensitive,
                schema=self._table.schema(),
            )
        try:
            return self._evaluators[file.spec_id].residual_for(file.partition)
        except TypeError:
            # pyiceberg compares the nulls of partitions with values; the whole filter is never wrong.
            return self._request.filter


def _entries(scan: ManifestGroupPlanner, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
    return chain.from_iterable(scan.plan_manifest_entries(manifests))


def _enough(tasks: Sequence[FileTask], wanted_rows: int | None) -> Sequence[FileTask]:
    """The first of them that have as many rows for sure; all of them if that is not to be known."""
    if wanted_rows is None:
        return tasks
    rows = 0
    for count, task in enumerate(tasks, start=1):
        rows += task.sure_rows
        if rows >= wanted_rows:
            return tasks[:count]
    return tasks


def _partition_types(table: TableMetadata) -> Mapping[int, tuple[IcebergType, ...]]:
    """The types of partition values; the columns they come from may be gone from the schema."""
    fields = {
        field_id: found
        for schema in [*table.schemas, table.schema()]
        for field_id, found in schema._lazy_id_to_field.items()
    }
    return {
        spec_id: tuple(
            part.transform.result_type(fields[part.source_id].field_type)
            if part.source_id in fields
            else UnknownType()
            for part in spec.fields
        )
        for spec_id, spec in table.specs().items()
    }


@contextmanager
def _reading(metadata_location: str) -> Iterator[None]:
    """For what metadata and manifests can be: they are made by clients."""
    try:
        yield
    except GONE as error:
        raise MetadataFileNotFound(str(error.filename or error)) from error
    except InvalidInput as error:
        raise Unsupported(
            f"The scan cannot be planned here, plan it in the client: a manifest's {error}"
        ) from error
    except (OSError, *UNREADABLE) as error:
        if not is_content(error):
            raise
        problem = str(error).split("\n", maxsplit=1)[0][:300]
        raise Unsupported(
            f"The scan cannot be planned here, plan it in the client: {metadata_location} or one of its "
            f"manifests is not readable ({type(error).__name__}: {problem})"
        ) from error
