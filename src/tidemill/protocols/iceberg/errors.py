"""Maps every error code to an error type and HTTP status of the Iceberg protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.errors import (
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableAlreadyExists,
    TableNotFound,
)
from tidemill.errors import ErrorCode, TidemillError
from tidemill.iceberg.errors import IcebergTableNotFound, IcebergViewNotFound
from tidemill.protocols.http.app import Refusal
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.routing import Route


@dataclass(frozen=True, slots=True)
class IcebergError:
    """Clients decide by status and route; the type tells them what is missing."""

    type: str
    status: int


ICEBERG_ERRORS: Final[Mapping[ErrorCode, IcebergError]] = {
    ErrorCode.NAMESPACE_NOT_FOUND: IcebergError("NoSuchNamespaceException", 404),
    ErrorCode.NAMESPACE_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.NAMESPACE_NOT_EMPTY: IcebergError("NamespaceNotEmptyException", 409),
    ErrorCode.TABLE_NOT_FOUND: IcebergError("NoSuchTableException", 404),
    ErrorCode.TABLE_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.TABLE_VERSION_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.TABLE_VERSION_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.TABLE_COLUMN_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.TABLE_INDEX_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.TABLE_TAG_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.BRANCH_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.BRANCH_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.TRANSACTION_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.INVALID_TABLE_STATE: IcebergError("ValidationException", 400),
    ErrorCode.INVALID_TABLE_SCHEMA: IcebergError("ValidationException", 400),
    ErrorCode.FUNCTION_NOT_FOUND: IcebergError("NoSuchFunctionException", 404),
    ErrorCode.MANIFEST_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.VIEW_NOT_FOUND: IcebergError("NoSuchViewException", 404),
    ErrorCode.SECRET_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.SECRET_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.PRINCIPAL_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.PRINCIPAL_ALREADY_EXISTS: IcebergError("AlreadyExistsException", 409),
    ErrorCode.JOB_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.JOB_ALREADY_ACTIVE: IcebergError("AlreadyExistsException", 409),
    ErrorCode.INVALID_JOB_TRANSITION: IcebergError("ValidationException", 400),
    ErrorCode.LEASE_LOST: IcebergError("CommitFailedException", 409),
    ErrorCode.CONCURRENT_MODIFICATION: IcebergError("CommitFailedException", 409),
    ErrorCode.INVALID_INPUT: IcebergError("BadRequestException", 400),
    # Java shows the message to users only for this type.
    ErrorCode.INVALID_METADATA: IcebergError("IllegalArgumentException", 400),
    ErrorCode.UNPROCESSABLE: IcebergError("UnprocessableEntityException", 422),
    ErrorCode.WAREHOUSE_NOT_FOUND: IcebergError("NoSuchWarehouseException", 404),
    ErrorCode.FILE_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.PLAN_NOT_FOUND: IcebergError("NoSuchPlanIdException", 404),
    ErrorCode.PLAN_TASK_NOT_FOUND: IcebergError("NoSuchPlanTaskException", 404),
    ErrorCode.PAYLOAD_TOO_LARGE: IcebergError("PayloadTooLargeException", 413),
    ErrorCode.ROUTE_NOT_FOUND: IcebergError("NotFoundException", 404),
    ErrorCode.METHOD_NOT_ALLOWED: IcebergError("MethodNotAllowedException", 405),
    ErrorCode.PERMISSION_DENIED: IcebergError("ForbiddenException", 403),
    ErrorCode.UNAUTHENTICATED: IcebergError("NotAuthorizedException", 401),
    ErrorCode.THROTTLED: IcebergError("SlowDownException", 429),
    ErrorCode.REQUEST_TIMEOUT: IcebergError("RequestTimeoutException", 408),
    ErrorCode.UNSUPPORTED: IcebergError("UnsupportedOperationException", 406),
    # Sent with Retry-After, which makes Java repeat the commit with the same key.
    ErrorCode.UNAVAILABLE: IcebergError("SlowDownException", 503),
    # The specification has no 507.
    ErrorCode.STORAGE_FULL: IcebergError("SlowDownException", 503),
    # Clients then keep the files they wrote: these may have become part of the table.
    ErrorCode.COMMIT_STATE_UNKNOWN: IcebergError("CommitStateUnknownException", 500),
    ErrorCode.INTERNAL: IcebergError("InternalServerError", 500),
}

COMMIT_PATHS: Final = (
    "/namespaces/{namespace}/tables/{table}",
    "/namespaces/{namespace}/views/{view}",
    "/transactions/commit",
)


def render_error(refusal: Refusal) -> Response:
    iceberg_error = ICEBERG_ERRORS[refusal.code]
    if refusal.code is ErrorCode.INTERNAL and _is_commit(refusal.operation):
        iceberg_error = ICEBERG_ERRORS[ErrorCode.COMMIT_STATE_UNKNOWN]
    message = refusal.message if refusal.error is None else message_of(refusal.error)
    return json_response(error_body(iceberg_error, message), iceberg_error.status)


def error_body(iceberg_error: IcebergError, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": iceberg_error.type, "code": iceberg_error.status}}


def message_of(error: TidemillError) -> str:
    """The message of Iceberg's own catalogs for the same error; their test suites compare it."""
    match error:
        case NamespaceNotFound():
            return f"Namespace does not exist: {error.path}"
        case NamespaceAlreadyExists():
            return f"Namespace already exists: {error.path}"
        case NamespaceNotEmpty():
            return f"Namespace {error.path} is not empty."
        case TableNotFound():
            return f"Table does not exist: {error.table}"
        case TableAlreadyExists():
            return f"Table already exists: {error.table}"
        case _:
            return str(error)


def with_near_names(route: Route) -> Route:
    """The route with refusals that say which names are near that of a missing table or view."""
    if route.method == "HEAD":
        return route

    def handler(call: Call) -> Response:
        try:
            return route.handler(call)
        except TidemillError as error:
            add_near_names(call, error)
            raise

    return replace(route, handler=handler)


def add_near_names(call: Call, error: TidemillError) -> None:
    """Only to the message of a missing table or view, at its end: clients compare how messages begin."""
    if not isinstance(error, IcebergTableNotFound | IcebergViewNotFound) or error.holder is not None:
        return
    if near := call.operations.name_hints.near(call.caller, error.ident):
        error.args = (f"{error}; did you mean {' or '.join(near)}?",)


def _is_commit(operation: str) -> bool:
    method, _, pattern = operation.partition(" ")
    return method == "POST" and pattern.endswith(COMMIT_PATHS)
