"""Secrets of lancedb's remote client: kept sealed, replaced, listed, and told to nobody."""

from __future__ import annotations

import time

import httpx
import pytest
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError

from tests.conftest import RunningServer
from tests.protocol.remote import database, new_name
from tests.protocol.wire import check_refusal

__all__ = ["database"]

VALUE = "swordfish-that-nobody-may-see"


@pytest.fixture
def secret(database: RemoteDBConnection) -> str:
    name = new_name("secret")
    database.create_secret(name, VALUE)
    return name


def test_a_secret_is_described_without_its_value(
    database: RemoteDBConnection, http: httpx.Client, secret: str
) -> None:
    told = database.describe_secret(secret)
    assert (told.name, told.updated_at_millis) == (secret, told.created_at_millis)
    assert secret in database.list_secrets()
    for answer in (
        http.post(f"/v1/secret/{secret}/describe"),
        http.get("/v1/namespace/$/secret/list"),
        http.post(f"/v1/secret/{secret}/create", json={"value": VALUE}),
    ):
        assert VALUE not in answer.text


def test_altering_a_secret_is_seen_by_its_time(database: RemoteDBConnection, secret: str) -> None:
    before = database.describe_secret(secret)
    time.sleep(0.005)
    database.alter_secret(secret, "another")
    after = database.describe_secret(secret)
    assert after.created_at_millis == before.created_at_millis
    assert after.updated_at_millis > before.updated_at_millis


def test_creating_never_replaces_and_altering_never_creates(
    database: RemoteDBConnection, secret: str
) -> None:
    with pytest.raises(HttpError, match=r"409 .*already exists"):
        database.create_secret(secret, "another")
    for call in (
        lambda: database.alter_secret("nobody", "v"),
        lambda: database.describe_secret("nobody"),
        lambda: database.drop_secret("nobody"),
    ):
        with pytest.raises(HttpError, match=r"404 .*does not exist"):
            call()


def test_a_dropped_secret_is_gone(database: RemoteDBConnection, secret: str) -> None:
    database.drop_secret(secret)
    assert secret not in database.list_secrets()


def test_secrets_hold_their_namespace(database: RemoteDBConnection, http: httpx.Client) -> None:
    space = new_name("ns")
    database.create_namespace([space])
    database.create_secret("inside", VALUE, namespace_path=[space])
    assert database.list_secrets(namespace_path=[space]) == ["inside"]
    assert "inside" not in database.list_secrets()
    check_refusal(http.post(f"/v1/namespace/{space}/drop", json={}), 409, 3)
    assert http.post(f"/v1/namespace/{space}/drop", json={"behavior": "Cascade"}).status_code == 200
    check_refusal(http.get(f"/v1/namespace/{space}/secret/list"), 404, 1)


def test_values_are_neither_in_the_files_nor_in_the_log(server: RunningServer, secret: str) -> None:
    files = [path for path in server.root.iterdir() if path.is_file()]
    assert {"catalog.db", "secret.key", "server.log"} <= {path.name for path in files}
    assert [path.name for path in files if VALUE.encode() in path.read_bytes()] == []
    assert (server.root / "secret.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("body", [{}, {"value": ""}, {"value": 5}, {"value": "x" * 70_000}])
def test_a_secret_needs_a_value(http: httpx.Client, body: dict[str, object]) -> None:
    check_refusal(http.post(f"/v1/secret/{new_name('s')}/create", json=body), 400, 13, "value")
