"""Errors of the Lance protocol: maps our error codes to its codes and statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from tidemill.errors import ErrorCode
from tidemill.protocols.http.app import Refusal
from tidemill.protocols.http.call import json_response
from tidemill.protocols.lance.requests import is_lancedb


@dataclass(frozen=True, slots=True)
class LanceError:
    """Clients go by `code`; proxies and people see `status`."""

    code: int
    status: int


LANCE_ERRORS: Final[Mapping[ErrorCode, LanceError]] = {
    ErrorCode.NAMESPACE_NOT_FOUND: LanceError(1, 404),
    ErrorCode.NAMESPACE_ALREADY_EXISTS: LanceError(2, 409),
    ErrorCode.NAMESPACE_NOT_EMPTY: LanceError(3, 409),
    ErrorCode.TABLE_NOT_FOUND: LanceError(4, 404),
    ErrorCode.TABLE_ALREADY_EXISTS: LanceError(5, 409),
    ErrorCode.TABLE_VERSION_NOT_FOUND: LanceError(11, 404),
    ErrorCode.TABLE_VERSION_ALREADY_EXISTS: LanceError(14, 409),
    ErrorCode.TABLE_COLUMN_NOT_FOUND: LanceError(12, 404),
    ErrorCode.TABLE_INDEX_NOT_FOUND: LanceError(6, 404),
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: LanceError(7, 409),
    ErrorCode.TABLE_TAG_NOT_FOUND: LanceError(8, 404),
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: LanceError(9, 409),
    ErrorCode.BRANCH_NOT_FOUND: LanceError(22, 404),
    ErrorCode.BRANCH_ALREADY_EXISTS: LanceError(23, 409),
    ErrorCode.TRANSACTION_NOT_FOUND: LanceError(10, 404),
    ErrorCode.INVALID_TABLE_STATE: LanceError(19, 409),
    ErrorCode.INVALID_TABLE_SCHEMA: LanceError(20, 400),
    ErrorCode.FUNCTION_NOT_FOUND: LanceError(13, 400),
    ErrorCode.MANIFEST_NOT_FOUND: LanceError(13, 400),
    ErrorCode.VIEW_NOT_FOUND: LanceError(4, 404),
    # The protocol has no codes for secrets; clients go by the status.
    ErrorCode.SECRET_NOT_FOUND: LanceError(10, 404),
    ErrorCode.SECRET_ALREADY_EXISTS: LanceError(14, 409),
    ErrorCode.PRINCIPAL_NOT_FOUND: LanceError(10, 404),
    ErrorCode.PRINCIPAL_ALREADY_EXISTS: LanceError(14, 409),
    ErrorCode.JOB_NOT_FOUND: LanceError(10, 404),
    ErrorCode.JOB_ALREADY_ACTIVE: LanceError(14, 409),
    ErrorCode.INVALID_JOB_TRANSITION: LanceError(14, 409),
    ErrorCode.LEASE_LOST: LanceError(14, 409),
    ErrorCode.CONCURRENT_MODIFICATION: LanceError(14, 409),
    ErrorCode.INVALID_INPUT: LanceError(13, 400),
    ErrorCode.INVALID_METADATA: LanceError(13, 400),
    ErrorCode.UNPROCESSABLE: LanceError(13, 422),
    ErrorCode.WAREHOUSE_NOT_FOUND: LanceError(1, 404),
    ErrorCode.FILE_NOT_FOUND: LanceError(4, 404),
    ErrorCode.PLAN_NOT_FOUND: LanceError(10, 404),
    ErrorCode.PLAN_TASK_NOT_FOUND: LanceError(10, 404),
    ErrorCode.PAYLOAD_TOO_LARGE: LanceError(13, 413),
    # Probably a newer operation, which its client should see as unsupported.
    ErrorCode.ROUTE_NOT_FOUND: LanceError(0, 404),
    ErrorCode.METHOD_NOT_ALLOWED: LanceError(13, 405),
    ErrorCode.PERMISSION_DENIED: LanceError(15, 403),
    ErrorCode.UNAUTHENTICATED: LanceError(16, 401),
    ErrorCode.THROTTLED: LanceError(21, 429),
    ErrorCode.REQUEST_TIMEOUT: LanceError(13, 408),
    ErrorCode.UNSUPPORTED: LanceError(0, 406),
    ErrorCode.UNAVAILABLE: LanceError(17, 503),
    # lancedb does not retry 507: the disk is still full a second later.
    ErrorCode.STORAGE_FULL: LanceError(17, 507),
    # lancedb retries every write, even inserts, after 409, 429, 500, 502, 503 and 504, and after no other.
    ErrorCode.COMMIT_STATE_UNKNOWN: LanceError(18, 520),
    ErrorCode.INTERNAL: LanceError(18, 500),
}


ALREADY_EXISTS: Final = frozenset({ErrorCode.TABLE_ALREADY_EXISTS, ErrorCode.TABLE_INDEX_ALREADY_EXISTS})


def render_error(refusal: Refusal) -> Response:
    lance_error = LANCE_ERRORS[refusal.code]
    body = {"error": refusal.message, "code": lance_error.code, "instance": refusal.request_id}
    return json_response(body, _status(refusal, lance_error))


def _status(refusal: Refusal, lance_error: LanceError) -> int:
    """lancedb's remote client recognizes an existing table only by status 400 and the text of the message.

    It retries a 409 until it gives up, and the user never sees the message.
    """
    if refusal.code in ALREADY_EXISTS and is_lancedb(refusal.headers):
        return 400
    return lance_error.status
