"""The lake: namespaces, tables, views, functions and jobs of one server."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from tidemill.catalog.model.functions import encode_envelope
from tidemill.sdk.audit import AuditEvent, audit_event, named_object, time_text
from tidemill.sdk.auth import Auth
from tidemill.sdk.data import as_reader
from tidemill.sdk.definitions import SqlDefinition, ViewDefinition
from tidemill.sdk.functions import function_of
from tidemill.sdk.http import ServerClient, pages
from tidemill.sdk.jobs import Job, get_job
from tidemill.sdk.names import DEFAULT_DELIMITER, Name, joined_id, levels_of, namespace_levels
from tidemill.sdk.options import (
    RENDERED,
    Manifest,
    ManifestInfo,
    OnError,
    Policy,
    PolicyName,
    dependant_flags,
    drop_manifest,
    list_manifests,
    policy_request,
    put_manifest,
)
from tidemill.sdk.table import Table
from tidemill.sdk.view import View

Mode = Literal["create", "exist_ok", "overwrite"]
MODES: Final[Mapping[str, str]] = {"create": "Create", "exist_ok": "ExistOk", "overwrite": "Overwrite"}
MAX_PAGE: Final = 1000


class LakeViews:
    """What a lake can do with views."""

    _client: ServerClient

    def sql(self, statement: str) -> SqlDefinition:
        """An SQL query over tables and views of the lake, as the definition of a view.

        Write names with their namespaces; Spark evaluates the query. A view with filters, joins and groups is
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
            auto_refresh: Refresh it automatically when its sources have changed.
            policy: How it is refreshed: incrementally where that is possible and cheaper (`auto`), only
                incrementally (`incremental`: fails where it would have to be full), or in full (`full`).
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
        """A view by name; does not check whether it exists."""
        return View(self._client, levels_of(name))

    def open_view(self, name: Name) -> View:
        """A view by name; raises NotFound if it does not exist."""
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

    def drop_view(self, name: Name, *, cascade: bool = False, force: bool = False) -> None:
        """Removes a view and its data; refuses a table that is not a view.

        `cascade` and `force` are those of `drop_table`, for views that are made from this one.
        """
        path, params = self._client.object_path("materialized_view", levels_of(name), "drop")
        self._client.post(path, params={**params, **dependant_flags(cascade=cascade, force=force)})


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
    """The options are stored with the view's chunker or table function; a query has no place for them."""
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


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """A function of the catalog, without its code."""

    name: str
    digest: str
    kind: str
    parameters: tuple[str, ...]
    details: Mapping[str, Any]


class Lake(LakeViews):
    """A connection to a server, made by `tidemill.connect`.

    It is a context manager. Closing it stops the server if `connect` started it.

    >>> lake.create_namespace("examples", exist_ok=True)
    >>> "examples" in lake.list_namespaces()
    True
    """

    def __init__(self, client: ServerClient, stop_server: Callable[[], None] | None = None) -> None:
        self._client = client
        # Tied to the client, not to the lake: tables and jobs may outlive the lake they came from.
        self._stop_server = None if stop_server is None else weakref.finalize(client, stop_server)

    def __repr__(self) -> str:
        return f"<Lake at {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The server's address, for any client of its protocols."""
        return self._client.url

    def close(self) -> None:
        """Closes the connection, and stops the server if this connection started it."""
        self._client.close()
        if self._stop_server is not None:
            self._stop_server()

    def health(self) -> dict[str, Any]:
        """The health of the server, its worker and its storage."""
        return dict(self._client.get("/api/v1/health"))

    def create_namespace(
        self, name: Name, *, exist_ok: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Creates a namespace; its parents must exist."""
        mode = MODES["exist_ok" if exist_ok else "create"]
        self._namespace(levels_of(name), "create", {"mode": mode, "properties": dict(properties or {})})

    def list_namespaces(self, parent: Name | None = None) -> list[str]:
        """The names of the namespaces inside another one, or at the root."""
        path, params = self._client.object_path("namespace", namespace_levels(parent), "list")
        found = pages(self._client, path, params)
        return [name for page in found for name in page.get("namespaces", [])]

    def drop_namespace(self, name: Name, *, cascade: bool = False, force: bool = False) -> None:
        """Removes a namespace; with `cascade` also everything in it.

        Refused if views elsewhere are made from tables in it, unless `force` leaves them without a source.
        """
        behavior = "Cascade" if cascade else "Restrict"
        body = {"mode": "Fail", "behavior": behavior, **({"force": True} if force else {})}
        self._namespace(levels_of(name), "drop", body)

    def create_table(self, name: Name, data: Any, *, mode: Mode = "create") -> Table:
        """Creates a table from rows.

        Args:
            name: `"space.table"` or a list of levels; the namespace has to exist.
            data: An Arrow Table, RecordBatch or reader, a pandas or polars DataFrame, a list of dicts, or the
                path of a Parquet file or folder (or a list of them).
            mode: If the table exists: refuse (`create`), keep it (`exist_ok`) or replace it (`overwrite`).

        >>> import pyarrow as pa
        >>> hours = pa.table({"hour": [0, 6, 12], "metres": [0.4, 3.1, 0.6]})
        >>> tides = lake.create_table("examples.tides", hours)
        >>> tides.count_rows("metres < 1")
        2
        """
        if mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
        levels = levels_of(name)
        path, params = self._client.object_path("table", levels, "create")
        self._client.post_arrow(path, as_reader(data), params={**params, "mode": MODES[mode]})
        return Table(self._client, levels)

    def table(self, name: Name) -> Table:
        """A table by name; does not check whether it exists."""
        return Table(self._client, levels_of(name))

    def open_table(self, name: Name) -> Table:
        """A table that exists.

        >>> lake.open_table("examples.nowhere")
        Traceback (most recent call last):
        ...
        tidemill.sdk.errors.NotFound: Table examples.nowhere does not exist
        """
        table = self.table(name)
        table.describe()
        return table

    def list_tables(self, namespace: Name | None = None) -> list[str]:
        """The names of the tables and views in a namespace."""
        path, params = self._client.object_path("namespace", namespace_levels(namespace), "table/list")
        return [name for page in pages(self._client, path, params) for name in page.get("tables", [])]

    def drop_table(self, name: Name, *, cascade: bool = False, force: bool = False) -> None:
        """Removes a table or view and its data; refused if views are made from it.

        Args:
            name: `"space.table"` or a list of levels.
            cascade: Also remove the views that are made from it.
            force: Remove just this one; views that are made from it cannot be refreshed any more.
        """
        path, params = self._client.object_path("table", levels_of(name), "drop")
        self._client.post(path, params={**params, **dependant_flags(cascade=cascade, force=force)})

    def jobs(
        self,
        *,
        limit: int = 100,
        table: Name | None = None,
        kind: str | None = None,
        state: str | None = None,
    ) -> list[Job]:
        """The latest jobs, newest first.

        Args:
            limit: Maximum number of jobs.
            table: Only those of this table or view.
            kind: Only `backfill`, `preview`, `refresh`, `verify` or `index`.
            state: Only `QUEUED`, `RUNNING`, `PAUSED`, `DONE`, `FAILED` or `CANCELLED`.

        >>> lake.jobs(table="examples.docs", state="RUNNING")
        []
        """
        query = {**_one_table(table), "kind": kind, "state": state}
        found: list[Job] = []
        for page in pages(self._client, "/api/v1/jobs", query, limit=min(limit, MAX_PAGE)):
            found.extend(Job(self._client, body) for body in page.get("jobs", []))
            if len(found) >= limit:
                break
        return found[:limit]

    def job(self, job_id: str) -> Job:
        """A job by its id."""
        return get_job(self._client, job_id)

    def audit(
        self,
        *,
        limit: int = 100,
        principal: str | None = None,
        object: Name | None = None,
        operation: str | None = None,
        decision: str | None = None,
        request_id: str | None = None,
        job_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[AuditEvent]:
        """What was done and refused, newest first.

        Administrators of the server see all events, those of a namespace what concerns it when they name it
        with `object`, and others what they did themselves.

        Args:
            limit: Maximum number of events.
            principal: Only what this client did, or was refused.
            object: Only events about this namespace, table or view and everything below it.
            operation: Only operations that contain this text, such as `version/create`.
            decision: Only `allowed`, `denied` or `failed`.
            request_id: Only the request with this id.
            job_id: Only what was done to this job, or by it.
            since: Only events at or after this time.
            until: Only events before this time.

        >>> lake.create_namespace("audited")
        >>> [event.decision for event in lake.audit(object="audited")]
        ['allowed']
        """
        query = {
            **named_object(object),
            "principal": principal,
            "operation": operation,
            "decision": decision,
            "request_id": request_id,
            "job_id": job_id,
            "since": time_text(since),
            "until": time_text(until),
        }
        found: list[AuditEvent] = []
        for page in pages(self._client, "/api/v1/audit", query, limit=min(limit, MAX_PAGE)):
            found.extend(map(audit_event, page.get("events", [])))
            if len(found) >= limit:
                break
        return found[:limit]

    @property
    def auth(self) -> Auth:
        """Clients, API keys, roles and grants of the server."""
        return Auth(self._client)

    def put_manifest(
        self, name: str, *, pip: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        """Stores packages and variables under a name that `Table.backfill(manifest=...)` takes.

        Args:
            name: An existing manifest of that name is replaced.
            pip: Packages in pip's notation.
            env: Environment variables and their values.

        >>> lake.put_manifest("small", env={"MODEL": "small"})
        >>> [manifest.env for manifest in lake.list_manifests() if manifest.name == "small"]
        [('MODEL',)]
        >>> lake.drop_manifest("small")
        """
        put_manifest(self._client, name, Manifest(pip, env or {}))

    def list_manifests(self) -> list[ManifestInfo]:
        """The stored manifests, without the values of their variables."""
        return list_manifests(self._client)

    def drop_manifest(self, name: str) -> None:
        """Removes a stored manifest; jobs that have it already keep it."""
        drop_manifest(self._client, name)

    def functions(self, namespace: Name | None = None) -> list[FunctionInfo]:
        """The functions that you may read, of all namespaces or of one."""
        body = self._client.get("/api/v1/functions", params=_in_namespace(namespace))
        return [_function_info(function) for function in body.get("functions", [])]

    def register(self, function: Any, namespace: Name | None = None) -> str:
        """Registers a decorated function and returns its digest; `add_column` does so automatically.

        Without a namespace, the function is registered in the root.

        >>> import tidemill
        >>> @tidemill.udf
        ... def plus_one(number: int) -> int:
        ...     return number + 1
        >>> lake.register(plus_one) == plus_one.function.digest
        True
        >>> "plus_one" in {function.name for function in lake.functions()}
        True
        """
        described = function_of(function)
        params = _in_namespace(namespace)
        self._client.post_envelope("/api/v1/functions", encode_envelope(described), params=params)
        return described.digest

    def _namespace(self, levels: tuple[str, ...], action: str, body: Mapping[str, Any]) -> None:
        path, params = self._client.object_path("namespace", levels, action)
        self._client.post(path, dict(body), params=params)


def _one_table(table: Name | None) -> dict[str, str]:
    """The query for one table; always with the delimiter, because dots may be part of a name."""
    if table is None:
        return {}
    joined, params = joined_id(levels_of(table))
    return {"table": joined, "delimiter": DEFAULT_DELIMITER, **params}


def _in_namespace(namespace: Name | None) -> dict[str, str]:
    if namespace is None:
        return {}
    joined, params = joined_id(levels_of(namespace))
    return {"namespace": joined, "delimiter": DEFAULT_DELIMITER, **params}


def _function_info(body: Mapping[str, Any]) -> FunctionInfo:
    parameters = tuple(body.get("parameters") or ())
    return FunctionInfo(
        str(body["name"]), str(body["digest"]), str(body.get("kind", "")), parameters, dict(body)
    )
