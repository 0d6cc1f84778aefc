"""Error codes and the errors that all packages share. Every code has its own class."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class ErrorCode(StrEnum):
    """What went wrong, independent of any protocol."""

    NAMESPACE_NOT_FOUND = "namespace_not_found"
    NAMESPACE_ALREADY_EXISTS = "namespace_already_exists"
    NAMESPACE_NOT_EMPTY = "namespace_not_empty"
    TABLE_NOT_FOUND = "table_not_found"
    TABLE_ALREADY_EXISTS = "table_already_exists"
    TABLE_VERSION_NOT_FOUND = "table_version_not_found"
    TABLE_VERSION_ALREADY_EXISTS = "table_version_already_exists"
    TABLE_COLUMN_NOT_FOUND = "table_column_not_found"
    TABLE_INDEX_NOT_FOUND = "table_index_not_found"
    TABLE_INDEX_ALREADY_EXISTS = "table_index_already_exists"
    TABLE_TAG_NOT_FOUND = "table_tag_not_found"
    TABLE_TAG_ALREADY_EXISTS = "table_tag_already_exists"
    BRANCH_NOT_FOUND = "branch_not_found"
    BRANCH_ALREADY_EXISTS = "branch_already_exists"
    TRANSACTION_NOT_FOUND = "transaction_not_found"
    INVALID_TABLE_STATE = "invalid_table_state"
    INVALID_TABLE_SCHEMA = "invalid_table_schema"
    FUNCTION_NOT_FOUND = "function_not_found"
    MANIFEST_NOT_FOUND = "manifest_not_found"
    VIEW_NOT_FOUND = "view_not_found"
    SECRET_NOT_FOUND = "secret_not_found"
    SECRET_ALREADY_EXISTS = "secret_already_exists"
    PRINCIPAL_NOT_FOUND = "principal_not_found"
    PRINCIPAL_ALREADY_EXISTS = "principal_already_exists"
    JOB_NOT_FOUND = "job_not_found"
    JOB_ALREADY_ACTIVE = "job_already_active"
    INVALID_JOB_TRANSITION = "invalid_job_transition"
    LEASE_LOST = "lease_lost"
    CONCURRENT_MODIFICATION = "concurrent_modification"
    INVALID_INPUT = "invalid_input"
    INVALID_METADATA = "invalid_metadata"
    UNPROCESSABLE = "unprocessable"
    WAREHOUSE_NOT_FOUND = "warehouse_not_found"
    FILE_NOT_FOUND = "file_not_found"
    PLAN_NOT_FOUND = "plan_not_found"
    PLAN_TASK_NOT_FOUND = "plan_task_not_found"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    PERMISSION_DENIED = "permission_denied"
    UNAUTHENTICATED = "unauthenticated"
    THROTTLED = "throttled"
    REQUEST_TIMEOUT = "request_timeout"
    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    STORAGE_FULL = "storage_full"
    COMMIT_STATE_UNKNOWN = "commit_state_unknown"
    INTERNAL = "internal"


class TidemillError(Exception):
    """Base of all our errors. Every protocol maps the code to a response."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL


class InvalidInput(TidemillError):
    """A field has an invalid value. The message names the field and says what is valid."""

    code = ErrorCode.INVALID_INPUT

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class PayloadTooLarge(TidemillError):
    code = ErrorCode.PAYLOAD_TOO_LARGE

    def __init__(self, what: str, limit_bytes: int) -> None:
        super().__init__(f"{what} is larger than the limit of {limit_bytes:,} bytes")


class Unsupported(TidemillError):
    """The operation or option is known, but this server does not support it."""

    code = ErrorCode.UNSUPPORTED


class Unprocessable(TidemillError):
    """Each part of the request is valid, but the parts contradict each other."""

    code = ErrorCode.UNPROCESSABLE


class WarehouseNotFound(TidemillError):
    code = ErrorCode.WAREHOUSE_NOT_FOUND

    def __init__(self, name: str, known: str) -> None:
        super().__init__(f"Unknown warehouse {name!r:.200}; this server's warehouse is {known!r}")


class Unauthenticated(TidemillError):
    """The request has no valid credential. The message says how to send one.

    `token_problem` is what is wrong with a bearer token, in plain ASCII without quotes.
    """

    code = ErrorCode.UNAUTHENTICATED

    def __init__(self, message: str, token_problem: str | None = None) -> None:
        super().__init__(message)
        self.token_problem = token_problem


class PermissionDenied(TidemillError):
    code = ErrorCode.PERMISSION_DENIED

    def __init__(self, principal: str, permission: str, resource: str) -> None:
        super().__init__(f"{principal} lacks the permission '{permission}' on {resource}")


class UntrustedOrigin(PermissionDenied):
    """A server without authentication was asked under a foreign name, or by a page from elsewhere."""

    def __init__(self, header: str, value: str) -> None:
        Exception.__init__(
            self,
            f"{header}: this server has no authentication, so it refuses {value!r:.200}. "
            "Use a loopback address, name the host in TIDEMILL_ALLOWED_HOSTS, or give the server clients",
        )


class Throttled(TidemillError):
    """The caller asks too often, or for more than its share; it may try again after some seconds."""

    code = ErrorCode.THROTTLED

    def __init__(self, problem: str, retry_after_seconds: int) -> None:
        super().__init__(problem)
        self.retry_after_seconds = retry_after_seconds


class RequestTimeout(TidemillError):
    """The request did not arrive in time."""

    code = ErrorCode.REQUEST_TIMEOUT


class RouteNotFound(TidemillError):
    code = ErrorCode.ROUTE_NOT_FOUND

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"There is no operation at {method} {path}")


class MethodNotAllowed(TidemillError):
    code = ErrorCode.METHOD_NOT_ALLOWED

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{path} does not support {method}; use {' or '.join(allowed)}")
        self.allowed = allowed


class Unavailable(TidemillError):
    """The database or the storage does not respond. Nothing was changed; the request may succeed later."""

    code = ErrorCode.UNAVAILABLE


class DatabaseDamaged(Unavailable):
    """The catalog database cannot be read in full."""


class StorageFull(Unavailable):
    """There is no room left to write. Nothing was changed; the request succeeds once there is."""

    code = ErrorCode.STORAGE_FULL

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"No room is left to write {what}: {reason}. Free space or raise the quota, then try again"
        )


class CommitStateUnknown(Unavailable):
    """The outcome of a commit is unknown: the change may or may not have happened.

    Code that catches this must not undo anything, nor delete files that the change may refer to.
    """

    code = ErrorCode.COMMIT_STATE_UNKNOWN


class Deadlock(Unavailable):
    """The database rolled the transaction back to resolve a deadlock; it can be retried immediately."""
