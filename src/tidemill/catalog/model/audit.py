"""Audit events: who did, or was refused, what to which objects. docs/protocols/audit.md is their schema."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from tidemill.catalog.model.identifiers import FunctionIdent, NamespacePath, Securable, TableIdent

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TEXT: Final = 256
RANDOM_BITS: Final = 62
TIME_SHIFT: Final = 80


class Decision(StrEnum):
    """`DENIED`: the caller was not allowed to. `FAILED`: it was, but the request could not be carried out."""

    ALLOWED = "allowed"
    DENIED = "denied"
    FAILED = "failed"


class AuditProtocol(StrEnum):
    """How it was asked for. `WORKER` publishes results of jobs, `SERVER` acts without being asked."""

    LANCE = "lance"
    ICEBERG = "iceberg"
    MANAGEMENT = "management"
    WORKER = "worker"
    SERVER = "server"


class ObjectKind(StrEnum):
    NAMESPACE = "namespace"
    TABLE = "table"
    VIEW = "view"
    SECRET = "secret"
    FUNCTION = "function"
    MANIFEST = "manifest"
    CLIENT = "client"
    ROLE = "role"
    PERMISSION = "permission"


@dataclass(frozen=True, slots=True)
class AuditObject:
    """Objects in namespaces have `levels`, others a `name`."""

    kind: ObjectKind
    levels: tuple[str, ...] | None = None
    name: str | None = None

    @classmethod
    def of(cls, resource: Securable, kind: ObjectKind) -> AuditObject:
        """`kind` is what an identifier of a table stands for."""
        match resource:
            case NamespacePath():
                return cls(ObjectKind.NAMESPACE, resource.levels)
            case FunctionIdent():
                return cls(ObjectKind.FUNCTION, resource.levels)
            case TableIdent():
                return cls(kind, resource.levels)

    def is_under(self, path: NamespacePath) -> bool:
        return self.levels is not None and self.levels[: len(path.levels)] == path.levels

    def as_json(self) -> dict[str, Any]:
        named = {"name": self.name} if self.levels is None else {"levels": list(self.levels)}
        return {"kind": self.kind.value, **named}


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One row and one log line. Never contains anything from a request's body, headers or query but names.

    `is_claimed`: the principal is what a refused request claimed to be. `is_committed`: the row was committed
    together with the change. `objects_omitted` is the number of further objects. `count` is the number of
    refusals that the event stands for.
    """

    event_id: UUID
    principal: str
    protocol: AuditProtocol
    operation: str
    decision: Decision
    address: str = ""
    request_id: str = ""
    is_claimed: bool = False
    objects: tuple[AuditObject, ...] = ()
    objects_omitted: int = 0
    status: int | None = None
    error_code: str | None = None
    job_id: str | None = None
    is_committed: bool = False
    count: int = 1

    @property
    def at(self) -> datetime:
        return time_of(self.event_id)

    def as_json(self) -> dict[str, Any]:
        return {
            "event_id": str(self.event_id),
            "at": self.at.isoformat(timespec="milliseconds"),
            "principal": self.principal or None,
            "is_claimed": self.is_claimed,
            "address": self.address or None,
            "request_id": self.request_id or None,
            "protocol": self.protocol.value,
            "operation": self.operation,
            "objects": [found.as_json() for found in self.objects],
            "objects_omitted": self.objects_omitted,
            "decision": self.decision.value,
            "status": self.status,
            "error_code": self.error_code,
            "job_id": self.job_id,
            "is_committed": self.is_committed,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """`under` is a namespace or table: events about it and everything below. `until` is exclusive.

    `done_by` is a principal whose own events are wanted, without those that merely claimed its name.
    """

    principal: str | None = None
    done_by: str | None = None
    under: NamespacePath | None = None
    operation: str | None = None
    decision: Decision | None = None
    request_id: str | None = None
    job_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING: Final = AuditFilter()


def new_event_id() -> UUID:
    """A UUID of version 7: ids sort by time."""
    low = (0b10 << RANDOM_BITS) | secrets.randbits(RANDOM_BITS)
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    # RFC 9562, 6.2, method 3: the 12 bits after the version hold the fraction of the millisecond.
    return UUID(int=milliseconds << TIME_SHIFT | 7 << 76 | (nanoseconds * 4096 // 1_000_000) << 64 | low)


def first_id_at(at: datetime) -> UUID:
    """The smallest id of an event at that time, or after it."""
    return UUID(int=max((at - EPOCH) // timedelta(milliseconds=1), 0) << TIME_SHIFT)


def time_of(event_id: UUID) -> datetime:
    return EPOCH + timedelta(milliseconds=event_id.int >> TIME_SHIFT)


def printable(text: str) -> str:
    """Escapes control characters and the like, so that a name can neither end a line nor color a terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in text)
