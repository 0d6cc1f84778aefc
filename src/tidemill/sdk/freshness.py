"""How fresh a view is: what happened to its sources since it was last refreshed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.sdk.explain import changes, counted, object_name


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
