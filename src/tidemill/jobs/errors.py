"""Refusals of the job engine."""

from __future__ import annotations

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import ErrorCode, TidemillError


class JobNotFound(TidemillError):
    code = ErrorCode.JOB_NOT_FOUND

    def __init__(self, job_id: str) -> None:
        super().__init__(f"There is no job {job_id}")
        self.job_id = job_id


class JobAlreadyActive(TidemillError):
    code = ErrorCode.JOB_ALREADY_ACTIVE

    def __init__(self, what: str, job_id: str) -> None:
        super().__init__(f"Job {job_id} is already working on {what}; wait for it or cancel it")
        self.job_id = job_id


class InvalidJobTransition(TidemillError):
    code = ErrorCode.INVALID_JOB_TRANSITION

    def __init__(self, job_id: str, current: str, wanted: str) -> None:
        super().__init__(f"Job {job_id} is {current} and cannot become {wanted}")


class LeaseLost(TidemillError):
    """Another worker holds the job now; whatever this one still does must have no effect."""

    code = ErrorCode.LEASE_LOST

    def __init__(self, job_id: str, epoch: int) -> None:
        super().__init__(f"The lease of job {job_id} (epoch {epoch}) is gone")


class JobCancelled(TidemillError):
    """Somebody asked for the job to stop."""

    code = ErrorCode.INVALID_JOB_TRANSITION

    def __init__(self, job_id: str) -> None:
        super().__init__(f"Job {job_id} was cancelled")


class JobPaused(TidemillError):
    """Somebody asked for the job to stop for now."""

    code = ErrorCode.INVALID_JOB_TRANSITION

    def __init__(self, job_id: str) -> None:
        super().__init__(f"Job {job_id} was paused")


class ViewNotFound(TidemillError):
    code = ErrorCode.VIEW_NOT_FOUND

    def __init__(self, view: TableIdent) -> None:
        super().__init__(f"{view} is not a materialized view")
        self.ident = view


class ColumnNotComputed(TidemillError):
    code = ErrorCode.INVALID_INPUT

    def __init__(self, table: TableIdent, column: str) -> None:
        super().__init__(f"column: '{column}' of {table} has no function; declare one with add_columns first")


class OwnerRefused(TidemillError):
    """The owner of a view or column lacks what its job needs."""

    code = ErrorCode.PERMISSION_DENIED

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} {problem}")
