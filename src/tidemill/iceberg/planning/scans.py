"""Plans scans: turns a table's metadata and a filter into the files that a reader must open.

Planning runs on the server when a client asks for it. The planner pins the request to one snapshot and
schema, reads that snapshot's manifests with pyiceberg, skips what the filter excludes, and attaches to each
data file its delete files and the residual filter. Tasks are sorted, so planning the same state twice gives
the same plan.

That makes plans stateless: a response carries the first TASKS_PER_RESPONSE tasks and tokens for the rest. A
token contains the pinned request, and any server can plan it again. The cache only saves repeating the work
for long plans; losing it is harmless. Without pinning and sorting, a client that fetches a plan in parts
could miss files or get some twice when the table changes in between.

Clients write metadata and manifests, so everything in them may be malformed. Such failures become
Unsupported, which tells clients to plan the scan themselves.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import Final
from uuid import UUID

from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    LiteralPredicate,
    Not,
    Or,
    Reference,
    SetPredicate,
)
from pyiceberg.expressions.visitors import ResidualEvaluator, bind, residual_evaluator_of
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
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_between_ids, is_parent_ancestor_of
from pyiceberg.types import BinaryType, FixedType, IcebergType, UnknownType
from zstandard import ZstdError

from tidemill.errors import InvalidInput, Unsupported
from tidemill.iceberg.errors import MetadataFileNotFound
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.planning.manifests import DeleteFiles, read_manifests

TASKS_PER_RESPONSE: Final = 1000
"""Maximum number of tasks in one response; longer plans are cached for the requests that follow."""
MAX_CACHED_PLANS: Final = 8
# What pyiceberg raises for metadata that it does not support, and for malformed manifests.
PARSE_ERRORS: Final = (
    ResolveError,
    ValidationError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    EOFError,
    NotImplementedError,
    # From its Avro decoder, for impossible lengths.
    SystemError,
    MemoryError,
    struct.error,
    # From the codecs of compressed manifests, one of which is not installed.
    zlib.error,
    ZstdError,
    ImportError,
)
MISSING_FILE_ERRORS: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def is_content_error(error: Exception) -> bool:
    """Whether the error is about the content of a file: bzip2 raises OSError without errno for that."""
    return not isinstance(error, OSError) or error.errno is None


NO_SNAPSHOT: Final = -1
"""Pins a scan to the state in which the table had no snapshot."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What to scan: one snapshot, the appends between two, or the current snapshot of the main branch.

    `filter` may accept more rows than the client wants, never fewer. `schema_id` is set in a pinned request:
    the names in the filter refer to that schema.
    """

    snapshot_id: int | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    select: tuple[str, ...] | None = None
    filter: BooleanExpression = field(default_factory=AlwaysTrue)
    is_case_sensitive: bool = True
    uses_snapshot_schema: bool = False
    stats_fields: tuple[str, ...] = ()
    min_rows_requested: int | None = None
    schema_id: int | None = None

    @property
    def is_incremental(self) -> bool:
        return self.start_snapshot_id is not None or self.end_snapshot_id is not None


def check_snapshots(request: ScanRequest) -> None:
    """A scan is either of one snapshot or incremental, and an incremental one needs both ends."""
    if request.is_incremental and request.snapshot_id is not None:
        raise InvalidInput(
            "snapshot-id",
            "cannot be given together with start-snapshot-id or end-snapshot-id; give one or both",
        )
    if request.is_incremental and (request.start_snapshot_id is None or request.end_snapshot_id is None):
        missing = "start-snapshot-id" if request.start_snapshot_id is None else "end-snapshot-id"
        raise InvalidInput(
            missing, "is missing; an incremental scan needs start-snapshot-id and end-snapshot-id"
        )


def pinned(table: TableMetadata, request: ScanRequest) -> ScanRequest:
    """The request pinned to the current state, so it means the same after later commits."""
    check_snapshots(request)
    snapshot = _scanned_snapshot(table, request)
    schema_id = request.schema_id
    if schema_id is None:
        schema_id = table.current_schema_id
        if request.uses_snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
            schema_id = snapshot.schema_id
    if all(schema.schema_id != schema_id for schema in table.schemas):
        raise InvalidInput("schema-id", f"The table has no schema {schema_id}")
    if request.is_incremental:
        return replace(request, schema_id=schema_id)
    snapshot_id = NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id
    return replace(request, schema_id=schema_id, snapshot_id=snapshot_id)


def _scanned_snapshot(table: TableMetadata, request: ScanRequest) -> Snapshot | None:
    """The snapshot to scan, or the last one of an incremental scan; None for an empty table."""
    if request.snapshot_id is not None:
        is_empty = request.schema_id is not None and request.snapshot_id == NO_SNAPSHOT
        return None if is_empty else _get_snapshot(table, request.snapshot_id, "snapshot-id")
    if request.start_snapshot_id is None or request.end_snapshot_id is None:
        return table.current_snapshot()
    end = _get_snapshot(table, request.end_snapshot_id, "end-snapshot-id")
    if not is_parent_ancestor_of(request.end_snapshot_id, request.start_snapshot_id, table):
        raise InvalidInput(
            "start-snapshot-id",
            f"Starting snapshot (exclusive) {request.start_snapshot_id} is not a parent ancestor of "
            f"end snapshot {request.end_snapshot_id}",
        )
    return end


def _get_snapshot(table: TableMetadata, snapshot_id: int, name: str) -> Snapshot:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise InvalidInput(name, f"Cannot find snapshot with ID {snapshot_id}")
    return snapshot


@dataclass(frozen=True, slots=True)
class FileTask:
    """A data file, its delete files, and the residual filter for its rows."""

    data_file: DataFile
    deletes: tuple[DataFile, ...]
    residual: BooleanExpression

    @property
    def min_rows(self) -> int:
        """The number of rows that the task certainly returns."""
        return self.data_file.record_count if not self.deletes and self.residual == AlwaysTrue() else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All tasks of a scan in a stable order; `request` is pinned to the planned state."""

    request: ScanRequest
    tasks: Sequence[FileTask]
    schema: Schema
    partition_types: Mapping[int, tuple[IcebergType, ...]]


class ScanPlanner:
    """`files_of` returns the FileIO of a table by its id; it must refuse files of other tables."""

    def __init__(self, files_of: Callable[[UUID], FileIO]) -> None:
        self._files_of = files_of
        self._lock = Lock()
        self._cache: OrderedDict[tuple[bytes, str], Plan] = OrderedDict()

    def plan(self, table_entry: Entry, request: ScanRequest) -> Plan:
        """Raises InvalidInput for unknown snapshots and fields, Unsupported for tables it cannot read."""
        metadata_location, metadata = table_entry.metadata_location, table_entry.metadata
        digest = hashlib.sha256(table_entry.entry_id.bytes + metadata).digest()
        if (cached := self._find_cached((digest, repr(request)))) is not None:
            return cached
        with _translated_read_errors(metadata_location):
            table = TableMetadataUtil.parse_raw(metadata.decode())
        pinned_request = pinned(table, request)
        table = table.model_copy(update={"current_schema_id": pinned_request.schema_id})
        bindable_request = replace(pinned_request, filter=bindable_filter(table.schema(), pinned_request))
        with _translated_read_errors(metadata_location):
            found = self._tasks(table, self._files_of(table_entry.entry_id), bindable_request)
            tasks = sorted(found, key=lambda task: task.data_file.file_path)
            plan = Plan(
                pinned_request,
                _limited(tasks, pinned_request.min_rows_requested),
                table.schema(),
                _partition_types(table),
            )
        if len(plan.tasks) > TASKS_PER_RESPONSE:
            self._add_to_cache((digest, repr(pinned_request)), plan)
        return plan

    def _tasks(self, table: TableMetadata, files: FileIO, request: ScanRequest) -> Iterator[FileTask]:
        scan = ManifestGroupPlanner(table, files, request.filter, request.is_case_sensitive)
        residuals = _Residuals(table, request)
        if request.is_incremental:
            for entry in _appended(table, files, scan, request):
                yield FileTask(entry.data_file, (), residuals.residual_of(entry.data_file))
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
            yield FileTask(
                entry.data_file, deletes.applicable_to(entry), residuals.residual_of(entry.data_file)
            )

    def _find_cached(self, key: tuple[bytes, str]) -> Plan | None:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
            return self._cache.get(key)

    def _add_to_cache(self, key: tuple[bytes, str], plan: Plan) -> None:
        with self._lock:
            self._cache[key] = plan
            while len(self._cache) > MAX_CACHED_PLANS:
                self._cache.popitem(last=False)


def _appended(
    table: TableMetadata, files: FileIO, scan: ManifestGroupPlanner, request: ScanRequest
) -> Iterator[ManifestEntry]:
    """The files that append snapshots added; ignores other snapshots in between."""
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
    """Residual filters of partitions, with one evaluator per partition spec."""

    def __init__(self, table: TableMetadata, request: ScanRequest) -> None:
        self._table = table
        self._request = request
        self._evaluators: dict[int, ResidualEvaluator] = {}

    def residual_of(self, file: DataFile) -> BooleanExpression:
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
            # pyiceberg fails to compare null partition values; the whole filter is always a correct residual.
            return self._request.filter


def _entries(scan: ManifestGroupPlanner, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
    return chain.from_iterable(scan.plan_manifest_entries(manifests))


def _limited(tasks: Sequence[FileTask], wanted_rows: int | None) -> Sequence[FileTask]:
    """The first tasks that certainly return enough rows; all of them if that is uncertain."""
    if wanted_rows is None:
        return tasks
    rows = 0
    for count, task in enumerate(tasks, start=1):
        rows += task.min_rows
        if rows >= wanted_rows:
            return tasks[:count]
    return tasks


def _partition_types(table: TableMetadata) -> Mapping[int, tuple[IcebergType, ...]]:
    """The types of partition values; source columns may have been dropped from the current schema."""
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
def _translated_read_errors(metadata_location: str) -> Iterator[None]:
    """Translates errors of malformed or missing metadata and manifests, which clients write."""
    try:
        yield
    except MISSING_FILE_ERRORS as error:
        raise MetadataFileNotFound(str(error.filename or error)) from error
    except InvalidInput as error:
        raise Unsupported(
            f"The scan cannot be planned here, plan it in the client: a manifest's {error}"
        ) from error
    except (OSError, *PARSE_ERRORS) as error:
        if not is_content_error(error):
            raise
        problem = str(error).split("\n", maxsplit=1)[0][:300]
        raise Unsupported(
            f"The scan cannot be planned here, plan it in the client: {metadata_location} or one of its "
            f"manifests is not readable ({type(error).__name__}: {problem})"
        ) from error


UNBINDABLE: Final = (ValueError, TypeError, ArithmeticError, LookupError)


def bindable_filter(schema: Schema, request: ScanRequest) -> BooleanExpression:
    """Raises InvalidInput if the filter has fields or values that do not fit the schema."""
    try:
        expression = _bindable(request.filter, schema, request)
        bind(schema, expression, request.is_case_sensitive)
    except UNBINDABLE as error:
        raise InvalidInput("filter", str(error)[:500]) from error
    return expression


def _bindable(expression: BooleanExpression, schema: Schema, request: ScanRequest) -> BooleanExpression:
    match expression:
        case Not():
            return Not(_bindable(expression.child, schema, request))
        case And():
            return And(
                _bindable(expression.left, schema, request), _bindable(expression.right, schema, request)
            )
        case Or():
            return Or(
                _bindable(expression.left, schema, request), _bindable(expression.right, schema, request)
            )
        case LiteralPredicate(term=Reference()) if _has_bytes(expression.term, schema, request):
            return type(expression)(expression.term, _bytes(expression.literal.value))
        case SetPredicate(term=Reference()) if _has_bytes(expression.term, schema, request):
            return type(expression)(
                expression.term, [_bytes(literal.value) for literal in expression.literals]
            )
        case _:
            return expression


def _has_bytes(term: object, schema: Schema, request: ScanRequest) -> bool:
    if not isinstance(term, Reference):
        return False
    kind = schema.find_field(term.name, request.is_case_sensitive).field_type
    return isinstance(kind, BinaryType | FixedType)


def _bytes(value: object) -> object:
    return bytes.fromhex(value) if isinstance(value, str) else value
