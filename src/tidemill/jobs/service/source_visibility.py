"""What callers are shown of views whose sources they may not read.

A view is a border: who may read it sees its rows, and nothing of what it is made from. Definitions, plans,
reports of jobs and error messages tell of sources, so they are for those who may read all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidemill.catalog.model.callers import Caller, Permission
from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.operations.visibility import can
from tidemill.catalog.ports import Authorizer
from tidemill.errors import PermissionDenied
from tidemill.jobs.errors import OwnerRefused
from tidemill.jobs.model.jobs import Failure, Job, JobEvent, JobKind, Progress
from tidemill.jobs.model.views import MaterializedView
from tidemill.jobs.ports import JobTransaction

REASON_IS_HIDDEN: Final = "the reason is for those who may read everything that it is made from"
ABOUT_SOURCES: Final = frozenset({JobKind.REFRESH, JobKind.VERIFY})
# What a result says of the view itself.
ABOUT_VIEW: Final = frozenset({"mode", "version", "is_same"})


def sees_sources(tx: JobTransaction, authorizer: Authorizer, caller: Caller, view: MaterializedView) -> bool:
    """Whether the caller may read all that a view is made from, dropped sources by the names they had."""
    return all(can(authorizer, caller, Permission.READ, ident) for ident in source_idents(tx, view))


def source_idents(tx: JobTransaction, view: MaterializedView) -> list[TableIdent]:
    found = [(source, tx.tables.find_by_id(source.table_id)) for source in view.sources]
    return [table_ident(source.levels) if table is None else table.ident for source, table in found]


def require_sources(
    tx: JobTransaction, authorizer: Authorizer, caller: Caller, ident: TableIdent, view: MaterializedView
) -> None:
    """Raises PermissionDenied, without naming a source."""
    if not sees_sources(tx, authorizer, caller, view):
        raise PermissionDenied(
            caller.principal, Permission.READ.value, f"everything that {ident} is made from"
        )


def shown_jobs(tx: JobTransaction, authorizer: Authorizer, caller: Caller, jobs: Sequence[Job]) -> list[Job]:
    """Jobs of views without what they tell of hidden sources."""
    view_ids = {job.table_id for job in jobs if job.kind in ABOUT_SOURCES}
    views = {view_id: tx.derived.find_view(view_id) for view_id in view_ids}
    hidden = {
        view_id: view
        for view_id, view in views.items()
        if view is not None and not sees_sources(tx, authorizer, caller, view)
    }
    return [
        _without_sources(job, hidden[job.table_id], caller)
        if job.kind in ABOUT_SOURCES and job.table_id in hidden
        else job
        for job in jobs
    ]


def shown_events(
    tx: JobTransaction, authorizer: Authorizer, caller: Caller, job: Job, events: Sequence[JobEvent]
) -> Sequence[JobEvent]:
    """The events of a job: of one whose sources are hidden, what happened and not with what."""
    view = tx.derived.find_view(job.table_id) if job.kind in ABOUT_SOURCES else None
    if view is None or sees_sources(tx, authorizer, caller, view):
        return events
    return [replace(event, data={}) for event in events]


def _without_sources(job: Job, view: MaterializedView, caller: Caller) -> Job:
    result = job.result
    if result is not None:
        result = {name: value for name, value in result.items() if name in ABOUT_VIEW}
    return replace(job, progress=Progress(), result=result, failure=_failure(job, view, caller))


def _failure(job: Job, view: MaterializedView, caller: Caller) -> Failure | None:
    if job.failure is None:
        return None
    if job.failure.exception != OwnerRefused.__name__:
        return Failure(f"the {job.kind} of {job.table} failed; {REASON_IS_HIDDEN}")
    return replace(job.failure, message=refusal_for(caller, view, job.failure.message, is_hidden=True))


def refusal_for(caller: Caller, view: MaterializedView, message: str, *, is_hidden: bool) -> str:
    """The message of an OwnerRefused. The owner has written the definition, and knows what is in it."""
    owner = "" if view.owner is None else view.owner.principal
    if not is_hidden or caller.principal == owner:
        return message
    return f"its owner '{owner}' may not read or use everything that it is made from any more"
