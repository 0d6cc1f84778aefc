"""Clients without credentials of their own open tables in an object store with what the server hands them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import lance
import lancedb
import pytest
from lance.namespace import RestNamespace

from tests.conftest import RunningServer, start_server
from tests.object_store import KEY_ID, SECRET, ObjectStore
from tests.protocol.wire import some_rows, stream

OPTIONS = {"aws_endpoint", "aws_region", "allow_http", "aws_access_key_id", "aws_secret_access_key"}
SESSION = {"aws_session_token", "expires_at_millis"}


@pytest.fixture(scope="module")
def bucket(object_store: ObjectStore) -> str:
    return object_store.new_bucket()


@pytest.fixture(scope="module")
def server(
    object_store: ObjectStore, bucket: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("vending"),
        "--no-worker",
        TIDEMILL_WAREHOUSE=f"s3://{bucket}/lake",
        TIDEMILL_S3_VEND="sts",
        TIDEMILL_S3_ROLE_ARN="arn:aws:iam::123456789012:role/tables",
        TIDEMILL_LOG_LEVEL="DEBUG",
        **object_store.environment,
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def namespace(http: httpx.Client) -> str:
    assert http.post("/v1/namespace/n/create", json={"mode": "exist_ok"}).status_code == 200
    return "n"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, object_store: ObjectStore) -> None:
    """Neither in the environment nor, as it takes long to find out, from the metadata of a cloud machine."""
    for name in (*object_store.environment, "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_pylance_writes_and_reads_with_what_it_is_given(server: RunningServer, namespace: str) -> None:
    rest, levels = RestNamespace(uri=server.url), [namespace, "by_pylance"]
    lance.write_dataset(some_rows(), namespace_client=rest, table_id=levels, mode="create")
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=levels, mode="append")
    assert lance.dataset(namespace_client=rest, table_id=levels).count_rows() == 6


def test_lancedb_writes_and_reads_with_what_it_is_given(server: RunningServer, namespace: str) -> None:
    database = lancedb.connect_namespace("rest", {"uri": server.url})
    database.create_table("by_lancedb", some_rows(), namespace_path=[namespace]).add(some_rows(4))
    assert database.open_table("by_lancedb", namespace_path=[namespace]).count_rows() == 6


def test_a_session_lasts_longer_than_clients_need(http: httpx.Client, namespace: str) -> None:
    path = f"/v1/table/{namespace}$over_http"
    assert http.post(f"{path}/create", content=stream(some_rows())).status_code == 200
    described = http.post(f"{path}/describe", json={}).json()
    options = described["storage_options"]
    assert options.keys() == OPTIONS | SESSION
    assert int(options["expires_at_millis"]) / 1000 - time.time() > 15 * 60
    assert lance.dataset(described["location"], storage_options=options).count_rows() == 3


def test_a_client_may_decline(http: httpx.Client, namespace: str) -> None:
    path = f"/v1/table/{namespace}$declined"
    declared = http.post(f"{path}/declare", json={"vend_credentials": False})
    described = http.post(f"{path}/describe", json={"vend_credentials": False})
    for answer in (declared, described):
        assert answer.status_code == 200
        assert "aws_secret_access_key" not in json.dumps(answer.json())


def test_secrets_stay_where_they_belong(server: RunningServer, http: httpx.Client, namespace: str) -> None:
    declared = http.post(f"/v1/table/{namespace}$secret/declare", json={}).json()
    options = declared["storage_options"]
    assert {KEY_ID, SECRET}.isdisjoint(options.values())
    log = (server.root / "server.log").read_text()
    assert [name for name in ("aws_secret_access_key", "aws_session_token") if options[name] in log] == []
    assert SECRET not in log
