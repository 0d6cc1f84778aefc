"""What a body says about a backfill, a preview, a refresh or a verification."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.declarations import read_options
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest, RefreshRequest, VerifyRequest
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields

IDEMPOTENCY_HEADER: Final = "idempotency-key"
MAX_KEY_LENGTH: Final = 255
# Keys that every body of the Lance protocol may have.
ENVELOPE_KEYS: Final = frozenset({"identity", "context", "id"})


def backfill_request(fields: Fields) -> BackfillRequest:
    request = read_options(BackfillRequest, fields.values, also_known=ENVELOPE_KEYS)
    request.check_options()
    return request


def preview_request(fields: Fields) -> PreviewRequest:
    return read_options(PreviewRequest, fields.values, also_known=ENVELOPE_KEYS)


def refresh_request(fields: Fields) -> RefreshRequest:
    return read_options(RefreshRequest, fields.values, also_known=ENVELOPE_KEYS)


def verify_request(fields: Fields) -> VerifyRequest:
    return read_options(VerifyRequest, fields.values, also_known=ENVELOPE_KEYS)


def require_main_branch(call: Call, table: TableIdent, branch: str | None) -> None:
    """Functions are declared for a table; working on main instead would destroy what the caller protects."""
    if branch is not None and branch != MAIN_BRANCH:
        call.operations.versions.describe(call.caller, table, branch, None)
        raise InvalidInput("branch", f"functions are declared on {MAIN_BRANCH} only, not on {branch!r:.60}")


def idempotency_key(call: Call) -> str | None:
    key = call.headers.get(IDEMPOTENCY_HEADER)
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidInput(IDEMPOTENCY_HEADER, f"has to have 1 to {MAX_KEY_LENGTH} characters")
    return key
