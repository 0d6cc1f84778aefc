"""Opens Lance datasets, commits writes as catalog versions, and translates pylance's errors and conflicts.

pylance can delegate versioning to a namespace: it asks for the latest version, writes a staged manifest and
calls `create_table_version`. Remote clients do that over HTTP. Our own writes (inserts, edits, indexes,
published jobs) pass a `CommittingNamespace` instead, so they take the same path as `version/create` and end
in the same transaction with the effects in `on_commit`. The call goes in a circle: an operation calls
pylance, and pylance calls back into `VersionOperations.commit`.

A commit that bypassed the namespace would create a manifest that the catalog only discovers later, without
its lease check, ledger entry or coverage.

pylance turns exceptions of the callback into strings, and it reports some lost races as an unknown outcome.
The namespace therefore remembers both the original error and whether the race was lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import lance
import pyarrow as pa
from lance_namespace import (
    ConcurrentModificationError,
    CreateTableVersionResponse,
    DeclareTableResponse,
    DescribeTableResponse,
    DescribeTableVersionResponse,
    LanceNamespace,
    ListTableVersionsResponse,
)
from lance_namespace import TableVersion as WireVersion
from lance_namespace.errors import TableVersionNotFoundError

from tidemill.catalog.auditing import acting, current_action, note_checked
from tidemill.catalog.errors import (
    ConcurrentModification,
    InvalidTableSchema,
    InvalidTableState,
    TableAlreadyExists,
    TableVersionAlreadyExists,
)
from tidemill.catalog.locations import is_below, normalized_location
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table, TableVersion, VersionEntry, WriteResult
from tidemill.catalog.storage_failures import storage_failure
from tidemill.errors import CommitStateUnknown, InvalidInput, TidemillError, Unavailable
from tidemill.jobs.ports import JobTransaction, TransactionEffect
from tidemill.lance.model.tables import InsertMode
from tidemill.lance.storable_types import check_storable
from tidemill.lance.versions.commit import VersionOperations


def check_bases(table: Table, dataset: lance.LanceDataset) -> None:
    """Rejects base paths outside the table: a forged manifest could make the server read other locations.

    Raises InvalidTableState.
    """
    for base in dataset.base_paths().values():
        location = normalized_location(base.path, "")
        if location != table.location and not is_below(location, f"{table.location}/tree"):
            raise InvalidTableState(
                table.ident, f"reads from {base.path:.200}, which this table may not access"
            )


class TableNamespace(LanceNamespace):
    """One table on one branch, for one write. What it cannot say about versions, a subclass does."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def table_id(self) -> list[str]:
        return [str(self.table.table_id)]

    def open(self, version: int | None = None) -> lance.LanceDataset:
        """Opens the table for writing, by default at the newest version."""
        opened = lance.dataset(namespace_client=self, table_id=self.table_id, version=version)
        check_bases(self.table, opened)
        return opened

    def namespace_id(self) -> str:
        return f"tidemill:{self.table.table_id}:{self.table.branch}"

    def declare_table(self, request: Any) -> DeclareTableResponse:
        return DeclareTableResponse(location=self.table.data_location, managed_versioning=True)

    def describe_table(self, request: Any) -> DescribeTableResponse:
        return DescribeTableResponse(location=self.table.data_location, managed_versioning=True)


class CommittingNamespace(TableNamespace):
    """Looks versions up and commits them.

    `failure` is the error that the commit raised. `lost_race` means that another writer took the version:
    nothing was committed, even if pylance calls the outcome unknown. `committed` is the version that it made.
    """

    def __init__(
        self, versions: VersionOperations, table: Table, on_commit: TransactionEffect | None = None
    ) -> None:
        super().__init__(table)
        self._versions = versions
        self._on_commit = on_commit
        action = current_action()
        # pylance calls from other threads.
        self._action = None if action is None else action.publishing()
        self.failure: TidemillError | None = None
        self.lost_race = False
        self.committed: int | None = None

    def list_table_versions(self, request: Any) -> ListTableVersionsResponse:
        latest = self._versions.find_latest(self._requested_table(_fields(request)))
        return ListTableVersionsResponse(versions=[] if latest is None else [_to_wire(latest)])

    def describe_table_version(self, request: Any) -> DescribeTableVersionResponse:
        fields = _fields(request)
        table, number = self._requested_table(fields), fields.get("version")
        version = (
            self._versions.find_latest(table) if number is None else self._versions.find(table, int(number))
        )
        if version is None:
            raise TableVersionNotFoundError(f"there is no version {number}")
        return DescribeTableVersionResponse(version=_to_wire(version))

    def create_table_version(self, request: Any) -> CreateTableVersionResponse:
        fields = _fields(request)
        entry = VersionEntry(
            version=int(fields["version"]),
            manifest_path=str(fields["manifest_path"]),
            manifest_size=fields.get("manifest_size"),
            e_tag=fields.get("e_tag"),
            naming_scheme=fields.get("naming_scheme"),
        )
        self.lost_race = False
        try:
            with acting(self._action):
                note_checked(self.table.ident)
                version = self._versions.commit(self._requested_table(fields), entry, self._on_commit)
        except TableVersionAlreadyExists as error:
            self.lost_race = True
            raise ConcurrentModificationError(str(error)) from error
        except TidemillError as error:
            self.failure = error
            raise
        self.committed = version.version
        return CreateTableVersionResponse(version=_to_wire(version))

    def _requested_table(self, fields: Mapping[str, Any]) -> Table:
        """The table on the requested branch; pylance names it only if it differs from the opened one."""
        branch = fields.get("branch")
        return self.table if branch is None else self.table.on(str(branch))


def _to_wire(version: TableVersion) -> WireVersion:
    return WireVersion(
        version=version.version,
        manifest_path=version.manifest_path,
        manifest_size=version.manifest_size,
        e_tag=version.e_tag,
    )


def _fields(request: Any) -> Mapping[str, Any]:
    """pylance passes a dict, the generated client a model."""
    return request if isinstance(request, Mapping) else request.model_dump()


COMMIT_ATTEMPTS: Final = 20
CONFLICT_MESSAGES: Final = (
    "Retryable commit conflict",
    "Too many concurrent writers",
    "Too much write contention",
)
# Raised while an expression of the caller is evaluated.
CALLER_ERRORS: Final = ("Invalid user input", "Query Execution error", "LanceError(Arrow)", "Not supported")

Written = TypeVar("Written")


class LanceTableData:
    """Rows of Lance tables. Every write is a version committed through the catalog."""

    def __init__(self, versions: VersionOperations) -> None:
        self._versions = versions
        self._session = lance.Session()  # type: ignore[attr-defined]  # missing in pylance's stubs

    def create(self, table: Table, rows: pa.RecordBatchReader, on_commit: TransactionEffect) -> WriteResult:
        """Writes version 1. `on_commit` runs in the transaction of that version, before its row is added."""

        def only_first_version(tx: JobTransaction, version: int) -> None:
            # Otherwise Lance would overwrite a table that another client has just created.
            if version != 1:
                raise TableAlreadyExists(table.ident)
            on_commit(tx, version)

        namespace = CommittingNamespace(self._versions, table, only_first_version)
        with translated(table.ident, namespace):
            dataset = lance.write_dataset(
                rows,
                namespace_client=namespace,
                table_id=namespace.table_id,
                mode="create",
                enable_stable_row_ids=True,
            )
        return WriteResult(dataset.version, dataset.count_rows())

    def insert(self, table: Table, rows: pa.RecordBatchReader, mode: InsertMode) -> WriteResult:
        # Buffered, because a conflict that Lance cannot resolve means writing the rows again.
        buffered = rows.read_all()

        def write(namespace: CommittingNamespace) -> int:
            dataset = lance.write_dataset(
                buffered,
                namespace_client=namespace,
                table_id=namespace.table_id,
                mode=mode.value,
                enable_stable_row_ids=True,
            )
            return int(dataset.version)

        return WriteResult(self.commit(table, write), buffered.num_rows)

    def schema(self, table: Table, version: int | None) -> pa.Schema:
        return self.open(table, version).schema

    def check_types(self, table: Table, fields: Sequence[pa.Field]) -> None:
        check_storable(fields, self.open(table, None).data_storage_version)

    def add_empty_columns(
        self, table: Table, fields: Sequence[pa.Field], on_commit: TransactionEffect
    ) -> int:
        """Adds all-null columns (metadata only) and returns the new version."""

        def write(namespace: CommittingNamespace) -> int:
            dataset = namespace.open()
            for field in fields:
                if field.name in dataset.schema.names:
                    raise InvalidInput("name", f"{table.ident} already has a column '{field.name}'")
            dataset.add_columns(pa.schema(fields))
            return int(dataset.version)

        return self.commit(table, write, on_commit)

    def commit(
        self,
        table: Table,
        write: Callable[[CommittingNamespace], Written],
        on_commit: TransactionEffect | None = None,
        *,
        field: str = "request",
        attempts: int = COMMIT_ATTEMPTS,
    ) -> Written:
        """Runs a write and repeats it on the newest version after a conflict.

        Raises ConcurrentModification.
        """
        for attempt in range(1, attempts + 1):
            namespace = CommittingNamespace(self._versions, table, on_commit)
            with translated(table.ident, namespace, field):
                try:
                    return write(namespace)
                except OSError as error:
                    is_conflict = namespace.lost_race or is_retryable(error)
                    if namespace.failure is None and is_conflict and attempt < attempts:
                        continue
                    raise
        raise ConcurrentModification(f"{table.ident} changes too fast; try again")

    def latest(self, table: Table) -> int:
        """The number of the latest version, which the catalog determines, not storage."""
        return self._versions.get_latest(table).version

    def open(self, table: Table, version: int | None) -> lance.LanceDataset:
        """Opens a version of a table, by default the latest."""
        number = self.latest(table) if version is None else version
        with translated(table.ident):
            opened = lance.dataset(table.data_location, version=number, session=self._session)
        check_bases(table, opened)
        return opened


def is_retryable(error: Exception) -> bool:
    """pylance marks some conflicts on the exception and others only in the message."""
    return getattr(error, "retryable", False) is True or any(text in str(error) for text in CONFLICT_MESSAGES)


@contextmanager
def translated(
    ident: TableIdent, namespace: CommittingNamespace | None = None, field: str = "request"
) -> Iterator[None]:
    """Translates pylance's errors; an error raised by the commit itself takes precedence."""
    try:
        yield
    except (ValueError, OSError, RuntimeError, pa.ArrowException) as error:
        if namespace is not None and namespace.failure is not None:
            raise namespace.failure from error
        if (failure := storage_failure(error, str(ident))) is not None:
            raise _outcome(failure, ident, namespace) from error
        if is_retryable(error) or "Incompatible transaction" in str(error):
            raise ConcurrentModification(
                f"{ident} was changed by another writer: {_first_line(error)}"
            ) from error
        if "Dataset already exists" in str(error):
            raise TableAlreadyExists(ident) from error
        if "schema" in _first_line(error).lower() and "No field named" not in str(error):
            raise InvalidTableSchema(ident, _first_line(error)) from error
        if isinstance(error, ValueError | pa.ArrowException) or any(
            text in str(error) for text in CALLER_ERRORS
        ):
            raise InvalidInput(field, _first_line(error)) from error
        raise


def _outcome(failure: Unavailable, ident: TableIdent, namespace: CommittingNamespace | None) -> Unavailable:
    """The failure itself, unless it came after the commit: then the change has happened."""
    if namespace is None or namespace.committed is None:
        return failure
    return CommitStateUnknown(f"{ident} was changed, but storage failed after the commit: {failure}")


def _first_line(error: Exception) -> str:
    """The message without the source location that pylance appends."""
    return str(error).splitlines()[0].split(", /")[0].split(", rust/")[0].split(", location:")[0]


FIRST_BACKOFF_SECONDS: Final = 0.005
MAX_BACKOFF_SECONDS: Final = 0.5


def is_conflict(error: Exception) -> bool:
    """Whether another writer came first, so that the change may succeed on the newest version."""
    return is_retryable(error) or "Commit conflict" in str(error)


def backoff(attempt: int) -> None:
    """Sleeps for a random time that grows with each attempt."""
    time.sleep(random.uniform(0, min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2**attempt)))
