"""Materialized views: tables that follow their sources."""

from __future__ import annotations

from typing import Any, overload

from tidemill.jobs.model.options import RefreshRequest, VerifyRequest
from tidemill.sdk.computed import job_id_of
from tidemill.sdk.explain import Explanation, RefreshExplanation, refresh_explanation
from tidemill.sdk.http import ServerClient
from tidemill.sdk.jobs import Job, get_job
from tidemill.sdk.names import url_id
from tidemill.sdk.options import Manifest, OnError, Policy, PolicyName, request_body
from tidemill.sdk.status import RowErrorInfo, ViewStatus, view_status
from tidemill.sdk.table import Table


class View(Table):
    """A table whose rows are made from others; `refresh` brings it up to date.

    >>> upper = docs.select("id", text="upper(text)").where("id > 1")
    >>> loud = lake.create_materialized_view("examples.loud", upper)
    >>> job = loud.refresh().wait(timeout=120)
    >>> loud.query(columns=["id", "text"]).to_pylist()
    [{'id': 2, 'text': 'THE MILL'}]
    """

    def __init__(
        self, client: ServerClient, levels: tuple[str, ...], *, first_refresh: Job | None = None
    ) -> None:
        super().__init__(client, levels)
        self.first_refresh = first_refresh

    def set_owner(self, owner: str) -> None:
        """Gives the view to another client or user, with whose rights it is refreshed from then on.

        Administrators of the view can make themselves its owner; naming others takes `admin` on the root.
        """
        encoded, params = url_id(self.levels)
        self._client.post(f"/api/v1/views/{encoded}/owner", {"owner": owner}, params=params)

    def refresh(
        self,
        *,
        full: bool = False,
        policy: Policy | None = None,
        src_version: int | None = None,
        output_limit: int | None = None,
        on_error: OnError | PolicyName | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        concurrency: int | None = None,
        intra_applier_concurrency: int | None = None,
        source_task_size: int | None = None,
        max_rows_per_fragment: int | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Starts a job that makes the view equal to its definition over the sources as they are now.

        Args:
            full: Recompute every row instead of only what changed; the same as `policy="full"`.
            policy: For this refresh, instead of the view's own: `"auto"`, `"incremental"` (which fails rather
                than recompute everything) or `"full"`.
            src_version: The version of the source to read, which may be an older one; the latest by default.
            output_limit: For a chunker, the maximum number of rows in the view.
            on_error: What to do when a function fails on a row: `tidemill.fail()`, `tidemill.retry(...)` or
                `tidemill.skip(...)`, or their names; by default what the view says. Skipped rows are listed
                by `errors`.
            cluster: The name of a cluster in the server's configuration.
            manifest: Packages and variables: a `tidemill.Manifest`, the name of a stored one, or JSON text.
            concurrency: The maximum number of tasks at a time.
            intra_applier_concurrency: Calls of the function at a time in each task; a hint, without effect,
                for table functions.
            source_task_size: Source rows per task; a hint, without effect, for table functions and SQL.
            max_rows_per_fragment: The maximum number of rows in a fragment of the view.
            idempotency_key: The same key gives the same job instead of a second one.

        >>> recent = lake.create_materialized_view("examples.recent", docs.where("id > 1"))
        >>> recent.refresh().wait(timeout=120).progress.written
        1
        >>> recent.refresh().wait(timeout=120).progress.commits
        0
        """
        body = request_body(RefreshRequest, locals())
        path, params = self._client.object_path("materialized_view", self.levels, "refresh")
        answer = self._client.post(path, body, params=params, idempotency_key=idempotency_key)
        return get_job(self._client, answer["job_id"])

    @overload
    def explain(self, column: str, **options: Any) -> Explanation: ...
    @overload
    def explain(
        self,
        column: None = None,
        *,
        full: bool = False,
        policy: Policy | None = None,
        src_version: int | None = None,
        output_limit: int | None = None,
        on_error: OnError | PolicyName | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        concurrency: int | None = None,
        intra_applier_concurrency: int | None = None,
        source_task_size: int | None = None,
        max_rows_per_fragment: int | None = None,
    ) -> RefreshExplanation: ...
    def explain(self, column: str | None = None, **options: Any) -> Explanation | RefreshExplanation:
        """Shows what `refresh` with the same arguments would do now, or with a column, its backfill.

        Args:
            column: A column that was added with `add_column`.
            **options: Those of `refresh`; with a column, those of `backfill`.

        >>> first = lake.create_materialized_view("examples.first", docs.where("id = 1"))
        >>> first.explain().is_noop
        False
        >>> [change.source for change in first.explain().sources]
        ['examples.docs']
        """
        if column is not None:
            return super().explain(column, **options)
        return self._explain_refresh(**options)

    def verify(self, rows: int | None = None, *, seed: int = 0, cluster: str | None = None) -> Job:
        """Starts a job that recomputes rows and compares them with those the view holds.

        It changes nothing. What it found is `job.verification` once the job has ended.

        Args:
            rows: The number of source rows, or keys, to check at random; all of them by default.
            seed: The same seed checks the same rows.
            cluster: The name of a cluster in the server's configuration.

        >>> texts = lake.create_materialized_view("examples.texts", docs.select("text"))
        >>> job = texts.refresh().wait(timeout=120)
        >>> texts.verify().wait(timeout=120).verification.is_same
        True
        """
        body = request_body(VerifyRequest, locals())
        path, params = self._view_path("verify")
        return get_job(self._client, self._client.post(path, body, params=params)["job_id"])

    def status(self) -> ViewStatus:
        """Whether the view is up to date, and what happened to its sources since it was refreshed.

        >>> tides = lake.create_materialized_view("examples.tides_only", docs.where("text LIKE '%tide%'"))
        >>> tides.status().is_fresh
        False
        >>> job = tides.refresh().wait(timeout=120)
        >>> tides.status().is_fresh
        True
        """
        path, params = self._view_path("status")
        return view_status(self.name, self._client.get(path, params))

    def errors(
        self, column: str | None = None, job: Job | str | None = None, *, branch: str | None = None
    ) -> list[RowErrorInfo]:
        """The rows on which functions failed: those of its sources, and its own in columns added to it.

        Args:
            column: Only those of a column that was added with `add_column`.
            job: Only those of this job, or of the one with this id.
            branch: Only those of added columns on this branch.

        >>> import tidemill
        >>> @tidemill.udf
        ... def inverse(id: int) -> float:
        ...     return 1 / (id - 2)
        >>> view = lake.create_materialized_view("examples.inverses", docs.select("id", inverse=inverse))
        >>> job = view.refresh(on_error="skip").wait(timeout=120)
        >>> [error.exception for error in view.errors()]
        ['ZeroDivisionError']
        """
        added = super().errors(column, job, branch=branch)
        if column is not None or branch is not None:
            return added
        path, params = self._view_path("errors")
        return [*self._errors(path, {**params, "job_id": job_id_of(job)}, ""), *added]

    def _explain_refresh(
        self,
        *,
        full: bool = False,
        policy: Policy | None = None,
        src_version: int | None = None,
        output_limit: int | None = None,
        on_error: OnError | PolicyName | None = None,
        cluster: str | None = None,
        manifest: Manifest | str | None = None,
        concurrency: int | None = None,
        intra_applier_concurrency: int | None = None,
        source_task_size: int | None = None,
        max_rows_per_fragment: int | None = None,
    ) -> RefreshExplanation:
        body = request_body(RefreshRequest, locals())
        path, params = self._view_path("explain")
        return refresh_explanation(self.name, self._client.post(path, body, params=params))

    def _view_path(self, action: str) -> tuple[str, dict[str, str]]:
        """The path of an action of the management API on the view, and its query."""
        encoded, params = url_id(self.levels)
        return f"/api/v1/views/{encoded}/{action}", params
