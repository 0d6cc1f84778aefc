"""Every way a server of ours answers the replacement of a view, from a server with clients on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
import psycopg
import pytest

from tests.conftest import start_server
from tests.iceberg_requests import new_key, new_view, with_version
from tests.postgres import PostgresCluster, PostgresMissing

VIEWS: Final = "namespaces/answers/views"
VIEW: Final = f"{VIEWS}/v"
CLIENTS: Final = {"owner": {"secret": "o"}, "reader": {"secret": "r", "grants": {"": ["read"]}}}
OTHER_VIEW: Final = {"type": "assert-view-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}


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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    cluster.create_database("answers")
    database = cluster.url("answers")
    running = start_server(
        tmp_path_factory.mktemp("answers"),
        "--no-worker",
        TIDEMILL_DATABASE_URL=database,
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
    )
    yield running.url, database.replace("+psycopg", "")
    running.stop()
    cluster.stop()


@pytest.fixture
def catalog(server: tuple[str, str]) -> Iterator[Catalog]:
    url, database = server
    with httpx.Client(
        base_url=f"{url}/iceberg/v1", headers={"x-api-key": "owner:o"}, timeout=60, trust_env=False
    ) as http:
        http.post("namespaces", json={"namespace": ["answers"]})
        http.delete(VIEW)
        assert http.post(VIEWS, json=new_view("v", "SELECT 0")).status_code == 200
        yield Catalog(http, database)


def check(answer: httpx.Response, status: int, kind: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (status, kind), error
    assert error["message"]


def test_a_replacement_is_answered_with_the_view(catalog: Catalog) -> None:
    answer = catalog.replace(with_version("SELECT 1"))
    assert answer.status_code == 200
    assert answer.json().keys() == {"metadata-location", "metadata", "config"}
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
    with psycopg.connect(catalog.database, autocommit=True) as connection:
        connection.execute("ALTER TABLE iceberg_entries RENAME COLUMN metadata TO mislaid")
        try:
            check(catalog.replace(body, key=key), 500, "CommitStateUnknownException")
        finally:
            connection.execute("ALTER TABLE iceberg_entries RENAME COLUMN mislaid TO metadata")
    assert catalog.replace(body, key=key).status_code == 200
    assert catalog.versions() == ["SELECT 0", "SELECT 1"]
