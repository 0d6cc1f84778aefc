"""What is being done now, and for whom: the store reads it to write the audit row of a transaction.

Whoever begins something (the HTTP boundary a request, a worker a job, a maintenance task its round) enters
`acting(action)`. The first transaction inside that changes anything commits the action's audit row together
with the change, so neither can exist without the other; see `tidemill.store.audit`. The operations inside
need not know: the objects are those that they ask the authorizer about, or those that they name with
`note_object`.

Repairs that any process may make at any time are not part of what the caller asked for. They run in
`acting(None)`, or in an action of the server.

The action is a context variable. Whoever hands work to another thread hands the action on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from tidemill.catalog.model.audit import (
    MAX_TEXT,
    AuditEvent,
    AuditObject,
    AuditProtocol,
    Decision,
    ObjectKind,
    new_event_id,
)
from tidemill.catalog.model.callers import SERVER_CALLER
from tidemill.catalog.model.identifiers import Securable

MAX_OBJECTS: Final = 100


@dataclass(slots=True)
class AuditedAction:
    """What is known so far. `is_mutation`: its transactions write the audit row.

    `named` are the objects that the operation names itself, `checked` those it needed permissions on.
    """

    principal: str
    protocol: AuditProtocol
    operation: str
    address: str = ""
    request_id: str = ""
    is_mutation: bool = True
    object_kind: ObjectKind = ObjectKind.TABLE
    job_id: str | None = None
    is_claimed: bool = False
    error_code: str | None = None
    named: dict[AuditObject, None] = field(default_factory=dict)
    checked: dict[AuditObject, None] = field(default_factory=dict)
    event_id: UUID = field(default_factory=new_event_id)
    # The event as the database has it.
    recorded: AuditEvent | None = None

    def event(
        self,
        decision: Decision = Decision.ALLOWED,
        *,
        status: int | None = None,
        error_code: str | None = None,
        is_committed: bool = False,
    ) -> AuditEvent:
        objects = tuple(self.named or self.checked)
        return AuditEvent(
            event_id=self.event_id,
            principal=self.principal[:MAX_TEXT],
            protocol=self.protocol,
            operation=self.operation,
            decision=decision,
            address=self.address[:MAX_TEXT],
            request_id=self.request_id,
            is_claimed=self.is_claimed,
            objects=objects[:MAX_OBJECTS],
            objects_omitted=max(len(objects) - MAX_OBJECTS, 0),
            status=status,
            error_code=error_code,
            job_id=self.job_id,
            is_committed=is_committed,
        )

    def publishing(self) -> AuditedAction:
        """The action of one commit: each commit of a job is one of its own."""
        if self.protocol is not AuditProtocol.WORKER:
            return self
        return replace(self, is_mutation=True, named={}, checked={}, event_id=new_event_id(), recorded=None)


_current: Final[ContextVar[AuditedAction | None]] = ContextVar("audited_action", default=None)


def current_action() -> AuditedAction | None:
    return _current.get()


@contextmanager
def acting(action: AuditedAction | None) -> Iterator[None]:
    """What happens in the block belongs to this action; with None, to none."""
    token = _current.set(action)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def acting_as_server(operation: str, resource: Securable | None = None) -> Iterator[None]:
    """For changes that nobody asked for."""
    action = AuditedAction(SERVER_CALLER.principal, AuditProtocol.SERVER, operation)
    with acting(action):
        if resource is not None:
            note_object(resource)
        yield


def note_object(resource: Securable, kind: ObjectKind | None = None) -> None:
    """Names an object of the current action, instead of those whose permissions are checked."""
    action = _current.get()
    if action is not None:
        action.named[AuditObject.of(resource, kind or action.object_kind)] = None


def note_named(kind: ObjectKind, name: str) -> None:
    """Names an object that is in no namespace."""
    action = _current.get()
    if action is not None:
        action.named[AuditObject(kind, name=name[:MAX_TEXT])] = None


def note_checked(resource: Securable) -> None:
    action = _current.get()
    if action is not None:
        action.checked[AuditObject.of(resource, action.object_kind)] = None


def note_job(job_id: str) -> None:
    action = _current.get()
    if action is not None and action.protocol is not AuditProtocol.WORKER:
        action.job_id = job_id[:MAX_TEXT]


def note_principal(principal: str) -> None:
    """For requests that prove who they are in the body."""
    action = _current.get()
    if action is not None:
        action.principal, action.is_claimed = principal, False


def note_claim(principal: str) -> None:
    """The credential names this principal, but does not prove it."""
    action = _current.get()
    if action is not None:
        action.principal, action.is_claimed = principal, True


def note_failure(error_code: str) -> None:
    """For errors that do not reach the HTTP boundary as exceptions."""
    action = _current.get()
    if action is not None:
        action.error_code = error_code
