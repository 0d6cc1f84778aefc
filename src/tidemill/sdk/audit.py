"""Audit events as a Python user sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidemill.sdk.names import DEFAULT_DELIMITER, Name, dotted, joined_id, levels_of


@dataclass(frozen=True, slots=True)
class AuditedObject:
    """`kind` is what docs/protocols/audit.md lists, such as `table` or `client`; `name` has dots."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """Something that was done or refused.

    `is_claimed` means that the request was refused and its principal not proven. `is_committed` means that
    the event was committed together with the change. An event with a `count` above 1 stands for as many
    refusals.
    """

    event_id: str
    at: datetime
    principal: str | None
    is_claimed: bool
    address: str | None
    request_id: str | None
    protocol: str
    operation: str
    objects: tuple[AuditedObject, ...]
    objects_omitted: int
    decision: str
    status: int | None
    error_code: str | None
    job_id: str | None
    is_committed: bool
    count: int
    raw: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The event as the server returned it."""
        return dict(self.raw)


def audit_event(body: Mapping[str, Any]) -> AuditEvent:
    known = {name: body[name] for name in AuditEvent.__slots__ if name in body}
    objects = tuple(AuditedObject(found["kind"], _name(found)) for found in body["objects"])
    return AuditEvent(**{**known, "at": datetime.fromisoformat(body["at"]), "objects": objects, "raw": body})


def named_object(name: Name | None) -> dict[str, str]:
    """The query for one object; always with the delimiter, because dots may be part of a name."""
    if name is None:
        return {}
    joined, params = joined_id(levels_of(name))
    return {"object": joined, "delimiter": DEFAULT_DELIMITER, **params}


def time_text(at: datetime | None) -> str | None:
    """A time without a zone is local, as everywhere in Python."""
    return None if at is None else at.astimezone(UTC).isoformat()


def _name(found: Mapping[str, Any]) -> str:
    levels = found.get("levels")
    return found["name"] if levels is None else dotted(levels)
