"""How fresh the computed columns of a table are, and where functions failed."""

from __future__ import annotations

import warnings
from typing import Final, Literal
from urllib.parse import quote

from tidemill.sdk.handles import TableHandle
from tidemill.sdk.http import Params, pages
from tidemill.sdk.jobs import Job
from tidemill.sdk.status import ColumnStatus, RowErrorInfo, column_status, row_error

Selection = Literal["stale", "missing", "failed"]
SELECTIONS: Final = ("stale", "missing", "failed")


class ColumnInspection(TableHandle):
    """What a table can tell about columns that functions fill."""

    def column_status(self, column: str, *, branch: str | None = None) -> ColumnStatus:
        """How many rows are fresh, stale, missing or failed, and which versions of the function they are of.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> docs.column_status("words").missing
        2
        >>> job = docs.backfill("words").wait(timeout=120)
        >>> docs.column_status("words").is_fresh
        True
        """
        path, params = self._column_path(column, "status")
        return column_status(self.name, self._client.get(path, {**params, "branch": branch}))

    def column_rows(self, column: str, selection: Selection, *, branch: str | None = None) -> list[int]:
        """The ids of the rows that are `"stale"`, `"missing"` or `"failed"`.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> len(docs.column_rows("words", "missing"))
        2
        """
        if selection not in SELECTIONS:
            raise ValueError(f"rows are {', '.join(SELECTIONS)}, not {selection!r}")
        path, params = self._column_path(column, "rows")
        found = pages(self._client, path, {**params, "selection": selection, "branch": branch})
        return [row_id for page in found for row_id in page["row_ids"]]

    def stale_rows(self, column: str, *, branch: str | None = None) -> list[int]:
        """The ids of rows whose value is of another version of the function, or of inputs that changed."""
        return self.column_rows(column, "stale", branch=branch)

    def missing_rows(self, column: str, *, branch: str | None = None) -> list[int]:
        """The ids of rows that have never been computed."""
        return self.column_rows(column, "missing", branch=branch)

    def failed_rows(self, column: str, *, branch: str | None = None) -> list[int]:
        """The ids of rows that were skipped because the function failed."""
        return self.column_rows(column, "failed", branch=branch)

    def errors(
        self, column: str | None = None, job: Job | str | None = None, *, branch: str | None = None
    ) -> list[RowErrorInfo]:
        """The rows on which functions failed, with what they raised.

        Args:
            column: Only those of this column.
            job: Only those of this job, or of the one with this id.
            branch: The branch of the table, by default `main`.

        >>> import tidemill
        >>> @tidemill.udf
        ... def inverse(id: int) -> float:
        ...     return 1 / (id - 2)
        >>> docs.add_column("inverse", inverse)
        >>> job = docs.backfill("inverse", on_error="skip").wait(timeout=120)
        >>> [error.exception for error in docs.errors("inverse", job)]
        ['ZeroDivisionError']
        """
        path, params = self._management_path("errors")
        asked = {**params, "column": column, "job_id": job_id_of(job), "branch": branch}
        return self._errors(path, asked, column or "")

    def _errors(self, path: str, asked: Params, column: str) -> list[RowErrorInfo]:
        found: list[RowErrorInfo] = []
        for page in pages(self._client, path, asked):
            found.extend(row_error(column, body) for body in page.get("errors", []))
            if page.get("truncated"):
                # Only the errors of one column or job come in pages.
                warnings.warn(
                    f"{self.name}: these are the first {len(found):,} errors; name a column or a job for all",
                    stacklevel=3,
                )
        return found

    def _column_path(self, column: str, action: str) -> tuple[str, dict[str, str]]:
        return self._management_path(f"columns/{quote(column, safe='')}/{action}")


def job_id_of(job: Job | str | None) -> str | None:
    return job.id if isinstance(job, Job) else job
