"""lancedb's remote client, pointed at this server: everything goes over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import lancedb
import pytest
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError
from lancedb.remote.table import RemoteTable

from tests.conftest import RunningServer
from tests.protocol.wire import some_rows


@pytest.fixture
def database(server: RunningServer) -> RemoteDBConnection:
    connected = lancedb.connect("db://x", api_key="k", host_override=server.url)
    assert isinstance(connected, RemoteDBConnection)
    return connected


@pytest.fixture
def remote(database: RemoteDBConnection) -> Iterator[RemoteTable]:
    """A table at the root, where this client keeps them."""
    name = f"remote{uuid4().hex[:12]}"
    made = database.create_table(name, some_rows(count=5))
    assert isinstance(made, RemoteTable)
    yield made
    database.drop_table(name)


def test_a_created_table_has_its_rows_and_its_schema(remote: RemoteTable) -> None:
    assert (remote.count_rows(), remote.version) == (5, 1)
    assert remote.schema == some_rows().schema


def test_creating_a_table_twice_is_refused(database: RemoteDBConnection, remote: RemoteTable) -> None:
    with pytest.raises(ValueError, match="already exists"):
        database.create_table(remote.name, some_rows())
    assert remote.count_rows() == 5


def test_an_existing_table_is_kept_if_asked_for(database: RemoteDBConnection, remote: RemoteTable) -> None:
    assert database.create_table(remote.name, some_rows(), exist_ok=True).count_rows() == 5


def test_a_table_is_replaced(database: RemoteDBConnection, remote: RemoteTable) -> None:
    database.create_table(remote.name, some_rows(), mode="overwrite")
    assert database.open_table(remote.name).count_rows() == 3


def test_rows_are_added(database: RemoteDBConnection, remote: RemoteTable) -> None:
    assert remote.add(some_rows(6)).version == 2
    assert database.open_table(remote.name).count_rows() == 8


def test_rows_are_counted_by_a_condition(remote: RemoteTable) -> None:
    assert remote.count_rows("id > 3") == 2


def test_the_nearest_vectors_are_found(remote: RemoteTable) -> None:
    found = remote.search([3.1, 0.0]).select(["id"]).limit(2).to_list()
    assert [row["id"] for row in found] == [3, 4]


def test_rows_are_found_by_a_condition(remote: RemoteTable) -> None:
    assert remote.search().where("id > 3").to_arrow()["id"].to_pylist() == [4, 5]


def test_an_older_version_is_searched(remote: RemoteTable) -> None:
    remote.add(some_rows(6))
    remote.checkout(1)
    assert (remote.count_rows(), remote.search([8.0, 0.0]).limit(1).to_list()[0]["id"]) == (5, 5)
    remote.checkout_latest()
    assert remote.count_rows() == 8


def test_versions_are_listed(remote: RemoteTable) -> None:
    remote.add(some_rows(6))
    assert [version["version"] for version in remote.list_versions()] == [1, 2]


def test_tables_are_listed_in_pages(database: RemoteDBConnection, remote: RemoteTable) -> None:
    names, token = [], None
    while True:
        page = database.list_tables(page_token=token, limit=1)
        names += page.tables
        token = page.page_token
        if not token:
            break
    assert remote.name in names
    assert names == sorted(set(names))


def test_a_missing_table_is_not_found(database: RemoteDBConnection) -> None:
    with pytest.raises(ValueError, match="was not found"):
        database.open_table("nowhere")


def test_what_is_not_served_is_said(remote: RemoteTable) -> None:
    with pytest.raises(HttpError, match="DeleteFromTable is not supported yet"):
        remote.delete("id = 1")
    assert remote.count_rows() == 5
