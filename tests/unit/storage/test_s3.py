"""What is particular to files in an object store."""

from __future__ import annotations

import socket
import sys
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from tests.object_store import ObjectStore
from tidemill.errors import InvalidInput, Unavailable
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import ObjectStoreEnvironment, open_client, read_environment
from tidemill.storage.vending import NoCredentials


def files_at(uri: str, store: ObjectStore) -> S3TableFiles:
    environment = read_environment(store.environment)
    return S3TableFiles(parse_prefix(uri), store.client(), environment, NoCredentials())


@pytest.fixture
def bucket(object_store: ObjectStore) -> str:
    return object_store.new_bucket()


@pytest.fixture
def files(object_store: ObjectStore, bucket: str) -> S3TableFiles:
    return files_at(f"s3://{bucket}/lake", object_store)


@pytest.mark.parametrize(
    "uri",
    ["s3://", "s3:///lake", "gs://b/lake", "s3://b/../lake", "s3://b//lake", "s3://b/a%2fb", "s3://b/a?x"],
)
def test_a_warehouse_needs_a_bucket_and_a_plain_prefix(uri: str) -> None:
    with pytest.raises(InvalidInput, match="s3://bucket/prefix"):
        parse_prefix(uri)


def test_a_slash_at_the_end_changes_nothing() -> None:
    assert parse_prefix("s3://b/lake/") == parse_prefix("s3://b/lake")
    assert parse_prefix("s3://b/") == parse_prefix("s3://b")


def test_keys_have_neither_scheme_nor_bucket(files: S3TableFiles, bucket: str) -> None:
    assert files.key_of(f"s3://{bucket}/lake/t.lance") == "lake/t.lance"
    with pytest.raises(InvalidInput, match="outside the warehouse"):
        files.key_of("s3://another/lake/t.lance")


@pytest.mark.parametrize(
    "name", ["%2e%2e/other", "t.lance?versionId=1", "t.lance#x", "a\\..\\b", "a//b", "_jobs/x"]
)
def test_locations_that_a_client_could_read_otherwise_are_not_inside(
    files: S3TableFiles, bucket: str, name: str
) -> None:
    assert not files.is_inside(f"s3://{bucket}/lake/{name}")


def test_a_table_of_more_objects_than_one_request_takes_is_removed(
    files: S3TableFiles, object_store: ObjectStore, bucket: str
) -> None:
    location = files.location_of(uuid4())
    client = object_store.client()
    for number in range(1001):
        client.put_object(Bucket=bucket, Key=f"{files.key_of(location)}/data/{number}", Body=b"")
    files.remove_table(location)
    assert object_store.keys(bucket) == []


def test_a_missing_bucket_is_said(object_store: ObjectStore) -> None:
    files = files_at("s3://no-such-bucket/lake", object_store)
    with pytest.raises(Unavailable, match=r"s3://no-such-bucket/lake is not writable.*NoSuchBucket"):
        files.check_writable()
    with pytest.raises(Unavailable, match="NoSuchBucket"):
        files.read("lake/t.lance/x")


def test_the_probe_leaves_nothing(files: S3TableFiles, object_store: ObjectStore, bucket: str) -> None:
    files.check_writable()
    assert object_store.keys(bucket) == []


def test_a_store_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        environment = ObjectStoreEnvironment(f"http://127.0.0.1:{nobody.getsockname()[1]}", "us-east-1")
        files = S3TableFiles(
            parse_prefix("s3://b/lake"), open_client("s3", environment), environment, NoCredentials()
        )
        with pytest.raises(Unavailable, match="not writable") as refusal:
            files.check_writable()
    assert "hidden" not in str(refusal.value)


def test_without_boto3_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tidemill\[s3\]'"):
        open_client("s3", ObjectStoreEnvironment(None, None))


def test_clients_learn_where_the_store_is(files: S3TableFiles, object_store: ObjectStore) -> None:
    assert files.vend(files.location_of(uuid4())) == {
        "aws_endpoint": object_store.endpoint,
        "aws_region": "us-east-1",
        "allow_http": "true",
    }


class OlderStore:
    """A store that does not know conditions on puts."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_object(self, **request: Any) -> Any:
        if "IfNoneMatch" in request:
            raise ClientError({"Error": {"Code": "NotImplemented"}}, "PutObject")
        return self._client.put_object(**request)


class BusyStore(OlderStore):
    """A store in which another writer is always a moment faster."""

    def put_object(self, **request: Any) -> Any:
        if "IfNoneMatch" in request:
            self._client.put_object(Bucket=request["Bucket"], Key=request["Key"], Body=b"faster")
        return self._client.put_object(**request)


@pytest.mark.parametrize(
    ("kind", "is_ours", "kept"), [(OlderStore, True, b"ours"), (BusyStore, False, b"faster")]
)
def test_a_copy_is_made_whatever_the_store_can_and_others_do(
    object_store: ObjectStore, bucket: str, kind: type[OlderStore], is_ours: bool, kept: bytes
) -> None:
    root, environment = parse_prefix(f"s3://{bucket}/lake"), read_environment(object_store.environment)
    files = S3TableFiles(root, kind(object_store.client()), environment, NoCredentials())
    files.write("lake/t.lance/a", b"ours")
    assert files.copy_if_absent("lake/t.lance/a", "lake/t.lance/b") is is_ours
    assert files.read("lake/t.lance/b") == kept
