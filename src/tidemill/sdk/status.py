"""How fresh the values of a computed column are, and on which rows its function failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemill.jobs.model.columns import FunctionRows
from tidemill.sdk.explain import counted


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
