"""Every status of our answers to three requests that compute, and to the replacement of an Iceberg view.

The server has clients, PostgreSQL behind a proxy that loses commits, and no worker: jobs stay queued.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx
import psycopg
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, Configuration
from lance_namespace_urllib3_client.api import MaterializedViewApi, TableApi
from lance_namespace_urllib3_client.models import (
    AlterTableBackfillColumnsRequest,
    CreateMaterializedViewRequest,
    RefreshMaterializedViewRequest,
)

from tests.conftest import RunningServer, start_server
from tests.faulty_database import Fault, FaultyPostgres
from tests.iceberg_requests import new_key, new_view, with_version
from tests.postgres import PostgresCluster, PostgresMissing
from tests.protocol.generated import refusal
from tests.protocol.geneva_wire import function, new_column, output
from tests.protocol.test_authentication import bearer, expired_token
from tests.protocol.view_wire import query, table_view, view
from tests.protocol.wire import TableOnWire, check_refusal, some_rows
from tests.specification.answers import LANCE_PROTOCOL, checking

VIEWS: Final = "namespaces/answers/views"
VIEW: Final = f"{VIEWS}/v"
CLIENTS: Final = {"owner": {"secret": "o"}, "reader": {"secret": "r", "grants": {"": ["read"]}}}
OWNER, READER = {"x-api-key": "owner:o"}, {"x-api-key": "reader:r"}
OTHER_VIEW: Final = {"type": "assert-view-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}


@dataclass(frozen=True)
class Running:
    server: RunningServer
    faulty: FaultyPostgres
    database: str


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    cluster.create_database("answers")
    database = cluster.url("answers")
    faulty = FaultyPostgres(database)
    server = start_server(
        tmp_path_factory.mktemp("answers"),
        "--no-worker",
        TIDEMILL_DATABASE_URL=faulty.url,
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
        # Failed requests are audited after the response: a fault could be meant for another commit than that.
        TIDEMILL_AUDIT_ROWS="false",
    )
    yield Running(server, faulty, database.replace("+psycopg", ""))
    faulty.faults.recover()
    server.stop()
    faulty.close()
    cluster.stop()


@contextmanager
def mislaid(database: str, table: str, column: str) -> Iterator[None]:
    """A column that the server counts on has another name."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO mislaid".encode())
        try:
            yield
        finally:
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN mislaid TO {column}".encode())


CREATE, REFRESH, BACKFILL = "create", "refresh", "backfill"
every_operation = pytest.mark.parametrize("operation", [CREATE, REFRESH, BACKFILL])


@dataclass(frozen=True)
class Lake:
    """A namespace with a table `t`, whose column `y` has a function, and a view `v` of the table."""

    running: Running
    http: httpx.Client
    namespace: str

    def prepare(self) -> None:
        assert self.http.post(f"/v1/namespace/{self.namespace}/create", headers=OWNER).status_code == 200
        with httpx.Client(base_url=self.http.base_url, timeout=60, trust_env=False, headers=OWNER) as owner:
            table = TableOnWire(owner, self.namespace, "t")
            table.create(some_rows())
            table.asked("add_columns", new_column("y", function("plus", ["id"], output("y", "int64"))))
        assert self.send(CREATE, "v").status_code == 201

    def request(self, operation: str, name: str | None = None) -> tuple[str, dict[str, Any]]:
        """The path and body of a request that is in order; `name` is that of the table or view."""
        if operation == BACKFILL:
            return f"/v1/table/{self.namespace}${name or 't'}/backfill_column", {"column": "y"}
        if operation == REFRESH:
            return f"/v1/materialized_view/{self.namespace}${name or 'v'}/refresh", {}
        path = f"/v1/materialized_view/{self.namespace}${name or uuid4().hex}/create"
        return path, view(query(self.namespace, "t"))

    def send(
        self, operation: str, name: str | None = None, headers: dict[str, str] = OWNER, **changes: Any
    ) -> httpx.Response:
        path, body = self.request(operation, name)
        return self.http.post(path, json=body | changes, headers=headers)

    def traces(self) -> tuple[int, list[str]]:
        """How many jobs and which views there are."""
        jobs = self.http.get("/api/v1/jobs", params={"limit": 1000}, headers=OWNER).json()["jobs"]
        views = self.http.get(f"/v1/namespace/{self.namespace}/materialized_view/list", headers=OWNER)
        return len(jobs), sorted(views.json()["views"])


@pytest.fixture(scope="module")
def http(running: Running) -> Iterator[httpx.Client]:
    hooks = {"response": [checking(LANCE_PROTOCOL)]}
    url = running.server.url
    with httpx.Client(base_url=url, timeout=60, trust_env=False, event_hooks=hooks) as client:
        yield client


@pytest.fixture
def lake(running: Running, http: httpx.Client) -> Iterator[Lake]:
    made = Lake(running, http, f"n{uuid4().hex[:12]}")
    made.prepare()
    yield made
    running.faulty.faults.recover()


@pytest.fixture(scope="module")
def still(running: Running, http: httpx.Client) -> Lake:
    made = Lake(running, http, "still")
    made.prepare()
    return made


@pytest.fixture
def untouched(still: Lake) -> Iterator[Lake]:
    """For requests that have to be refused: they leave neither a job nor a view."""
    before = still.traces()
    yield still
    assert still.traces() == before


@every_operation
def test_a_request_in_order_is_accepted(lake: Lake, operation: str) -> None:
    answer = lake.send(operation)
    assert answer.status_code == (201 if operation == CREATE else 202)
    assert answer.json().keys() == ({"version"} if operation == CREATE else {"job_id"})


@every_operation
@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"'])
def test_a_body_that_is_no_object_is_400(untouched: Lake, operation: str, body: bytes) -> None:
    path, _ = untouched.request(operation)
    check_refusal(untouched.http.post(path, content=body, headers=OWNER), 400, 13, "body")


@every_operation
@pytest.mark.parametrize(
    "credential",
    [{}, {"x-api-key": "owner:wrong"}, {"authorization": "Bearer nobody"}, {"x-api-key": "nobody:o"}],
    ids=str,
)
def test_a_caller_without_a_credential_is_401(
    untouched: Lake, operation: str, credential: dict[str, str]
) -> None:
    """A credential in the body is none: it would end up in logs and recordings of bodies."""
    identity = {"api_key": "owner:o", "auth_token": "o"}
    answer = untouched.send(operation, headers=credential, identity=identity)
    check_refusal(answer, 401, 16)
    assert answer.headers["www-authenticate"].split()[0] == "Bearer"


@every_operation
def test_a_token_that_has_expired_is_401(untouched: Lake, operation: str) -> None:
    token = expired_token(untouched.running.server.root, CLIENTS)
    check_refusal(untouched.send(operation, headers=bearer(token)), 401, 16)


@every_operation
def test_a_caller_without_the_permission_is_403(untouched: Lake, operation: str) -> None:
    check_refusal(untouched.send(operation, headers=READER), 403, 15)


@pytest.mark.parametrize(
    ("operation", "name", "changes", "code"),
    [
        (CREATE, None, {"source_query": query("nowhere", "t")}, 1),
        (CREATE, None, {"source_query": query("still", "nowhere")}, 4),
        (REFRESH, "nowhere", {}, 4),
        (REFRESH, "t", {}, 4),
        (BACKFILL, "nowhere", {}, 4),
        (BACKFILL, None, {"column": "nowhere"}, 12),
        (BACKFILL, None, {"branch": "nowhere"}, 22),
    ],
)
def test_what_is_not_there_is_404(
    untouched: Lake, operation: str, name: str | None, changes: dict[str, Any], code: int
) -> None:
    check_refusal(untouched.send(operation, name, **changes), 404, code)


def test_a_function_that_needs_a_gpu_is_406(untouched: Lake) -> None:
    body = table_view(query(untouched.namespace, "t"), num_gpus=1)
    check_refusal(untouched.send(CREATE, **body), 406, 0, "udtf_spec.num_gpus")


@pytest.mark.parametrize(("operation", "code"), [(CREATE, 5), (REFRESH, 14), (BACKFILL, 14)])
def test_a_name_that_is_taken_and_a_second_job_are_409(lake: Lake, operation: str, code: int) -> None:
    name = None if operation == BACKFILL else "v"
    if operation != CREATE:
        assert lake.send(operation, name).status_code == 202
    before = lake.traces()
    check_refusal(lake.send(operation, name), 409, code)
    assert lake.traces() == before


@every_operation
def test_a_fault_of_the_server_is_500_and_has_no_effect(untouched: Lake, operation: str) -> None:
    table, column = ("materialized_views", "digest") if operation == CREATE else ("jobs", "request")
    with mislaid(untouched.running.database, table, column):
        check_refusal(untouched.send(operation), 500, 18)


@every_operation
def test_a_database_that_is_away_is_503_and_nothing_happened(lake: Lake, operation: str) -> None:
    before = lake.traces()
    lake.running.faulty.faults.is_down = True
    lake.running.faulty.drop_all()
    check_refusal(lake.send(operation), 503, 17)
    lake.running.faulty.faults.recover()
    assert lake.traces() == before
    assert lake.send(operation).is_success


@every_operation
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_commit_that_the_database_does_not_confirm_is_520(lake: Lake, operation: str, fault: Fault) -> None:
    """What a view needs first is its table; without a version of it there is no view yet."""
    before = lake.traces()
    lake.running.faulty.faults.fail_commit(fault, stays_down=True)
    check_refusal(lake.send(operation), 520, 18)
    lake.running.faulty.faults.recover()
    assert (lake.traces() != before) == (fault is Fault.AFTER and operation != CREATE)


@pytest.mark.parametrize(("operation", "status"), [(CREATE, 503), (REFRESH, 202), (BACKFILL, 503)])
def test_storage_that_is_gone_is_503_or_fails_the_job(lake: Lake, operation: str, status: int) -> None:
    """A refresh looks at its source when it runs."""
    described = lake.http.post(f"/v1/table/{lake.namespace}$t/describe", headers=OWNER).json()
    shutil.rmtree(described["location"])
    answer = lake.send(operation)
    assert answer.status_code == status
    if status == 503:
        check_refusal(answer, 503, 17)
        assert "there is no manifest" in answer.json()["error"]


@pytest.mark.operation(
    "CreateMaterializedView", "RefreshMaterializedView", "AlterTableBackfillColumns", client="urllib3"
)
def test_the_generated_client_reads_what_is_refused(untouched: Lake) -> None:
    table, known = f"{untouched.namespace}$t", f"{untouched.namespace}$v"
    creation = CreateMaterializedViewRequest(**view(query(untouched.namespace, "t")))
    with ApiClient(Configuration(host=untouched.running.server.url)) as client:
        client.set_default_header("x-api-key", "reader:r")
        views, tables = MaterializedViewApi(client), TableApi(client)
        for ask in (
            lambda: views.create_materialized_view(f"{untouched.namespace}$w", creation),
            lambda: views.refresh_materialized_view(
                known, refresh_materialized_view_request=RefreshMaterializedViewRequest()
            ),
            lambda: tables.alter_table_backfill_columns(table, AlterTableBackfillColumnsRequest(column="y")),
        ):
            with pytest.raises(ApiException) as raised:
                ask()
            assert refusal(raised) == (403, 15)
        client.rest_client.pool_manager.clear()


class Catalog:
    """A server, as its owner sees it, and its database."""

    def __init__(self, http: httpx.Client, database: str) -> None:
        self.http = http
        self.database = database

    def replace(
        self, body: Any, path: str = VIEW, *, key: str | None = None, api_key: str | None = "owner:o"
    ) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post(
            path, json=body, headers=headers | ({"x-api-key": api_key} if api_key else {"x-api-key": ""})
        )

    def versions(self) -> list[str]:
        """The queries that the view has had."""
        versions = self.http.get(VIEW).json()["metadata"]["versions"]
        return [version["representations"][0]["sql"] for version in versions]

    @contextmanager
    def disturbed(self, statement: str, *values: Any) -> Iterator[None]:
        """Somebody else is in a transaction that has done this."""
        with psycopg.connect(self.database) as connection:
            connection.execute(statement.encode(), values)
            yield
            connection.rollback()


@pytest.fixture
def catalog(running: Running) -> Iterator[Catalog]:
    url = f"{running.server.url}/iceberg/v1"
    with httpx.Client(base_url=url, headers=OWNER, timeout=60, trust_env=False) as http:
        http.post("namespaces", json={"namespace": ["answers"]})
        http.delete(VIEW)
        assert http.post(VIEWS, json=new_view("v", "SELECT 0")).status_code == 200
        yield Catalog(http, running.database)


def check(answer: httpx.Response, status: int, kind: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (status, kind), error
    assert error["message"]


def test_a_replacement_is_answered_with_the_view(catalog: Catalog) -> None:
    answer = catalog.replace(with_version("SELECT 1"))
    assert answer.status_code == 200
    assert answer.json().keys() == {"metadata-location", "metadata", "labels", "config"}
    assert catalog.versions() == ["SELECT 0", "SELECT 1"]


@pytest.mark.parametrize(
    ("body", "path", "status", "kind"),
    [
        ({"updates": [{"action": "paint"}]}, VIEW, 400, "IllegalArgumentException"),
        ({}, VIEW, 400, "BadRequestException"),
        (with_version("SELECT 1"), f"{VIEWS}/none", 404, "NoSuchViewException"),
        (with_version("SELECT 1") | {"requirements": [OTHER_VIEW]}, VIEW, 409, "CommitFailedException"),
    ],
)
def test_a_refusal_is_final_and_has_no_effect(
    catalog: Catalog, body: Any, path: str, status: int, kind: str
) -> None:
    key = new_key()
    first = catalog.replace(body, path, key=key)
    check(first, status, kind)
    assert catalog.replace(body, path, key=key).content == first.content
    assert catalog.versions() == ["SELECT 0"]


@pytest.mark.parametrize(
    ("api_key", "status", "kind"),
    [(None, 401, "NotAuthorizedException"), ("reader:r", 403, "ForbiddenException")],
)
def test_whoever_may_not_replace_it_is_told_so_and_the_key_stays_free(
    catalog: Catalog, api_key: str | None, status: int, kind: str
) -> None:
    body, key = with_version("SELECT 1"), new_key()
    for _ in range(2):
        check(catalog.replace(body, key=key, api_key=api_key), status, kind)
    assert catalog.versions() == ["SELECT 0"]
    assert catalog.replace(body, key=key).status_code == 200
    # What became of the owner's request is nobody else's business.
    check(catalog.replace(body, key=key, api_key=api_key), status, kind)


def test_a_token_that_has_expired_is_401_and_not_419(catalog: Catalog, running: Running) -> None:
    """The specification prefers it: clients ask for a new token on either."""
    token = expired_token(running.server.root, CLIENTS)
    url = f"{running.server.url}/iceberg/v1/{VIEW}"
    answer = httpx.post(url, json=with_version("SELECT 1"), headers=bearer(token), trust_env=False)
    check(answer, 401, "NotAuthorizedException")
    assert catalog.versions() == ["SELECT 0"]


def test_a_duplicate_of_a_request_that_does_not_end_is_put_off(catalog: Catalog) -> None:
    """Never 409: on that a client would send the same change under another key."""
    body, key = with_version("SELECT 1"), new_key()
    begun = "INSERT INTO receipts VALUES (%s, '', '', '', '', '', 9000000000000)"
    with catalog.disturbed(begun, key):
        answer = catalog.replace(body, key=key)
        check(answer, 503, "SlowDownException")
        assert int(answer.headers["retry-after"]) >= 1
        assert catalog.versions() == ["SELECT 0"]
    assert catalog.replace(body, key=key).status_code == 200
    assert catalog.versions() == ["SELECT 0", "SELECT 1"]


def test_a_fault_of_the_server_leaves_the_outcome_open_and_the_key_free(catalog: Catalog) -> None:
    """The type that makes clients leave alone what they wrote."""
    body, key = with_version("SELECT 1"), new_key()
    with mislaid(catalog.database, "iceberg_entries", "metadata"):
        check(catalog.replace(body, key=key), 500, "CommitStateUnknownException")
    assert catalog.replace(body, key=key).status_code == 200
    assert catalog.versions() == ["SELECT 0", "SELECT 1"]
