"""Routes of functions, and of the rows they failed on, for lancedb's remote client.

The specification has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.jobs import Job
from tidemill.jobs.planning.column_progress import DeclaredColumn
from tidemill.lance.model.queries import TableQuery
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import Fields, namespace_of
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.lancedb_functions import (
    is_registration,
    job_id_of,
    registration,
    stored_name,
    version_json,
    version_number,
)
from tidemill.protocols.lance.requests import table_request

DEFAULT_RECORDS: Final = 10_000
MAX_RECORDS: Final = 100_000
# Number of recent jobs of a table that are searched for failures.
MAX_JOBS: Final = 1000
# Number of rows located by one query.
ROWS_PER_QUERY: Final = 1000
OFFSET_BITS: Final = 32


def create_function(call: Call) -> Response:
    """Registers at once. The job id in the response is that of a job that has already succeeded."""
    ident, body = table_request(call)
    function = call.operations.functions.register(call.caller, registration(ident, body), ident.namespace)
    return json_response({"job_id": job_id_of(function)}, 202)


def describe_function(call: Call) -> Response:
    ident, body = table_request(call)
    name = stored_name(ident)
    registered = call.operations.functions.get(call.caller, ident.namespace, name, _version(body))
    if not is_registration(registered.function):
        raise FunctionNotFound(name)
    return json_response(version_json(registered))


def drop_function(call: Call) -> Response:
    """Columns that use the function keep working. Dropping an unknown function succeeds."""
    ident, body = table_request(call)
    try:
        call.operations.functions.drop(call.caller, ident.namespace, stored_name(ident), _version(body))
    except FunctionNotFound:
        return json_response({"dropped": False})
    return json_response({"dropped": True})


def list_functions(call: Call) -> Response:
    registered = call.operations.functions.list_registered(call.caller, namespace_of(call))
    listed = [version_json(item) for item in registered if is_registration(item.function)]
    return json_response({"functions": [{"definition": version} for version in listed]})


def _version(body: Fields) -> int:
    return version_number(body.required_text("version"), "version")


@dataclass(frozen=True, slots=True)
class _FailedRow:
    """A row on which a function failed, from the error ledger or from a failed job."""

    job_id: str
    row_id: int
    column: str
    digest: str
    error_type: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class _RowAddresses:
    """Row addresses by row id, at a version of the table."""

    version: int
    addresses: Mapping[int, int]


def list_function_errors(call: Call) -> Response:
    """Lists skipped rows and rows that failed their job. The newest job comes first."""
    ident, body = table_request(call)
    body.refuse_unknown({"id", "job_id", "column", "limit"})
    limit = body.integer("limit", 0)
    count = min(DEFAULT_RECORDS if limit is None else limit, MAX_RECORDS)
    declared = {
        name: entry
        for entry in call.operations.columns.list_declared(call.caller, ident)
        for name in entry.column.names
    }
    rows = _failed_rows(call, ident, body, declared, count + 1)
    records = _records(call, ident, rows[:count], declared)
    return json_response({"records": records, "fragments": [], "truncated": len(rows) > count})


def _failed_rows(
    call: Call, ident: TableIdent, body: Fields, declared: Mapping[str, DeclaredColumn], limit: int
) -> Sequence[_FailedRow]:
    column, job_id = body.text("column") or None, body.text("job_id") or None
    job = None if job_id is None else call.operations.jobs.get(call.caller, job_id)
    if (column is not None and column not in declared) or (job is not None and job.table != ident):
        return []
    found = {(row.job_id, row.row_id): row for row in _job_failures(call, ident, job, column, declared)}
    for row in _ledger_errors(call, ident, column, job_id, limit):
        found[row.job_id, row.row_id] = row
    # Job ids increase with time.
    ordered = sorted(found.values(), key=lambda row: row.row_id)
    return sorted(ordered, key=lambda row: row.job_id, reverse=True)[:limit]


def _ledger_errors(
    call: Call, ident: TableIdent, column: str | None, job_id: str | None, limit: int
) -> Iterator[_FailedRow]:
    """Rows in the error ledger, which have no value now."""
    errors = call.operations.provenance.errors(call.caller, ident, column, None, job_id=job_id, limit=limit)
    for name, error in errors:
        failure = error.failure
        if failure.row_id is not None:
            at = error.at or datetime.now(UTC)
            row = error.job_id, failure.row_id, name, error.digest, failure.exception, failure.message, at
            yield _FailedRow(*row)


def _job_failures(
    call: Call, ident: TableIdent, job: Job | None, column: str | None, declared: Mapping[str, DeclaredColumn]
) -> Iterator[_FailedRow]:
    """Rows that failed a job. The ledger no longer has those that got a value since."""
    recent = call.operations.jobs.list_recent
    jobs = recent(call.caller, None, MAX_JOBS, table=ident) if job is None else [job]
    for failed_job in jobs:
        failure, name = failed_job.failure, failed_job.column or ""
        if failure is None or failure.row_id is None or name not in declared or column not in (None, name):
            continue
        digest, kind = declared[name].function.digest, failure.exception or "Exception"
        at = failed_job.finished_at or failed_job.created_at
        yield _FailedRow(failed_job.job_id, failure.row_id, name, digest, kind, failure.message, at)


def _records(
    call: Call, ident: TableIdent, rows: Sequence[_FailedRow], declared: Mapping[str, DeclaredColumn]
) -> list[dict[str, Any]]:
    """Omits deleted rows, which have no address any more."""
    functions = {row.digest: _function(call, row.digest, declared[row.column]) for row in rows}
    records: list[dict[str, Any]] = []
    remaining = iter(rows)
    while chunk := list(islice(remaining, ROWS_PER_QUERY)):
        located = _row_addresses(call, ident, {row.row_id for row in chunk})
        found = [row for row in chunk if row.row_id in located.addresses]
        records += [_record(row, located, functions[row.digest]) for row in found]
    return records


def _record(row: _FailedRow, located: _RowAddresses, function: tuple[str, str]) -> dict[str, Any]:
    address = located.addresses[row.row_id]
    return {
        "job_id": row.job_id,
        "fragment_id": address >> OFFSET_BITS,
        "row_offset": address & ((1 << OFFSET_BITS) - 1),
        "column": row.column,
        "function": function[0],
        "function_version": function[1],
        "table_version": located.version,
        "error_type": row.error_type,
        "error_message": row.message,
        "created_at_millis": int(row.at.timestamp() * 1000),
    }


def _row_addresses(call: Call, ident: TableIdent, row_ids: set[int]) -> _RowAddresses:
    condition = f"_rowid IN ({', '.join(map(str, sorted(row_ids)))})"
    query = TableQuery(limit=len(row_ids), filter=condition, columns=("_rowid", "_rowaddr"))
    rows = call.operations.rows.query(call.caller, ident, query)
    table = rows.to_table()
    pairs = zip(table["_rowid"].to_pylist(), table["_rowaddr"].to_pylist(), strict=True)
    return _RowAddresses(rows.version, dict(pairs))


def _function(call: Call, digest: str, declared: DeclaredColumn) -> tuple[str, str]:
    """The name and version number of a function. A function that is not listed has its digest as version."""
    try:
        found = call.operations.functions.get_by_digest(call.caller, digest)
    except FunctionNotFound:
        return declared.function.name, digest
    name = declared.function.name if digest == declared.function.digest else found.function.name
    return name, str(found.version)


ROUTES: Final = (
    Route("POST", "/v1/function/{id}/create", create_function, BodyKind.ENVELOPE),
    Route("POST", "/v1/function/{id}/describe", describe_function, is_reading=True),
    Route("POST", "/v1/function/{id}/drop", drop_function),
    Route("GET", "/v1/namespace/{id}/function/list", list_functions),
    Route("POST", "/v1/table/{id}/errors", list_function_errors, is_reading=True),
)
