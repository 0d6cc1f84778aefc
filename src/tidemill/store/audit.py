"""Audit events as rows, and how a transaction gets its own.

`SqlStore.transaction()` calls `Recording.before_commit` when a transaction is about to commit. If there is an
action that records (see `tidemill.catalog.auditing`) and the transaction has changed anything, the action's
row is inserted there, so change and row are committed together. The row has the id of its action: when an
operation takes several transactions, or repeats one whose outcome is unknown, there is still one row.

Events that are not a transaction of their own (refusals, failures, changes of storage alone) are added with
`SqlAuditLog.put` after the fact. It replaces what is known of the outcome of the same action.

Each row is a log line as well. Settings can turn off either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import orjson
import structlog
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    false,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from tidemill.catalog.auditing import AuditedAction, current_action
from tidemill.catalog.model.audit import (
    EVERYTHING,
    AuditEvent,
    AuditFilter,
    AuditObject,
    AuditProtocol,
    Decision,
    ObjectKind,
    first_id_at,
    printable,
)
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.schema import audit_events

Upsert: TypeAlias = postgresql.Insert | sqlite.Insert

# What later transactions and the response may add.
CHANGING: Final = ("decision", "status", "error_code", "objects", "objects_omitted", "job_id")
MAX_REMOVED: Final = 1000

log = structlog.get_logger("tidemill.audit")


def _upsert(upsert: Upsert) -> CompiledStatement:
    changes = {name: upsert.excluded[name] for name in CHANGING}
    return CompiledStatement(upsert.on_conflict_do_update(index_elements=["event_id"], set_=changes))


def _values() -> dict[str, ColumnElement[Any]]:
    return {column.name: bindparam(column.name, type_=column.type) for column in audit_events.c}


PUT: Final = {
    "postgresql": _upsert(postgresql.insert(audit_events).values(_values())),
    "sqlite": _upsert(sqlite.insert(audit_events).values(_values())),
}


@dataclass(frozen=True, slots=True)
class AuditOutput:
    """Where events go."""

    rows: bool = True
    lines: bool = True


@dataclass(frozen=True, slots=True)
class Recorded:
    """An action whose row was written in a transaction that has not committed yet."""

    action: AuditedAction
    event: AuditEvent


class Recording:
    """Writes the rows of actions in their transactions."""

    def __init__(self, output: AuditOutput) -> None:
        self._output = output

    def before_commit(self, connection: Connection, *, has_changed: bool) -> Recorded | None:
        """Adds the row of the current action, if there is one and the transaction has changed anything."""
        action = current_action()
        if action is None or not action.is_mutation or not has_changed:
            return None
        event = action.event(is_committed=True)
        if event == action.recorded:
            return None
        if self._output.rows:
            PUT[connection.dialect.name].execute(connection, _row_of(event))
        return Recorded(action, event)

    def committed(self, recorded: Recorded | None) -> None:
        if recorded is None:
            return
        is_new = recorded.action.recorded is None
        recorded.action.recorded = recorded.event
        if is_new:
            self.write_lines([recorded.event])

    def put(self, audit: SqlAuditLog, events: Sequence[AuditEvent]) -> None:
        if self._output.rows:
            for event in events:
                audit.put(event)

    def write_lines(self, events: Sequence[AuditEvent]) -> None:
        if self._output.lines:
            for event in events:
                log.info("audit", **line_of(event))


def line_of(event: AuditEvent) -> dict[str, Any]:
    """The event as it is logged: like its row, with control characters in names escaped."""
    values = event.as_json()
    for key in ("principal", "address", "job_id"):
        values[key] = values[key] and printable(values[key])
    for found in values["objects"]:
        if "levels" in found:
            found["levels"] = [printable(level) for level in found["levels"]]
        else:
            found["name"] = printable(found["name"])
    return values


class SqlAuditLog:
    """Events, newest first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, event: AuditEvent) -> None:
        """Adds an event, or the outcome of one that is known."""
        PUT[self._connection.dialect.name].execute(self._connection, _row_of(event))

    def list_page(self, page: Page, wanted: AuditFilter = EVERYTHING) -> Sequence[AuditEvent]:
        """`page.after` is the id of the last event of the previous page."""
        query = select(audit_events).where(*_conditions(wanted, self._connection.dialect.name))
        if page.after is not None:
            query = query.where(audit_events.c.event_id < UUID(page.after))
        query = query.order_by(audit_events.c.event_id.desc()).limit(page.limit)
        return [_event_of(row) for row in self._connection.execute(query)]

    def remove_before(self, at: datetime) -> int:
        """Removes the oldest of the events before this time, a limited number; returns how many."""
        oldest = (
            select(audit_events.c.event_id)
            .where(audit_events.c.event_id < first_id_at(at))
            .order_by(audit_events.c.event_id)
            .limit(MAX_REMOVED)
        )
        removed = self._connection.execute(delete(audit_events).where(audit_events.c.event_id.in_(oldest)))
        return removed.rowcount


def _conditions(wanted: AuditFilter, dialect: str) -> list[ColumnElement[bool]]:
    columns = audit_events.c
    equal = {
        columns.principal: wanted.principal,
        columns.request_id: wanted.request_id,
        columns.job_id: wanted.job_id,
        columns.decision: wanted.decision and wanted.decision.value,
    }
    conditions = [column == value for column, value in equal.items() if value is not None]
    if wanted.done_by is not None:
        conditions.append(and_(columns.principal == wanted.done_by, columns.is_claimed == false()))
    if wanted.operation is not None:
        conditions.append(_contains(columns.operation, wanted.operation, dialect))
    if wanted.since is not None:
        conditions.append(columns.event_id >= first_id_at(wanted.since))
    if wanted.until is not None:
        conditions.append(columns.event_id < first_id_at(wanted.until))
    if wanted.under is not None and not wanted.under.is_root:
        conditions.append(_is_under(columns.objects, wanted.under, dialect))
    return conditions


def _is_under(objects: ColumnElement[Any], path: NamespacePath, dialect: str) -> ColumnElement[bool]:
    """Whether the JSON has an object at this path or below it.

    No name can look like this: its quotes are escaped.
    """
    start = f'"levels":{orjson.dumps(path.levels).decode()[:-1]}'
    return or_(_contains(objects, f"{start}]", dialect), _contains(objects, f"{start},", dialect))


def _contains(column: ColumnElement[Any], text: str, dialect: str) -> ColumnElement[bool]:
    """Exact and case-sensitive, unlike LIKE."""
    position = func.instr if dialect == "sqlite" else func.strpos
    found: ColumnElement[bool] = position(column, literal(text)) > 0
    return found


def _row_of(event: AuditEvent) -> Mapping[str, Any]:
    return {
        "event_id": event.event_id,
        "principal": event.principal,
        "is_claimed": event.is_claimed,
        "address": event.address,
        "request_id": event.request_id,
        "protocol": event.protocol.value,
        "operation": event.operation,
        "objects": [found.as_json() for found in event.objects],
        "objects_omitted": event.objects_omitted,
        "decision": event.decision.value,
        "status": event.status,
        "error_code": event.error_code,
        "job_id": event.job_id,
        "is_committed": event.is_committed,
        "count": event.count,
    }


def _event_of(row: Row[Any]) -> AuditEvent:
    values = {field.name: getattr(row, field.name) for field in fields(AuditEvent)}
    return AuditEvent(
        **{
            **values,
            # `count` is a method of rows.
            "count": row._mapping["count"],
            "protocol": AuditProtocol(values["protocol"]),
            "decision": Decision(values["decision"]),
            "objects": tuple(map(_object_of, values["objects"])),
        }
    )


def _object_of(stored: Mapping[str, Any]) -> AuditObject:
    levels = stored.get("levels")
    return AuditObject(
        ObjectKind(stored["kind"]), None if levels is None else tuple(levels), stored.get("name")
    )
