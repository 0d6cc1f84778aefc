"""Materialized views: tables that follow their source."""

from __future__ import annotations

from typing import Any, overload

from tidemill.sdk.explain import Explanation, RefreshExplanation, refresh_explanation
from tidemill.sdk.http import ServerClient
from tidemill.sdk.jobs import Job, get_job
from tidemill.sdk.knobs import refresh_body
from tidemill.sdk.names import url_id
from tidemill.sdk.table import Table


class View(Table):
    """A table whose rows are made from another one; `refresh` brings it up to date.

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

    def refresh(self, *, full: bool = False, idempotency_key: str | None = None, **knobs: Any) -> Job:
        """Starts a job that makes the view equal to its definition over the source as it is now.

        Args:
            full: Compute every row again instead of only what changed.
            idempotency_key: The same key gives the same job instead of a second one.
            **knobs: `src_version`, `concurrency`, `max_rows_per_fragment`.

        >>> recent = lake.create_materialized_view("examples.recent", docs.where("id > 1"))
        >>> recent.refresh().wait(timeout=120).progress.written
        1
        >>> recent.refresh().wait(timeout=120).progress.commits
        0
        """
        path, params = self._client.object_path("materialized_view", self.levels, "refresh")
        body = refresh_body({**knobs, "full": full or None})
        answer = self._client.post(path, body, params=params, idempotency_key=idempotency_key)
        return get_job(self._client, answer["job_id"])

    @overload
    def explain(self, column: str, **knobs: Any) -> Explanation: ...
    @overload
    def explain(self, column: None = None, *, full: bool = False, **knobs: Any) -> RefreshExplanation: ...
    def explain(
        self, column: str | None = None, *, full: bool = False, **knobs: Any
    ) -> Explanation | RefreshExplanation:
        """What `refresh` with the same arguments would do now; with a column, what its backfill would do.

        >>> first = lake.create_materialized_view("examples.first", docs.where("id = 1"))
        >>> first.explain().is_noop
        False
        """
        if column is not None:
            return super().explain(column, **knobs)
        encoded, params = url_id(self.levels)
        body = refresh_body({**knobs, "full": full or None})
        answer = self._client.post(f"/api/v1/views/{encoded}/explain", body, params=params)
        return refresh_explanation(self.name, answer)
