"""Computed columns of a table: declared, explained, previewed, filled and inspected."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

from tidemill.jobs.model.options import BackfillRequest, PreviewRequest
from tidemill.sdk.definitions import Columns, column_entry, quoted, struct_outputs
from tidemill.sdk.errors import AlreadyExists, FunctionDiffers, InvalidRequest
from tidemill.sdk.explain import Explanation, backfill_explanation
from tidemill.sdk.functions import function_of
from tidemill.sdk.http import Params, ServerClient, pages
from tidemill.sdk.jobs import Job, Preview, get_job, read_preview
from tidemill.sdk.names import dotted, url_id
from tidemill.sdk.options import Manifest, OnError, PolicyName, request_body
from tidemill.sdk.status import ColumnStatus, RowErrorInfo, column_status, row_error

Selection = Literal["stale", "missing", "failed"]
SELECTIONS: Final = ("stale", "missing", "failed")
Kept = Literal["computed"]


class TableHandle:
    """The name of a table at a server; sends no request until something has to be known."""

    def __init__(self, client: ServerClient, levels: tuple[str, ...]) -> None:
        self._client = client
        self.levels = levels

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._client.url}>"

    @property
    def name(self) -> str:
        """The full name, with its namespaces."""
        return dotted(self.levels)

    def _post(self, kind: str, action: str, body: Mapping[str, Any]) -> Any:
        path, params = self._client.object_path(kind, self.levels, action)
        return self._client.post(path, dict(body), params=params)

    def _management_path(self, action: str) -> tuple[str, dict[str, str]]:
        """The path of an action of the management API, and its query."""
        encoded, params = url_id(self.levels)
        return f"/api/v1/tables/{encoded}/{action}", params


class ColumnInspection(TableHandle):
    """The state of the computed columns of a table."""

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
        query = {**params, "column": column, "job_id": job_id_of(job), "branch": branch}
        return self._errors(path, query, column or "")

    def _errors(self, path: str, query: Params, column: str) -> list[RowErrorInfo]:
        found: list[RowErrorInfo] = []
        for page in pages(self._client, path, query):
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


class ComputedColumns(ColumnInspection):
    """What a table can do with columns that functions fill."""

    def add_column(
        self, name: str, function: Any, *, inputs: Sequence[str] | None = None, auto_backfill: bool = False
    ) -> None:
        """Declares a column that a function fills; it is null until `backfill` has run.

        Args:
            name: The new column.
            function: Declared with `@tidemill.udf`: a function, a class or an instance of one.
            inputs: The columns it reads, in the order of its parameters; by default those of its declaration.
            auto_backfill: Start a backfill automatically when rows are new or out of date.

        Raises:
            InvalidRequest: The column is there already; the message says how to replace its function.

        >>> import tidemill
        >>> @tidemill.udf
        ... def letters(text: str) -> int:
        ...     return sum(character.isalpha() for character in text)
        >>> docs.add_column("letters", letters)
        >>> docs.schema.field("letters").type
        DataType(int64)
        """
        column = column_entry({name: ""}, function, inputs, auto_backfill=auto_backfill)
        self._declare(name, column)

    def add_columns(
        self,
        columns: Columns,
        function: Any,
        *,
        inputs: Sequence[str] | None = None,
        auto_backfill: bool = False,
    ) -> None:
        """Declares several columns that one function fills in one evaluation: it returns a struct.

        A backfill of any of them fills all of them.

        Args:
            columns: Which field of the result fills which column, `{"column": "field"}`; or a list of names:
                fields of the result, or a new name for each field in their order.
            function: Declared with `@tidemill.udf`; returns a NamedTuple, a dataclass or a struct.
            inputs: The columns it reads, in the order of its parameters; by default those of its declaration.
            auto_backfill: Start a backfill automatically when rows are new or out of date.

        >>> from typing import NamedTuple
        >>> import tidemill
        >>> class Counts(NamedTuple):
        ...     words: int
        ...     letters: int
        >>> @tidemill.udf
        ... def counts(text: str) -> Counts:
        ...     return Counts(len(text.split()), len(text.replace(" ", "")))
        >>> docs.add_columns({"n_words": "words", "n_letters": "letters"}, counts)
        >>> job = docs.backfill("n_words").wait(timeout=120)
        >>> docs.query(filter="id = 2", columns=["n_words", "n_letters"]).to_pylist()
        [{'n_words': 2, 'n_letters': 7}]
        """
        outputs = struct_outputs(columns, function)
        column = column_entry(outputs, function, inputs, auto_backfill=auto_backfill)
        self._declare(next(iter(outputs)), column)

    def alter_column(
        self,
        name: str,
        function: Any,
        *,
        inputs: Sequence[str] | None = None,
        keep: Kept | None = None,
    ) -> Explanation:
        """Changes the function that fills a column from now on, and returns what the next backfill will do.

        The values stay until the next backfill. It recomputes every row, or with `keep="computed"` only rows
        that failed, are missing or have inputs that changed. The type must stay the same.

        Args:
            name: A column of the table; from now on it is a computed one.
            function: Declared with `@tidemill.udf`.
            inputs: The columns it reads, in the order of its parameters; by default those of its declaration.
            keep: `"computed"` keeps the values that earlier versions of the function have computed; they
                count as fresh. The inputs must stay the same.

        Returns:
            The plan of a backfill: `.rows` to compute, and `.expected_seconds` if earlier jobs tell.

        >>> import tidemill
        >>> @tidemill.udf
        ... def size(text: str) -> int:
        ...     return len(text)
        >>> docs.add_column("size", size)
        >>> job = docs.backfill("size").wait(timeout=120)
        >>> @tidemill.udf
        ... def size(text: str) -> int:
        ...     return len(text.encode())
        >>> docs.alter_column("size", size, keep="computed").rows
        0
        >>> docs.alter_column("size", size).rows
        2
        """
        column = column_entry({name: ""}, function, inputs)
        alteration = {"path": quoted(name), "virtual_column": column, **({"keep": keep} if keep else {})}
        self._post("table", "alter_columns", {"alterations": [alteration]})
        self._client.refused_functions.pop((self.levels, name), None)
        return self.explain(name)

    def backfill(
        self,
        column: str,
        *,
        function: Any = None,
        where: str | None = None,
        only: Selection | None = None,
        retry_failed: bool = False,
        branch: str | None = None,
        read_version: int | None = None,
        num_frags: int | None = None,
        on_error: OnError | PolicyName | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        concurrency: int | None = None,
        intra_applier_concurrency: int | None = None,
        task_size: int | None = None,
        checkpoint_size: int | None = None,
        min_checkpoint_size: int | None = None,
        max_checkpoint_size: int | None = None,
        batch_checkpoint_flush_interval_seconds: float | None = None,
        commit_granularity: int | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Starts a job that fills a computed column where it is missing or out of date.

        Args:
            column: A column declared with `add_column`, or one of those declared with `add_columns`.
            function: The function that the program has for the column. If the catalog has another version of
                it, no job is started. Without it, the job calls the version that the catalog has.
            where: An SQL condition; exactly these rows are computed, up to date or not.
            only: Of the rows that need work, only those that are stale, missing or failed: skipped by an
                earlier job because the function failed. Cannot be combined with `where`.
            retry_failed: The same as `only="failed"`.
            branch: The branch of the table, `main` by default; each has values of its own.
            read_version: The version of the table to compute from; the latest by default.
            num_frags: The maximum number of fragments; the rest is left to another job.
            on_error: What to do when the function fails on a row: `tidemill.fail()` (the default),
                `tidemill.retry(...)` or `tidemill.skip(...)`, or `"fail"`, `"retry"` or `"skip"` for their
                defaults. Skipped rows are listed by `errors`.
            cluster: The name of a cluster in the server's configuration.
            manifest: Packages and variables: a `tidemill.Manifest`, the name of a stored one, or JSON text.
            concurrency: The maximum number of tasks at a time.
            intra_applier_concurrency: Calls of the function at a time in each task.
            task_size: Rows per task.
            checkpoint_size: Rows in the first batch of a task; later ones adapt to how long it took.
            min_checkpoint_size: The smallest batch that is adapted to.
            max_checkpoint_size: The largest batch that is adapted to.
            batch_checkpoint_flush_interval_seconds: How often a task checkpoints its results.
            commit_granularity: Publish after this many fragments instead of all at once.
            idempotency_key: The same key gives the same job instead of a second one.

        Raises:
            FunctionDiffers: `function` is another version than the catalog has; the message says how to
                replace it.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> job = docs.backfill("words", on_error=tidemill.skip(limit=10)).wait(timeout=120)
        >>> job.progress.computed
        2
        >>> docs.query(columns=["text", "words"]).to_pylist()
        [{'text': 'a tide', 'words': 2}, {'text': 'the mill', 'words': 2}]
        """
        body = request_body(BackfillRequest, locals())
        self._check_function(column, function)
        return self._start_backfill(body, idempotency_key)

    def retry_failed(
        self,
        column: str,
        *,
        branch: str | None = None,
        read_version: int | None = None,
        num_frags: int | None = None,
        on_error: OnError | PolicyName | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        concurrency: int | None = None,
        intra_applier_concurrency: int | None = None,
        task_size: int | None = None,
        checkpoint_size: int | None = None,
        min_checkpoint_size: int | None = None,
        max_checkpoint_size: int | None = None,
        batch_checkpoint_flush_interval_seconds: float | None = None,
        commit_granularity: int | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Starts a job that recomputes the rows that were skipped because the function failed.

        Takes the options of `backfill`, except those that choose rows.

        >>> import tidemill
        >>> @tidemill.udf
        ... def inverse(id: int) -> float:
        ...     return 1 / (id - 2)
        >>> docs.add_column("inverse", inverse)
        >>> job = docs.backfill("inverse", on_error="skip").wait(timeout=120)
        >>> docs.retry_failed("inverse", on_error="skip").wait(timeout=120).progress.skipped
        1
        """
        body = request_body(BackfillRequest, {**locals(), "only": "failed"})
        return self._start_backfill(body, idempotency_key)

    def explain(
        self,
        column: str,
        *,
        where: str | None = None,
        only: Selection | None = None,
        retry_failed: bool = False,
        branch: str | None = None,
        read_version: int | None = None,
        num_frags: int | None = None,
        on_error: OnError | PolicyName | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        concurrency: int | None = None,
        intra_applier_concurrency: int | None = None,
        task_size: int | None = None,
        checkpoint_size: int | None = None,
        min_checkpoint_size: int | None = None,
        max_checkpoint_size: int | None = None,
        batch_checkpoint_flush_interval_seconds: float | None = None,
        commit_granularity: int | None = None,
    ) -> Explanation:
        """Shows what `backfill` with the same arguments would do now.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> docs.explain("words").rows
        2
        """
        body = request_body(BackfillRequest, locals())
        path, params = self._management_path("explain")
        answer = self._client.post(path, body, params=params)
        return backfill_explanation(self.name, column, answer)

    def preview(
        self,
        column: str,
        rows: int = 10,
        *,
        where: str | None = None,
        branch: str | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        timeout: float | None = None,
    ) -> Preview:
        """Computes a few rows that a backfill would, and returns them without publishing anything.

        Args:
            column: A computed column.
            rows: The maximum number of rows.
            where: An SQL condition; exactly these rows are computed, up to date or not.
            branch: The branch of the table; `main` by default.
            cluster: The name of a cluster in the server's configuration.
            manifest: Packages and variables: a `tidemill.Manifest`, the name of a stored one, or JSON text.
            timeout: Seconds after which to stop waiting.

        Raises:
            JobFailed: The function could not be run at all; rows on which it raises are in `.errors`.

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> docs.add_column("words", words)
        >>> docs.preview("words", rows=1, timeout=120).to_arrow().column("words").to_pylist()
        [2]
        """
        body = request_body(PreviewRequest, locals())
        path, params = self._management_path("preview")
        job = get_job(self._client, self._client.post(path, body, params=params)["job_id"])
        return read_preview(self.name, column, job.id, job.wait(timeout).result or {})

    def _declare(self, name: str, column: Mapping[str, Any]) -> None:
        """Declares columns; remembers the function if they are there already, for the backfill after that."""
        refused, key = self._client.refused_functions, (self.levels, name)
        try:
            self._post("table", "add_columns", {"new_columns": [{"name": name, "virtual_column": column}]})
        except (InvalidRequest, AlreadyExists):
            refused[key] = (column["udf_name"], column["udf_version"])
            raise
        refused.pop(key, None)

    def _check_function(self, column: str, function: Any) -> None:
        """Raises FunctionDiffers for a function that is given, and warns about one that was refused."""
        refused = self._client.refused_functions.get((self.levels, column))
        if function is not None:
            given = function_of(function)
            problem = self._find_difference(column, given.name, given.digest)
            if problem is not None:
                raise FunctionDiffers(problem)
        elif refused is not None:
            problem = self._find_difference(column, *refused)
            if problem is not None:
                warnings.warn(f"{problem}. This job calls the version of the catalog", stacklevel=3)

    def _find_difference(self, column: str, name: str, digest: str) -> str | None:
        current = next((found for found in self.column_status(column).functions if found.is_current), None)
        if current is None or current.digest == digest:
            return None
        call = f'alter_column("{column}", {name}'
        return (
            f"{self.name}.{column} is filled by {current.name} ({current.digest:.15}), and {name} of this "
            f'program is another version ({digest:.15}): call {call}, keep="computed") to keep the values '
            f"computed so far, or {call}) to recompute every row"
        )

    def _start_backfill(self, body: Mapping[str, Any], idempotency_key: str | None) -> Job:
        path, params = self._client.object_path("table", self.levels, "backfill_column")
        answer = self._client.post(path, dict(body), params=params, idempotency_key=idempotency_key)
        return get_job(self._client, answer["job_id"])
