"""What is known about a column or view: how fresh it is, where its function failed, and its lineage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.jobs.model.provenance import FunctionRows
from tidemill.sdk.explain import changes, counted, object_name


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """The rows of a computed column at a version of its table.

    Each row is `fresh`, `stale` (a value of another version of the function, or of inputs that have changed
    since) or `missing` (never computed). Rows that were skipped because the function failed are null; they
    count as fresh, and as `failed`. `functions` are the versions that the values come from.
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

    @property
    def is_fresh(self) -> bool:
        """Whether every row holds a value of the function and the inputs as they are now."""
        return self.fresh == self.rows and not self.failed

    def __str__(self) -> str:
        return (
            f"{self.table}.{self.column} at version {self.version} of {self.branch}: "
            f"{counted(self.rows, 'row')}, {self.fresh:,} fresh, {self.stale:,} stale, "
            f"{self.missing:,} missing, {self.failed:,} failed"
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
        said = self.message
        if not said.startswith(f"{self.exception}:"):
            said = f"{self.exception}: {said}"
        return f"{column}{place}: {said}{tried}"


def column_status(table: str, body: Mapping[str, Any]) -> ColumnStatus:
    return ColumnStatus(
        table=table,
        column=body["column"],
        branch=body["branch"],
        version=body["version"],
        rows=body["rows"],
        fresh=body["fresh"],
        stale=body["stale"],
        missing=body["missing"],
        failed=body["failed"],
        functions=tuple(
            FunctionRows(item["digest"], item["name"], item["rows"], item["is_current"])
            for item in body.get("functions") or ()
        ),
    )


def row_error(column: str, body: Mapping[str, Any]) -> RowErrorInfo:
    """An entry of the error ledger, or of a preview; the latter leaves out the column, which is `column`."""
    at = body.get("at")
    return RowErrorInfo(
        column=body.get("column") or column,
        row_id=body.get("row_id"),
        exception=body["exception"],
        message=body["message"],
        traceback=body.get("traceback") or "",
        attempts=body.get("attempts", 1),
        is_skipped=bool(body.get("skipped", False)),
        digest=body.get("digest"),
        job_id=body.get("job_id"),
        at=datetime.fromisoformat(at) if at else None,
    )


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source of a view: the version the view has of it, and the latest one.

    None where nobody can tell, for instance before the first refresh.
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

    def __str__(self) -> str:
        state = "fresh" if self.is_fresh else "out of date"
        auto = ", refreshed by itself" if self.has_auto_refresh else ""
        lines = [
            f"{self.view} ({self.kind}, policy {self.policy}{auto}) at version {self.version}: "
            f"{state} ({self.reason})",
            *(f"Source: {source}" for source in self.sources),
        ]
        return "\n".join(
            [*lines, f"Last refresh: {self.last_refresh}" if self.last_refresh else "Never refreshed"]
        )


def view_status(view: str, body: Mapping[str, Any]) -> ViewStatus:
    last = body.get("last_refresh")
    return ViewStatus(
        view=view,
        kind=body["kind"],
        policy=body["policy"],
        has_auto_refresh=bool(body["auto_refresh"]),
        version=body.get("version"),
        is_fresh=bool(body["is_fresh"]),
        reason=body["reason"],
        sources=tuple(map(_source, body.get("sources") or ())),
        last_refresh=None if last is None else _last_refresh(last),
    )


def _source(body: Mapping[str, Any]) -> SourceStatus:
    return SourceStatus(
        source=object_name(body["source"]),
        version_consumed=body.get("version_consumed"),
        latest_version=body.get("latest_version"),
        versions_behind=body.get("versions_behind"),
        inserted=body.get("inserted"),
        updated=body.get("updated"),
        deleted=body.get("deleted"),
    )


def _last_refresh(body: Mapping[str, Any]) -> LastRefresh:
    at = body.get("finished_at")
    return LastRefresh(
        job_id=body["job_id"],
        state=body["state"],
        finished_at=datetime.fromisoformat(at) if at else None,
        mode=body.get("mode"),
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
    return Lineage(
        object=name,
        kind=body["kind"],
        column=body.get("column"),
        upstream=tuple(map(_step, body.get("upstream") or ())),
        downstream=tuple(map(_step, body.get("downstream") or ())),
    )


def _step(body: Mapping[str, Any]) -> LineageStep:
    function = body.get("function")
    return LineageStep(
        object=object_name(body["object"]),
        kind=body["kind"],
        depth=body.get("depth", 1),
        column=body.get("column"),
        through=body.get("through"),
        function=None if function is None else LineageFunction(function["name"], function["digest"]),
    )


def _listed(heading: str, steps: Sequence[LineageStep]) -> list[str]:
    return [f"  {heading}:", *(f"  {'  ' * step.depth}{step}" for step in steps)] if steps else []
