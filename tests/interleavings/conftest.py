"""Both databases, with local files and with an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interleavings.world import Deployment, PutIfAbsent
from tests.object_store import ObjectStore, running_object_store
from tests.postgres import PostgresCluster, PostgresMissing
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.s3 import S3TableFiles, parse_prefix
from tidemill.storage.s3_client import read_environment
from tidemill.storage.vending import NoCredentials
from tidemill.storage.warehouse import Warehouse

DATABASE = "interleavings"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    try:
        cluster.create_database(DATABASE)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def store_of_objects() -> Iterator[ObjectStore]:
    with running_object_store() as store:
        yield store


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('database') / 'catalog.db'}"
    cluster: PostgresCluster = request.getfixturevalue("postgres")
    return cluster.url(DATABASE)


@pytest.fixture(scope="module")
def deployment(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """With local files."""
    root = tmp_path_factory.mktemp("local")
    files = LocalTableFiles(root / "warehouse")
    with Deployment.opened(url, files, local_put(root), root) as opened:
        yield opened


@pytest.fixture(scope="module")
def s3_deployment(
    store_of_objects: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """What differs between the databases shows with local files as well, where a run takes less time."""
    url = f"sqlite:///{tmp_path_factory.mktemp('database') / 'catalog.db'}"
    bucket = store_of_objects.new_bucket()
    client = store_of_objects.client()
    environment = read_environment(store_of_objects.environment)
    files: Warehouse = S3TableFiles(parse_prefix(f"s3://{bucket}/lake"), client, environment, NoCredentials())
    scratch = tmp_path_factory.mktemp("s3")
    with Deployment.opened(url, files, s3_put(client, bucket), scratch) as opened:
        yield opened


def local_put(scratch: Path) -> PutIfAbsent:
    def put(key: str, data: bytes) -> bool:
        prepared = scratch / f"prepared-{uuid4()}"
        prepared.write_bytes(data)
        try:
            os.link(prepared, f"/{key}")
        except FileExistsError:
            return False
        finally:
            prepared.unlink()
        return True

    return put


def s3_put(client: Any, bucket: str) -> PutIfAbsent:
    def put(key: str, data: bytes) -> bool:
        try:
            client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            return False
        return True

    return put
