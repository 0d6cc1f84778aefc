"""How fresh a view is, and how its last refresh went."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.jobs.model.state import JobState
from tidemill.jobs.model.views import RefreshPolicy, ViewKind


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What of a source is in the view, and what happened to it since; None where that cannot be told."""

    source: tuple[str, ...]
    version_consumed: int | None
    latest_version: int | None
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None

    @property
    def versions_behind(self) -> int | None:
        if self.latest_version is None:
            return None
        return self.latest_version - (self.version_consumed or 0)


@dataclass(frozen=True, slots=True)
class LastRefresh:
    """The newest refresh job; it has a mode once it is done."""

    job_id: str
    state: JobState
    finished_at: datetime | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view at its latest version; fresh when a refresh would find nothing to do, else with the reason."""

    view: tuple[str, ...]
    kind: ViewKind
    policy: RefreshPolicy
    has_auto_refresh: bool
    version: int | None
    is_fresh: bool
    reason: str
    sources: tuple[SourceStatus, ...]
    last_refresh: LastRefresh | None
