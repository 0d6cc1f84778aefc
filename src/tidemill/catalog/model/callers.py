"""Callers, their permissions, and receipts.

A receipt is the stored response to a request with an idempotency key, so that a retry has no further effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Permission(StrEnum):
    """What a grant on a namespace subtree allows."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"
    COMPUTE = "compute"
    FUNCTION = "function"
    ADMIN = "admin"


class StorageAccess(Enum):
    """What vended credentials allow."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal on whose behalf an operation runs, and the roles that its credential conveys."""

    principal: str
    roles: frozenset[str] = frozenset()


LOCAL_CALLER: Final = Caller("local")
ANONYMOUS_CALLER: Final = Caller("anonymous")
BACKFILL_CALLER: Final = Caller("auto-backfill")
REFRESH_CALLER: Final = Caller("auto-refresh")
SERVER_CALLER: Final = Caller("tidemill")

OWN_PRINCIPALS: Final = frozenset(
    caller.principal
    for caller in (LOCAL_CALLER, ANONYMOUS_CALLER, BACKFILL_CALLER, REFRESH_CALLER, SERVER_CALLER)
)
"""Principals of the server itself. No client may have one of these names."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """`outcome` is the response, encoded by its protocol. A key is valid only for the same request.

    An outcome never contains credentials.
    """

    key: str
    principal: str
    operation: str
    resource: str
    body_digest: str
    outcome: bytes

    def is_for(self, other: Receipt) -> bool:
        """Whether both belong to the same request."""
        request_key = (self.key, self.principal, self.operation, self.resource, self.body_digest)
        return request_key == (other.key, other.principal, other.operation, other.resource, other.body_digest)
