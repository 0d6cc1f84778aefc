"""The route that tells lancedb's remote client on which rows functions failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.queries import TableQuery
from tidemill.jobs.model.jobs import Job
from tidemill.jobs.operations.assess import DeclaredColumn
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.responses import json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.requests import table_request

DEFAULT_RECORDS: Final = 10_000
MAX_RECORDS: Final = 100_000
# So many jobs are looked through for failures of a table.
MAX_JOBS: Final = 1000
OFFSET_BITS: Final = 32


def list_function_errors(call: Call) -> Response:
    """A job stops at the first row that fails, so there is at most one for each, the newest first."""
    ident, body = table_request(call)
    body.refuse_unknown({"id", "job_id", "column", "limit"})
    limit = body.integer("limit", 0)
    wanted = min(DEFAULT_RECORDS if limit is None else limit, MAX_RECORDS)
    columns = {
        name: declared
        for declared in call.operations.columns.list_declared(call.caller, ident)
        for name in declared.column.names
    }
    jobs = [job for job in _failed_jobs(call, ident, body) if job.column in columns]
    records = [_record(call, ident, job, columns[job.column or ""]) for job in jobs[:wanted]]
    found = [record for record in records if record is not None]
    return json_response({"records": found, "fragments": [], "truncated": len(jobs) > wanted})


def _failed_jobs(call: Call, ident: TableIdent, body: Fields) -> Iterator[Job]:
    job_id, column = body.text("job_id"), body.text("column")
    jobs = call.operations.jobs
    candidates = (
        jobs.list_recent(call.caller, None, MAX_JOBS) if job_id is None else [jobs.get(call.caller, job_id)]
    )
    for job in candidates:
        is_meant = job.table == ident and column in {None, job.column}
        if is_meant and job.failure is not None and job.failure.row_id is not None:
            yield job


def _record(call: Call, ident: TableIdent, job: Job, declared: DeclaredColumn) -> dict[str, Any] | None:
    """None when the row is gone: nobody could find it by what is told here."""
    failure = job.failure
    assert failure is not None
    query = TableQuery(limit=1, filter=f"_rowid = {failure.row_id}", columns=("_rowaddr",))
    rows = call.operations.rows.query(call.caller, ident, query)
    addresses = rows.to_table()["_rowaddr"].to_pylist()
    if not addresses:
        return None
    ended = job.finished_at or job.created_at
    return without_nulls(
        {
            "job_id": job.job_id,
            "fragment_id": addresses[0] >> OFFSET_BITS,
            "row_offset": addresses[0] & ((1 << OFFSET_BITS) - 1),
            "column": job.column,
            "function": declared.function.name,
            "function_version": _version(call, declared),
            "table_version": rows.version,
            "error_type": failure.exception or "Exception",
            "error_message": failure.message,
            "created_at_millis": int(ended.timestamp() * 1000),
        }
    )


def _version(call: Call, declared: DeclaredColumn) -> str:
    """By number; of a function that is on no list, its digest."""
    digest = declared.function.digest
    try:
        return str(call.operations.functions.get_by_digest(call.caller, digest).version)
    except FunctionNotFound:
        return digest


ROUTES: Final = (Route("POST", "/v1/table/{id}/errors", list_function_errors),)
