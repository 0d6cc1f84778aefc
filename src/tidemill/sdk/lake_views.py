"""Materialized views of a lake: defined, found and removed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.sdk.definitions import SqlDefinition, ViewDefinition
from tidemill.sdk.environments import Manifest
from tidemill.sdk.http import ServerClient, pages
from tidemill.sdk.jobs import get_job
from tidemill.sdk.names import Name, levels_of, namespace_levels
from tidemill.sdk.options import RENDERED, Policy, policy_request
from tidemill.sdk.policies import OnError, PolicyName
from tidemill.sdk.view import View


class LakeViews:
    """What a lake can do with views."""

    _client: ServerClient

    def sql(self, statement: str) -> SqlDefinition:
        """An SQL query over tables and views of the lake, as the definition of a view.

        Names are written with their namespaces; Spark evaluates it. A view with filters, joins and groups is
        refreshed by what changed; `View.explain` says where that is not possible.

        >>> counts = lake.sql("SELECT length(text) AS size, count(*) AS texts FROM examples.docs GROUP BY 1")
        >>> view = lake.create_materialized_view("examples.sizes", counts)
        >>> job = view.refresh().wait(timeout=120)
        >>> sorted(row["size"] for row in view.query(columns=["size"]).to_pylist())
        [6, 8]
        """
        return SqlDefinition(statement)

    def sql_file(self, path: str | Path) -> SqlDefinition:
        """The SQL query in a file, as the definition of a view."""
        return SqlDefinition(Path(path).read_text())

    def create_materialized_view(
        self,
        name: Name,
        definition: ViewDefinition | str,
        *,
        with_no_data: bool = True,
        auto_refresh: bool = False,
        policy: Policy = "auto",
        on_error: OnError | PolicyName | None = None,
        manifest: Manifest | str | None = None,
    ) -> View:
        """Declares a view.

        Args:
            name: `"space.view"` or a list of levels.
            definition: An SQL query; or rows of a table, made with `table.select(...)`, `.where(...)` and
                `.chunk(...)`; or those that a function of many rows makes, with `function.over(table)`.
            with_no_data: Leave it empty until `View.refresh`; otherwise the first refresh starts now and is
                `view.first_refresh`.
            auto_refresh: Refresh it by itself whenever its sources have changed.
            policy: How it is refreshed: incrementally where that is possible and cheaper (`auto`), or not at
                all (`incremental`), or always as a whole (`full`).
            on_error: What to do about failing rows of a chunker or table function, as in `Table.backfill`.
            manifest: Packages and variables for a chunker or table function, as in `Table.backfill`.

        >>> mills = docs.select("id").where("text LIKE '%mill%'")
        >>> view = lake.create_materialized_view("examples.mills", mills)
        >>> view.refresh().wait(timeout=120).progress.written
        1

        >>> import tidemill
        >>> @tidemill.udf
        ... def words(text: str) -> int:
        ...     return len(text.split())
        >>> counted = lake.create_materialized_view("examples.counted", docs.select("id", words=words))
        >>> job = counted.refresh().wait(timeout=120)
        >>> counted.query(filter="id = 1", columns=["words"]).to_pylist()
        [{'words': 2}]
        """
        levels = levels_of(name)
        path, params = self._client.object_path("materialized_view", levels, "create")
        body = {
            **_with_function_options(_defined(definition).request(), on_error, manifest),
            "with_no_data": with_no_data,
            "auto_refresh": auto_refresh,
            "policy": policy_request(policy),
        }
        job_id = self._client.post(path, body, params=params).get("job_id")
        return View(self._client, levels, first_refresh=get_job(self._client, job_id) if job_id else None)

    def view(self, name: Name) -> View:
        """A view by name, without asking whether it exists."""
        return View(self._client, levels_of(name))

    def open_view(self, name: Name) -> View:
        """A view that exists."""
        view = self.view(name)
        view.describe()
        return view

    def list_views(self, namespace: Name | None = None) -> list[str]:
        """The names of the materialized views in a namespace.

        >>> view = lake.create_materialized_view("examples.one", docs.where("id = 1"))
        >>> lake.list_views("examples")
        ['one']
        """
        levels = namespace_levels(namespace)
        path, params = self._client.object_path("namespace", levels, "materialized_view/list")
        return [name for page in pages(self._client, path, params) for name in page.get("views", [])]

    def drop_view(self, name: Name) -> None:
        """Removes a view and its data; refuses a table that is none."""
        path, params = self._client.object_path("materialized_view", levels_of(name), "drop")
        self._client.post(path, params=params)


def _defined(definition: ViewDefinition | str) -> ViewDefinition:
    if isinstance(definition, str):
        return SqlDefinition(definition)
    if not isinstance(definition, ViewDefinition):
        raise TypeError(
            "a view is defined with SQL text, table.select(...), table.where(...), table.chunk(...) or "
            "function.over(table)"
        )
    return definition


def _with_function_options(
    body: Mapping[str, Any], on_error: OnError | PolicyName | None, manifest: Manifest | str | None
) -> dict[str, Any]:
    """The options are kept with the view's chunker or table function; a query has no place for them."""
    given = {"on_error": on_error, "manifest": manifest}
    spec = body["udtf_spec"]
    if spec is None:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name}= is for views of a chunker or table function; give it to refresh()")
        return dict(body)
    rendered = {name: None if value is None else RENDERED[name](value) for name, value in given.items()}
    options = {"error_handling": rendered["on_error"], "manifest": rendered["manifest"]}
    return {**body, "udtf_spec": {**spec, **options}}
