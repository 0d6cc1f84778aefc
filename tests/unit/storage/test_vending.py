"""Vended credentials open one table, for a while."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

from tests.object_store import KEY_ID, SECRET, ObjectStore
from tidemill.catalog.model.callers import StorageAccess
from tidemill.errors import Unavailable
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import read_environment
from tidemill.storage.vending import AssumedRole, CredentialVendor, StaticCredentials, table_policy

ROLE = "arn:aws:iam::123456789012:role/tables"
ROWS = pa.table({"id": [1, 2]})


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def role(object_store: ObjectStore, clock: Clock) -> AssumedRole:
    return AssumedRole(ROLE, object_store.client("sts"), clock)


def files_with(vendor: CredentialVendor, store: ObjectStore) -> S3TableFiles:
    root = parse_prefix(f"s3://{store.new_bucket()}/lake")
    return S3TableFiles(root, store.client(), read_environment(store.environment), vendor)


@pytest.fixture
def files(role: AssumedRole, object_store: ObjectStore) -> S3TableFiles:
    return files_with(role, object_store)


def test_pylance_opens_a_table_with_a_session(files: S3TableFiles) -> None:
    location = files.location_of(uuid4())
    options = dict(files.vend(location))
    lance.write_dataset(ROWS, location, storage_options=options)
    assert lance.dataset(location, storage_options=options).to_table() == ROWS


def test_a_session_is_not_the_server_itself_and_ends_in_an_hour(files: S3TableFiles) -> None:
    options = files.vend(files.location_of(uuid4()))
    assert options.keys() == {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "expires_at_millis",
        "aws_endpoint",
        "aws_region",
        "allow_http",
    }
    assert {options["aws_access_key_id"], options["aws_secret_access_key"]}.isdisjoint({KEY_ID, SECRET})
    left = int(options["expires_at_millis"]) / 1000 - datetime.now(UTC).timestamp()
    assert 3500 < left <= 3601


def test_a_session_is_shared_until_twenty_minutes_before_its_end(files: S3TableFiles, clock: Clock) -> None:
    location = files.location_of(uuid4())
    first = files.vend(location)
    clock.now += timedelta(minutes=39)
    assert files.vend(location) == first
    clock.now += timedelta(minutes=2)
    assert files.vend(location)["aws_access_key_id"] != first["aws_access_key_id"]


def test_every_table_has_a_session_of_its_own(files: S3TableFiles) -> None:
    first, second = (files.vend(files.location_of(uuid4())) for _ in range(2))
    assert first["aws_access_key_id"] != second["aws_access_key_id"]


def test_nothing_is_vended_for_other_places(files: S3TableFiles) -> None:
    for place in ("s3://elsewhere/t.lance", "/etc", "s3://elsewhere/lake/../lake/t.lance"):
        assert files.vend(place).keys() == {"aws_endpoint", "aws_region", "allow_http"}


def test_static_credentials_are_those_of_the_settings(object_store: ObjectStore) -> None:
    files = files_with(StaticCredentials("for-clients", "for-clients-too"), object_store)
    location = files.location_of(uuid4())
    options = dict(files.vend(location))
    assert options["aws_access_key_id"] == "for-clients"
    assert options["aws_secret_access_key"] == "for-clients-too"
    assert "expires_at_millis" not in options
    lance.write_dataset(ROWS, location, storage_options=options)
    assert lance.dataset(location, storage_options=options).count_rows() == 2


def test_a_policy_names_the_table_and_nothing_beside_it() -> None:
    objects, listing, place = table_policy("aws-cn", "lake", "a/t.lance", StorageAccess.WRITE)["Statement"]
    assert objects["Resource"] == ["arn:aws-cn:s3:::lake/a/t.lance/*"]
    assert listing["Resource"] == ["arn:aws-cn:s3:::lake"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["a/t.lance/*"]}}
    assert place["Action"] == ["s3:GetBucketLocation"]


def test_readers_get_a_session_of_their_own_that_cannot_write(files: S3TableFiles) -> None:
    location = files.location_of(uuid4())
    reading, writing = files.vend(location, StorageAccess.READ), files.vend(location, StorageAccess.WRITE)
    assert reading["aws_access_key_id"] != writing["aws_access_key_id"]
    objects, *_ = table_policy("aws", "lake", "t.lance", StorageAccess.READ)["Statement"]
    assert objects["Action"] == ["s3:GetObject"]


def test_a_policy_takes_no_name_for_a_pattern() -> None:
    objects, *_ = table_policy("aws", "lake", "a*/${aws:username}?.lance", StorageAccess.WRITE)["Statement"]
    assert objects["Resource"] == ["arn:aws:s3:::lake/a${*}/${$}{aws:username}${?}.lance/*"]


@pytest.mark.parametrize(
    ("role_arn", "partition"),
    [("arn:aws-us-gov:iam::1:role/r", "aws-us-gov"), ("arn:minio:iam:::role/r", "aws"), ("tables", "aws")],
)
def test_the_policy_is_sent_with_the_role(role_arn: str, partition: str) -> None:
    sts = RecordingSts()
    AssumedRole(role_arn, sts).credentials("lake", "a/t.lance", StorageAccess.WRITE)
    assert sts.requests[0]["RoleArn"] == role_arn
    assert f"arn:{partition}:s3:::lake/a/t.lance/*" in sts.requests[0]["Policy"]


def test_a_refused_role_is_unavailable(object_store: ObjectStore) -> None:
    files = files_with(AssumedRole("no role", object_store.client("sts")), object_store)
    with pytest.raises(Unavailable, match="a session of the role no role"):
        files.vend(files.location_of(uuid4()))


class RecordingSts:
    """The store of the tests does not tell which policy a session got."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def assume_role(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        return {"Credentials": {**dict.fromkeys(names, "x"), "Expiration": datetime.now(UTC)}}
