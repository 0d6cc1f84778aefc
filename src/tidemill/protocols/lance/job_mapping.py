"""Translates jobs and conditions on their events for lancedb's remote client."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidemill.catalog.model.json_values import checked_expression
from tidemill.catalog.model.sql import bounded_nesting
from tidemill.errors import InvalidInput
from tidemill.jobs.model.jobs import Failure, Job, JobEvent, JobKind, JobState
from tidemill.protocols.http.call import without_nulls
from tidemill.protocols.http.fields import DEFAULT_DELIMITER

JOB_STATES: Final[Mapping[JobState, str]] = {
    JobState.QUEUED: "IN_PROGRESS",
    JobState.RUNNING: "IN_PROGRESS",
    JobState.PAUSED: "IN_PROGRESS",
    JobState.DONE: "DONE",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
}
REFRESH_MODES: Final[Mapping[str, str]] = {"full": "rebuild"}
EVENT_SCHEMA: Final = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("data", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("updated_by", pa.string()),
        pa.field("emitted_from", pa.string(), nullable=False),
        pa.field("emitted_by", pa.string()),
        pa.field("claim_entity", pa.string()),
    ]
)


def job_json(job: Job) -> dict[str, Any]:
    return without_nulls(
        {
            "job_id": job.job_id,
            "job_type": job.kind.value,
            "job_state": JOB_STATES[job.state],
            "creation_ms": _millis(job.created_at),
            "spec": without_nulls({"table": _table(job), "column": job.column}),
            "result": None if job.result is None else _result(job, job.result),
            "failure": None if job.failure is None else _failure(job.failure),
        }
    )


def job_summary(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "table": _table(job),
        "job_type": job.kind.value,
        "state": JOB_STATES[job.state],
        "created_at_millis": _millis(job.created_at),
    }


def event_rows(events: Sequence[JobEvent]) -> list[dict[str, Any]]:
    """Our own columns, then those that lancedb's client reads."""
    return [
        {
            "sequence": event.sequence,
            "at": event.at,
            "kind": event.kind,
            "data": orjson.dumps(event.data).decode(),
            "state": event.kind,
            "updated_by": event.data.get("by"),
            "emitted_from": "tidemill",
            "emitted_by": event.data.get("owner") or event.data.get("by"),
            "claim_entity": None,
        }
        for event in events
    ]


def events_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), EVENT_SCHEMA)


def _result(job: Job, result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the fields that lancedb's client reads."""
    match job.kind:
        case JobKind.BACKFILL:
            # A job that succeeded has filled or skipped all its rows; a failed one has no result.
            counts = {
                "rows_assigned": job.progress.written,
                "rows_failed": job.progress.skipped,
                "rows_remaining": 0,
            }
            return without_nulls({**result, **counts})
        case JobKind.REFRESH:
            mode = result.get("mode")
            return {**result, "mode": REFRESH_MODES.get(str(mode), mode)}
        case JobKind.INDEX | JobKind.PREVIEW | JobKind.VERIFY:
            return dict(result)


def _failure(failure: Failure) -> dict[str, Any]:
    """Never retryable: a function that raised would raise again."""
    return {"phase": "execute", "message": failure.message, "retryable": False}


def _table(job: Job) -> str:
    return DEFAULT_DELIMITER.join(job.table.levels)


def _millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


Event: TypeAlias = Mapping[str, Any]
Truth: TypeAlias = bool | None
Condition: TypeAlias = Callable[[Event], Truth]

MAX_NODES: Final = 200
COMPARISONS: Final[Mapping[type[exp.Expr], Callable[[Any, Any], bool]]] = {
    exp.EQ: lambda left, right: left == right,
    exp.NEQ: lambda left, right: left != right,
    exp.LT: lambda left, right: left < right,
    exp.LTE: lambda left, right: left <= right,
    exp.GT: lambda left, right: left > right,
    exp.GTE: lambda left, right: left >= right,
}


def event_condition(text: str, columns: Collection[str], field: str) -> Condition:
    """Reads comparisons of columns with values, joined by AND, OR and NOT; rejects anything else."""
    checked_expression(text, field)
    with bounded_nesting(text, field):
        try:
            parsed = sqlglot.parse_one(text)
        except SqlglotError as error:
            raise InvalidInput(
                field, "is not a valid condition; write for example state = 'submitted'"
            ) from error
        if sum(1 for _ in parsed.walk()) > MAX_NODES:
            raise InvalidInput(field, f"has too many parts; at most {MAX_NODES} are allowed")
        return _ConditionParser(columns, field).condition(parsed)


class _ConditionParser:
    def __init__(self, columns: Collection[str], field: str) -> None:
        self._columns = columns
        self._field = field

    def condition(self, node: exp.Expr) -> Condition:
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.Not():
                inner = self.condition(node.this)
                return lambda event: _not(inner(event))
            case exp.And():
                left, right = self.condition(node.left), self.condition(node.right)
                return lambda event: _and(left(event), right(event))
            case exp.Or():
                first, second = self.condition(node.left), self.condition(node.right)
                return lambda event: _not(_and(_not(first(event)), _not(second(event))))
            case _:
                return self._predicate(node)

    def _predicate(self, node: exp.Expr) -> Condition:
        match node:
            case exp.In() if node.expressions:
                name, values = self._column(node.this), [self._value(entry) for entry in node.expressions]
                return lambda event: None if event[name] is None else event[name] in values
            case exp.Is() if isinstance(node.expression, exp.Null):
                column = self._column(node.this)
                return lambda event: event[column] is None
            case exp.Like():
                return self._like(self._column(node.this), self._value(node.expression))
            case _ if type(node) in COMPARISONS:
                return self._comparison(node)
            case _:
                raise self._refusal(node)

    def _comparison(self, node: exp.Expr) -> Condition:
        compare = COMPARISONS[type(node)]
        name, value = self._column(node.this), self._value(node.expression)

        def compare_event(event: Event) -> Truth:
            if event[name] is None:
                return None
            if isinstance(event[name], str) is not isinstance(value, str):
                raise InvalidInput(
                    self._field, f"compares {name} with a value of another type, {value!r:.60}"
                )
            return compare(event[name], value)

        return compare_event

    def _like(self, name: str, pattern: Any) -> Condition:
        parts = {"%": ".*", "_": "."}
        pattern_regex = re.compile(
            "".join(parts.get(character, re.escape(character)) for character in str(pattern)), re.DOTALL
        )
        return lambda event: (
            None if event[name] is None else pattern_regex.fullmatch(str(event[name])) is not None
        )

    def _column(self, node: exp.Expr) -> str:
        if not isinstance(node, exp.Column) or node.name not in self._columns:
            known = ", ".join(self._columns)
            raise InvalidInput(
                self._field, f"{node.sql()!r:.60} is not a column of events; the columns are {known}"
            )
        return node.name

    def _value(self, node: exp.Expr) -> Any:
        if isinstance(node, exp.Literal):
            return node.this if node.is_string else float(node.this)
        raise self._refusal(node)

    def _refusal(self, node: exp.Expr) -> InvalidInput:
        return InvalidInput(
            self._field,
            f"{node.sql()!r:.80} is not a comparison of a column with a value, such as state = 'done'",
        )


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _and(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True
