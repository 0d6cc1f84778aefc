"""The route of the audit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from starlette.responses import Response

from tidemill.catalog.model.audit import AuditFilter, Decision
from tidemill.catalog.model.identifiers import NamespacePath, namespace_path
from tidemill.catalog.model.json_values import read_choice
from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import DEFAULT_DELIMITER, delimiter_of, split_id
from tidemill.protocols.http.routing import Route
from tidemill.protocols.management.mapping import page_limit

PARAMETERS: Final = frozenset(
    {
        "principal",
        "object",
        "operation",
        "decision",
        "request_id",
        "job_id",
        "since",
        "until",
        "limit",
        "page_token",
        "delimiter",
    }
)


def list_audit_events(call: Call) -> Response:
    unknown = sorted(call.query.keys() - PARAMETERS)
    if unknown:
        raise InvalidInput(f"{unknown[0]:.60}", f"is not a filter; use {', '.join(sorted(PARAMETERS))}")
    limit, decision = page_limit(call), call.query.get("decision")
    wanted = AuditFilter(
        principal=call.query.get("principal") or None,
        under=_object(call),
        operation=call.query.get("operation") or None,
        decision=read_choice(Decision, decision, "decision") if decision else None,
        request_id=call.query.get("request_id") or None,
        job_id=call.query.get("job_id") or None,
        since=_time(call, "since"),
        until=_time(call, "until"),
    )
    page = Page(_after(call), limit + 1)
    events = call.operations.audit.list_events(call.caller, wanted, page)
    token = str(events[limit - 1].event_id) if len(events) > limit else None
    return json_response(
        without_nulls({"events": [event.as_json() for event in events[:limit]], "page_token": token})
    )


def _object(call: Call) -> NamespacePath | None:
    """Accepts dots between the levels, as people write them, and the delimiter of paths."""
    raw = call.query.get("object")
    if not raw:
        return None
    is_dotted = "delimiter" not in call.query and DEFAULT_DELIMITER not in raw
    return namespace_path(split_id(raw, "." if is_dotted else delimiter_of(call)), "object")


def _time(call: Call, key: str) -> datetime | None:
    raw = call.query.get(key)
    if not raw:
        return None
    try:
        # A plus sign in a query is a space.
        at = datetime.fromisoformat(raw.replace(" ", "+") if "T" in raw else raw)
    except ValueError as error:
        raise InvalidInput(
            key, f"{raw!r:.60} is not an ISO 8601 time such as 2026-01-31T12:00:00Z"
        ) from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _after(call: Call) -> str | None:
    raw = call.query.get("page_token")
    if not raw:
        return None
    try:
        return str(UUID(raw))
    except ValueError as error:
        raise InvalidInput("page_token", "is not a token of an earlier response") from error


ROUTES: Final = (Route("GET", "/api/v1/audit", list_audit_events),)
