"""What is known about a column or view: how fresh it is, where its function failed, and its lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.jobs.model.columns import FunctionRows
from tidemill.sdk.explain import changes, counted, object_name
from tidemill.sdk.http import from_answer


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """The rows of a computed column at a version of its table.

    Each row is either `fresh`, `stale` (a value of another version of the function, or of inputs that have
    changed since), `missing` (never computed) or `failed` (null, because the function failed and the row was
    skipped). `functions` are the versions that the values come from; values of versions that are kept count
    as fresh. `reason` says why the column cannot be computed if one that its function reads is gone.
    """

    table: str
    column: str
    branch: str
    version: int
    rows: int
    fresh: int
    stale: int
    missing: int
    failed: int
    functions: tuple[FunctionRows, ...]
    reason: str | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether every row holds a value of the function and the inputs as they are now."""
        return self.fresh == self.rows

    def __str__(self) -> str:
        return (
            f"{self.table}.{self.column} at version {self.version} of {self.branch}: "
            f"{counted(self.rows, 'row')}, {self.fresh:,} fresh, {self.stale:,} stale, "
            f"{self.missing:,} missing, {self.failed:,} failed"
            f"{'' if self.reason is None else '; ' + self.reason}"
        )


@dataclass(frozen=True, slots=True)
class RowErrorInfo:
    """A row on which a function failed. A row that was skipped is null; one that was not ended its job."""

    column: str
    row_id: int | None
    exception: str
    message: str
    traceback: str
    attempts: int
    is_skipped: bool = False
    digest: str | None = None
    job_id: str | None = None
    at: datetime | None = None

    def __str__(self) -> str:
        place = "the function" if self.row_id is None else f"row {self.row_id}"
        tried = f" (tried {self.attempts} times)" if self.attempts > 1 else ""
        column = f"{self.column}, " if self.column else ""
        message = self.message
        if not message.startswith(f"{self.exception}:"):
            message = f"{self.exception}: {message}"
        return f"{column}{place}: {message}{tried}"


def column_status(table: str, body: Mapping[str, Any]) -> ColumnStatus:
    functions = tuple(from_answer(FunctionRows, item) for item in body.get("functions") or ())
    return from_answer(ColumnStatus, body, table=table, functions=functions)


def row_error(column: str, body: Mapping[str, Any]) -> RowErrorInfo:
    """An entry of the error ledger, or of a preview; the latter leaves out the column, which is `column`."""
    return from_answer(
        RowErrorInfo,
        body,
        column=body.get("column") or column,
        traceback=body.get("traceback") or "",
        attempts=body.get("attempts", 1),
        is_skipped=bool(body.get("skipped")),
        at=_time(body.get("at")),
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source of a view: the version the view has of it, and the latest one.

    None where it is unknown, for instance before the first refresh.
    """

    source: str
    version_consumed: int | None
    latest_version: int | None
    versions_behind: int | None
    inserted: int | None
    updated: int | None
    deleted: int | None

    def __str__(self) -> str:
        if self.version_consumed is None:
            return f"{self.source}: latest version {self.latest_version}, never read"
        if not self.versions_behind:
            return f"{self.source}: version {self.version_consumed}, the latest"
        changed = changes(self.inserted, self.updated, self.deleted)
        behind = counted(self.versions_behind, "version")
        return f"{self.source}: version {self.version_consumed}, {behind} behind: {changed}"


@dataclass(frozen=True, slots=True)
class LastRefresh:
    """The refresh of a view that ended last."""

    job_id: str
    state: str
    finished_at: datetime | None
    mode: str | None

    def __str__(self) -> str:
        mode = f", {self.mode}" if self.mode else ""
        at = "" if self.finished_at is None else f" at {self.finished_at:%Y-%m-%d %H:%M:%S %Z}"
        return f"job {self.job_id} {self.state}{mode}{at}"


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """Whether a view is what its definition yields now, and if not, why."""

    view: str
    kind: str
    policy: str
    has_auto_refresh: bool
    version: int | None
    is_fresh: bool
    reason: str
    sources: tuple[SourceStatus, ...]
    last_refresh: LastRefresh | None
    # None for a view of the deployment itself, such as those of servers without clients.
    owner: str | None = None

    def __str__(self) -> str:
        state = "fresh" if self.is_fresh else "out of date"
        auto = ", refreshed automatically" if self.has_auto_refresh else ""
        lines = [
            f"{self.view} ({self.kind}, policy {self.policy}{auto}) at version {self.version}: "
            f"{state} ({self.reason})",
            *(f"Source: {source}" for source in self.sources),
        ]
        return "\n".join(
            [*lines, f"Last refresh: {self.last_refresh}" if self.last_refresh else "Never refreshed"]
        )


def view_status(view: str, body: Mapping[str, Any]) -> ViewStatus:
    sources = (
        from_answer(SourceStatus, item, source=object_name(item["source"]))
        for item in body.get("sources") or ()
    )
    last = body.get("last_refresh")
    return from_answer(
        ViewStatus,
        body,
        view=view,
        has_auto_refresh=bool(body["auto_refresh"]),
        sources=tuple(sources),
        last_refresh=last and from_answer(LastRefresh, last, finished_at=_time(last.get("finished_at"))),
    )


@dataclass(frozen=True, slots=True)
class LineageFunction:
    """The function that makes one thing from another."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class LineageStep:
    """A table, view or column that something depends on, or the other way round, `depth` steps away.

    `through` says how: by a `projection`, `filter`, `expression`, `function`, `chunker`, `table_function` or
    `sql`. Without a column it is about the rows as a whole.
    """

    object: str
    kind: str
    depth: int
    column: str | None = None
    through: str | None = None
    function: LineageFunction | None = None

    def __str__(self) -> str:
        column = f".{self.column}" if self.column else ""
        how = [self.through.replace("_", " ")] if self.through else []
        how += [self.function.name] if self.function else []
        return f"{self.object}{column} ({self.kind}){', ' if how else ''}{' '.join(how)}"


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a table, or one of its columns, is made from, and what is made from it, nearest first."""

    object: str
    kind: str
    column: str | None
    upstream: tuple[LineageStep, ...]
    downstream: tuple[LineageStep, ...]

    def __str__(self) -> str:
        column = f".{self.column}" if self.column else ""
        return "\n".join(
            [
                f"{self.object}{column} ({self.kind})",
                *_listed("made from", self.upstream),
                *_listed("used by", self.downstream),
            ]
        )


def lineage(name: str, body: Mapping[str, Any]) -> Lineage:
    steps = {side: tuple(map(_step, body.get(side) or ())) for side in ("upstream", "downstream")}
    return from_answer(Lineage, body, object=name, **steps)


def _step(body: Mapping[str, Any]) -> LineageStep:
    function = body.get("function")
    return from_answer(
        LineageStep,
        body,
        object=object_name(body["object"]),
        depth=body.get("depth", 1),
        function=function and from_answer(LineageFunction, function),
    )


def _listed(heading: str, steps: Sequence[LineageStep]) -> list[str]:
    return [f"  {heading}:", *(f"  {'  ' * step.depth}{step}" for step in steps)] if steps else []
