"""What the HTTP boundary tells the audit: what a request is, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Protocol

from starlette.responses import Response

from tidemill.catalog.auditing import AuditedAction, acting
from tidemill.catalog.model.audit import Decision, ObjectKind
from tidemill.errors import ErrorCode, PermissionDenied, Throttled, TidemillError, Unauthenticated
from tidemill.protocols.http.call import Call, Handler

DENIED_STATUSES: Final = frozenset({401, 403, 429})
DENIALS: Final = (Unauthenticated, PermissionDenied, Throttled)
KINDS: Final[Mapping[str, ObjectKind]] = {
    "view": ObjectKind.VIEW,
    "views": ObjectKind.VIEW,
    "register-view": ObjectKind.VIEW,
    "materialized_view": ObjectKind.VIEW,
    "secret": ObjectKind.SECRET,
    "function": ObjectKind.FUNCTION,
}


class AuditTrail(Protocol):
    def succeeded(self, action: AuditedAction, status: int) -> None:
        """Writes the event of a mutation, unless a transaction has done it. Raises WouldBlock."""

    def refused(self, action: AuditedAction, decision: Decision, status: int, error_code: str | None) -> None:
        """Notes a refusal or failure without waiting for anything."""


class _NoAudit:
    """For applications without a database of their own, in tests."""

    def succeeded(self, action: AuditedAction, status: int) -> None:
        return None

    def refused(self, action: AuditedAction, decision: Decision, status: int, error_code: str | None) -> None:
        return None


NO_AUDIT: Final = _NoAudit()


@cache
def object_kind(pattern: str) -> ObjectKind:
    """What identifiers of tables stand for in requests to a route."""
    segments = pattern.split("/")
    return next((KINDS[segment] for segment in segments if segment in KINDS), ObjectKind.TABLE)


def run_audited(handler: Handler, call: Call, action: AuditedAction, audit: AuditTrail) -> Response:
    """The response, once the event of a mutation is stored. Repeatable, like the handler."""
    with acting(action):
        response = handler(call)
        if response.status_code < 400:
            audit.succeeded(action, response.status_code)
        return response


def refuse(
    audit: AuditTrail,
    action: AuditedAction,
    status: int,
    error: TidemillError | None = None,
    code: ErrorCode | None = None,
) -> None:
    known = error.code if error is not None else code
    error_code = action.error_code if known is None else known.value
    is_denied = status in DENIED_STATUSES if error is None else _is_denial(error)
    audit.refused(action, Decision.DENIED if is_denied else Decision.FAILED, status, error_code)


def _is_denial(error: BaseException | None) -> bool:
    """Also if the response hides that the object exists."""
    while error is not None:
        if isinstance(error, DENIALS):
            return True
        error = error.__cause__
    return False
