"""Refuses what a view cannot be refreshed with, before a job is made of it."""

from __future__ import annotations

from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import ViewKind
from tidemill.jobs.model.jobs import RefreshRequest
from tidemill.jobs.ports import TableVersions
from tidemill.jobs.views.assess import DeclaredView


def check_refresh(declared: DeclaredView, request: RefreshRequest, versions: TableVersions) -> None:
    """Raises InvalidInput with the field."""
    ident, kind = declared.table.ident, declared.view.kind
    if request.output_limit is not None and kind is not ViewKind.CHUNKER:
        raise InvalidInput("output_limit", f"is for chunker views; {ident} is of kind {kind}")
    if kind is ViewKind.UDTF or declared.view.statement is not None:
        _check_by_row(declared, request)
    version = request.source_version
    if version is None:
        return
    if len(declared.sources) > 1:
        raise InvalidInput("src_version", f"{ident} has {len(declared.sources)} sources; leave it out")
    if versions.find(declared.source, version) is None:
        raise InvalidInput("src_version", f"{declared.source.ident} has no version {version}")


def _check_by_row(declared: DeclaredView, request: RefreshRequest) -> None:
    """What is for views that are made row by row would have no effect on others."""
    why = f"is for views that are made row by row, which {declared.table.ident} is not; leave it out"
    if request.source_task_size is not None:
        raise InvalidInput("source_task_size", why)
    if request.intra_applier_concurrency not in (None, 1):
        raise InvalidInput("intra_applier_concurrency", why)
