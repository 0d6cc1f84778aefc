"""Errors of the management API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from tidemill.errors import ErrorCode
from tidemill.protocols.http.app import Refusal
from tidemill.protocols.http.call import json_response

MANAGEMENT_STATUSES: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.NAMESPACE_NOT_FOUND: 404,
    ErrorCode.NAMESPACE_ALREADY_EXISTS: 409,
    ErrorCode.NAMESPACE_NOT_EMPTY: 409,
    ErrorCode.TABLE_NOT_FOUND: 404,
    ErrorCode.TABLE_ALREADY_EXISTS: 409,
    ErrorCode.TABLE_VERSION_NOT_FOUND: 404,
    ErrorCode.TABLE_VERSION_ALREADY_EXISTS: 409,
    ErrorCode.TABLE_COLUMN_NOT_FOUND: 404,
    ErrorCode.TABLE_INDEX_NOT_FOUND: 404,
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: 409,
    ErrorCode.TABLE_TAG_NOT_FOUND: 404,
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: 409,
    ErrorCode.BRANCH_NOT_FOUND: 404,
    ErrorCode.BRANCH_ALREADY_EXISTS: 409,
    ErrorCode.TRANSACTION_NOT_FOUND: 404,
    ErrorCode.INVALID_TABLE_STATE: 409,
    ErrorCode.INVALID_TABLE_SCHEMA: 400,
    ErrorCode.FUNCTION_NOT_FOUND: 404,
    ErrorCode.MANIFEST_NOT_FOUND: 404,
    ErrorCode.VIEW_NOT_FOUND: 404,
    ErrorCode.SECRET_NOT_FOUND: 404,
    ErrorCode.SECRET_ALREADY_EXISTS: 409,
    ErrorCode.PRINCIPAL_NOT_FOUND: 404,
    ErrorCode.PRINCIPAL_ALREADY_EXISTS: 409,
    ErrorCode.JOB_NOT_FOUND: 404,
    ErrorCode.JOB_ALREADY_ACTIVE: 409,
    ErrorCode.INVALID_JOB_TRANSITION: 409,
    ErrorCode.LEASE_LOST: 409,
    ErrorCode.CONCURRENT_MODIFICATION: 409,
    ErrorCode.INVALID_INPUT: 400,
    ErrorCode.INVALID_METADATA: 400,
    ErrorCode.UNPROCESSABLE: 422,
    ErrorCode.WAREHOUSE_NOT_FOUND: 404,
    ErrorCode.FILE_NOT_FOUND: 404,
    ErrorCode.PLAN_NOT_FOUND: 404,
    ErrorCode.PLAN_TASK_NOT_FOUND: 404,
    ErrorCode.PAYLOAD_TOO_LARGE: 413,
    ErrorCode.ROUTE_NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.PERMISSION_DENIED: 403,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.THROTTLED: 429,
    ErrorCode.REQUEST_TIMEOUT: 408,
    ErrorCode.UNSUPPORTED: 406,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.STORAGE_FULL: 507,
    # Not 500 or 503, which many HTTP clients retry: the request may have taken effect.
    ErrorCode.COMMIT_STATE_UNKNOWN: 520,
    ErrorCode.INTERNAL: 500,
}


def render_error(refusal: Refusal) -> Response:
    error = {"code": refusal.code.value, "message": refusal.message, "request_id": refusal.request_id}
    return json_response({"error": error}, MANAGEMENT_STATUSES[refusal.code])
