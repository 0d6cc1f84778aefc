"""What the protocol tests share: stock clients on the one running server."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client import ApiClient, Configuration

from tests.conftest import RunningServer, start_server
from tests.protocol.wire import TableOnWire, some_rows
from tests.specification.answers import ICEBERG_PROTOCOL, LANCE_PROTOCOL, checking


@pytest.fixture(scope="session")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    hooks = {"response": [checking(LANCE_PROTOCOL, ICEBERG_PROTOCOL)]}
    with httpx.Client(base_url=server.url, timeout=60, event_hooks=hooks) as client:
        yield client


@pytest.fixture(scope="session")
def rest(server: RunningServer) -> RestNamespace:
    return RestNamespace(uri=server.url)


@pytest.fixture(scope="session")
def generated(server: RunningServer) -> Iterator[ApiClient]:
    with ApiClient(Configuration(host=server.url)) as client:
        yield client
        client.rest_client.pool_manager.clear()


@pytest.fixture(scope="session")
def second_server(server: RunningServer) -> Iterator[RunningServer]:
    """Another process over the same database and the same files."""
    running = start_server(server.root, "--no-worker")
    yield running
    running.stop()


@pytest.fixture
def table(http: httpx.Client, namespace: str) -> TableOnWire:
    """A table of three rows, made over the wire."""
    made = TableOnWire(http, namespace, "t")
    made.create(some_rows())
    return made


@pytest.fixture(scope="session")
def still(http: httpx.Client) -> TableOnWire:
    """A table that every test leaves as it was."""
    made = TableOnWire(http, "still", "t")
    assert http.post("/v1/namespace/still/create", json={}).status_code == 200
    made.create(some_rows())
    return made


@pytest.fixture
def unchanged(still: TableOnWire) -> Iterator[TableOnWire]:
    """The same table, for requests that have to be refused: afterwards it is as it was before."""
    before = still.state()
    yield still
    assert still.state() == before
