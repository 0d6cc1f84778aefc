"""Routes of computed columns: preview, status, row states, row errors."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.json_values import read_choice
from tidemill.errors import InvalidInput
from tidemill.jobs.model.options import RowSelection
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import read_object, table_of
from tidemill.protocols.http.job_requests import idempotency_key, preview_request
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import page_limit, row_error_json, row_token, status_json

DEFAULT_ROWS: Final = 10_000
MAX_ROWS: Final = 100_000
# Smaller, because each error comes with a traceback.
DEFAULT_ERRORS: Final = 1000
MAX_ERRORS: Final = 10_000


def preview_column(call: Call) -> Response:
    ident = table_of(call)
    request = preview_request(read_object(call.body))
    job = call.operations.jobs.submit_preview(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


def get_column_status(call: Call) -> Response:
    status = call.operations.provenance.status(
        call.caller, table_of(call), call.parameters["column"], _branch(call)
    )
    return json_response(status_json(status))


def list_column_rows(call: Call) -> Response:
    limit = page_limit(call, DEFAULT_ROWS, MAX_ROWS)
    rows = call.operations.provenance.rows(
        call.caller,
        table_of(call),
        call.parameters["column"],
        _branch(call),
        _selection(call),
        row_token(call),
        limit + 1,
    )
    token = str(rows[limit - 1]) if len(rows) > limit else None
    return json_response(without_nulls({"row_ids": list(rows[:limit]), "page_token": token}))


def list_row_errors(call: Call) -> Response:
    """Errors of one column are ordered by row id. A list over several columns has only one page."""
    column, job_id = call.query.get("column") or None, call.query.get("job_id") or None
    limit, after = page_limit(call, DEFAULT_ERRORS, MAX_ERRORS), row_token(call)
    has_pages = column is not None or job_id is not None
    if after is not None and not has_pages:
        raise InvalidInput("page_token", "needs column or job_id; only errors of one column have pages")
    errors = call.operations.provenance.errors(
        call.caller, table_of(call), column, _branch(call), job_id=job_id, after=after, limit=limit + 1
    )
    page = errors[:limit]
    is_more = len(errors) > limit
    body = {
        "errors": [row_error_json(name, error) for name, error in page],
        "page_token": str(page[-1][1].failure.row_id) if is_more and has_pages else None,
        "truncated": True if is_more and not has_pages else None,
    }
    return json_response(without_nulls(body))


def _branch(call: Call) -> str | None:
    return call.query.get("branch") or None


def _selection(call: Call) -> RowSelection:
    raw = call.query.get("selection")
    if not raw:
        known = ", ".join(choice.value for choice in RowSelection)
        raise InvalidInput("selection", f"is missing; it must be one of {known}")
    return read_choice(RowSelection, raw, "selection")


ROUTES: Final = (
    Route("POST", "/api/v1/tables/{id}/preview", preview_column),
    Route("GET", "/api/v1/tables/{id}/columns/{column}/status", get_column_status),
    Route("GET", "/api/v1/tables/{id}/columns/{column}/rows", list_column_rows),
    Route("GET", "/api/v1/tables/{id}/errors", list_row_errors),
)
