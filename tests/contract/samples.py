"""Values the suites put into stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid4

import pyarrow as pa

from tidemill.catalog.model.callers import Receipt
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import Namespace, NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table, TableVersion
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.jobs.model.columns import ComputedColumn
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.model.jobs import Job, JobKind, JobState, Lease, Part
from tidemill.jobs.model.options import BackfillRequest
from tidemill.jobs.model.views import MaterializedView, SourceQuery, ViewKind, ViewSource
from tidemill.jobs.ports import JobStore

ROOT: Final = NamespacePath()
ALL: Final = Page()
NOON: Final = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
LONG: Final = timedelta(seconds=30)
NOTHING: Final = timedelta(0)

_job_numbers = count(1)


def path(*levels: str) -> NamespacePath:
    return NamespacePath(levels)


def ident(*levels: str) -> TableIdent:
    return TableIdent(NamespacePath(levels[:-1]), levels[-1])


def a_namespace(*levels: str, **properties: str) -> Namespace:
    return Namespace(uuid4(), path(*levels), properties)


def a_table(*levels: str, **changes: Any) -> Table:
    table_id = uuid4()
    values: dict[str, Any] = {"location": f"/warehouse/{table_id}"}
    return Table(table_id, ident(*levels), **(values | changes))


def an_entry(*levels: str, kind: EntryKind = EntryKind.TABLE, **changes: Any) -> Entry:
    entry_id = uuid4()
    values: dict[str, Any] = {
        "location": f"/warehouse/iceberg/{entry_id}",
        "metadata_location": f"file:///warehouse/iceberg/{entry_id}/metadata/00000.metadata.json",
        "metadata": b'{"format-version":2}',
    }
    return Entry(entry_id, ident(*levels), kind, **(values | changes))


def a_receipt(key: str, **changes: Any) -> Receipt:
    values: dict[str, Any] = {
        "principal": "ada",
        "operation": "createTable",
        "resource": "shop.orders",
        "body_digest": "d" * 64,
        "outcome": b'{"status":200}',
    }
    return Receipt(key, **(values | changes))


def a_version(table_id: UUID, version: int, **changes: Any) -> TableVersion:
    values: dict[str, Any] = {
        "branch": MAIN_BRANCH,
        "manifest_path": f"_versions/{version}.manifest",
        "staged_path": f"_versions/{version}.manifest-{uuid4()}",
        "manifest_size": 1_234,
        "created_at": NOON,
    }
    return TableVersion(table_id=table_id, version=version, **(values | changes))


def a_function(name: str, payload: bytes = b"code", **changes: Any) -> Function:
    return Function(
        name=name,
        digest=f"sha256:{sha256(name.encode() + payload).hexdigest()}",
        kind=FunctionKind.SCALAR,
        parameters=("text",),
        output=pa.schema([pa.field("value", pa.int64())]),
        payload=payload,
        python="3.11",
        **changes,
    )


def a_column(table_id: UUID, name: str) -> ComputedColumn:
    return ComputedColumn(uuid4(), table_id, name, f"sha256:{'a' * 64}", ("text", "length"))


def a_view(view_id: UUID, *source_ids: UUID, **changes: Any) -> MaterializedView:
    values: dict[str, Any] = {
        "sources": tuple(ViewSource(source_id, ("shop", "orders")) for source_id in source_ids),
        "kind": ViewKind.CHUNKER,
        "query": SourceQuery(("shop", "orders"), {"id": "id", "total": "price * 2"}, "price > 0"),
        "raw_query": '{"source": "orders"}',
        "digest": f"sha256:{'b' * 64}",
        "function_digest": f"sha256:{'c' * 64}",
        "inputs": ("id",),
        "has_auto_refresh": True,
    }
    return MaterializedView(view_id=view_id, **(values | changes))


def a_job(**changes: Any) -> Job:
    """Each is younger than the one before, by its id and by its time."""
    number = next(_job_numbers)
    values: dict[str, Any] = {
        "job_id": f"job-{number:06}",
        "kind": JobKind.BACKFILL,
        "table_id": uuid4(),
        "table": ident("shop", "orders"),
        "subject_id": uuid4(),
        "request": BackfillRequest("caption", where="price > 0"),
        "state": JobState.QUEUED,
        "submitted_by": "ada",
        "created_at": NOON + timedelta(seconds=number),
    }
    return Job(**(values | changes))


def an_error(subject_id: UUID, row_id: int | None, **changes: Any) -> RowError:
    values: dict[str, Any] = {"digest": "d", "job_id": "job-1", "is_skipped": True}
    failure = RowFailure(row_id, "ValueError", f"row {row_id} is bad", "Traceback", 3)
    return RowError(subject_id=subject_id, failure=failure, **(values | changes))


def a_part(job_id: str, part: str, **changes: Any) -> Part:
    values: dict[str, Any] = {"epoch": 1, "table_id": uuid4(), "version": 7, "rows": b"\x00\x01\xff"}
    return Part(job_id=job_id, part=part, **(values | changes))


def lease_of(job: Job) -> Lease:
    return Lease(job.job_id, job.epoch, job.owner or "")


def submitted(store: JobStore, **changes: Any) -> Job:
    job = a_job(**changes)
    with store.transaction() as tx:
        tx.jobs.add(job)
    return job


def claimed(store: JobStore, owner: str = "worker-1", duration: timedelta = LONG) -> Job:
    with store.transaction() as tx:
        job = tx.leases.claim(owner, duration)
    assert job is not None
    return job


def stored_table(store: JobStore, *levels: str) -> Table:
    """A table in a namespace that is made for it, one level deep, or in the root."""
    table = a_table(*levels)
    with store.transaction() as tx:
        if len(levels) > 1 and tx.namespaces.find(table.ident.namespace) is None:
            tx.namespaces.add(a_namespace(*levels[:-1]))
        tx.tables.add(table)
    return table
