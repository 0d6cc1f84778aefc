"""How stages end that do not succeed."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import ErrorCode, TidemillError
from tidemill.jobs.model.failures import RowFailure


class RowFailed(TidemillError):
    """A function raised on a row; the job stops there and publishes nothing of that part."""

    code = ErrorCode.INVALID_INPUT

    def __init__(self, failure: RowFailure) -> None:
        place = "" if failure.row_id is None else f"row {failure.row_id}: "
        super().__init__(f"{place}{failure.message}")
        self.failure = failure


class TaskProcessLost(TidemillError):
    """The process of a task died suddenly; what it had checkpointed is still there."""

    def __init__(self) -> None:
        super().__init__(
            "a Python process ended while the function ran in it: a crash in native code, too little memory, "
            "or an exit"
        )


class TooManyRowsSkipped(TidemillError):
    """More rows failed than the job was allowed to skip."""

    code = ErrorCode.INVALID_INPUT

    def __init__(self, failures: Sequence[RowFailure], allowed: int) -> None:
        first = failures[0].message if failures else "no reason given"
        super().__init__(
            f"the function failed on {len(failures)} rows and {allowed} may be skipped; the first: {first}"
        )
        self.failures = tuple(failures)


class VersionGone(TidemillError):
    """A version of a table that is needed to tell what changed cannot be read any more."""

    code = ErrorCode.INVALID_INPUT

    def __init__(self, table: TableIdent, version: int) -> None:
        super().__init__(f"version {version} of {table} cannot be read any more")


class ViewRowsChanged(TidemillError):
    """Somebody wrote into rows of a view while other values for them were being computed."""

    code = ErrorCode.CONCURRENT_MODIFICATION

    def __init__(self, view: TableIdent, tries: int = 1) -> None:
        again = "try again"
        if tries > 1:
            again = (
                f"nothing was published after {tries} tries. Refresh it again while nobody writes into rows "
                "that the refresh changes, or keep those values in a table of their own"
            )
        super().__init__(f"rows of {view} were written by somebody else during the refresh; {again}")


class RefreshWouldBeFull(TidemillError):
    """A view that is to be refreshed incrementally or not at all would have to be computed as a whole."""

    code = ErrorCode.INVALID_INPUT

    def __init__(self, view: TableIdent, reason: str) -> None:
        super().__init__(
            f"{view} cannot be refreshed incrementally: {reason}; allow it with policy auto or full"
        )
