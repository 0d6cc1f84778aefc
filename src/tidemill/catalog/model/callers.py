"""Callers, their permissions, what their credentials are restricted to, and receipts.

A receipt is the stored response to a request with an idempotency key, so that a retry has no further effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Final

from tidemill.catalog.model.identifiers import NamespacePath

ROOT: Final = NamespacePath()


class Permission(StrEnum):
    """What a grant on a namespace subtree, a table, a view or a function allows."""

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
class Scope:
    """What a credential is restricted to; it allows nothing that its principal is not granted.

    `permissions` is None for a credential that conveys all permissions of its principal.
    """

    permissions: frozenset[Permission] | None = None
    namespace: NamespacePath = ROOT


@dataclass(frozen=True, slots=True)
class Caller:
    """The principal on whose behalf an operation runs, and what is known from its credential.

    `roles` are those that the credential conveys; the roles of the catalog come on top. `key` is the name of
    the API key, also if the credential is a token that was issued for it.
    """

    principal: str
    roles: frozenset[str] = frozenset()
    scope: Scope | None = None
    expires_at: datetime | None = field(default=None, compare=False)
    key: str = field(default="", compare=False)


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


def is_deployment(owner: Caller | None) -> bool:
    """Whether an object belongs to the server itself, and not to one of its clients.

    None is the owner of what is older than owners. A server without clients has only the local caller.
    """
    return owner is None or owner.principal in OWN_PRINCIPALS


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
