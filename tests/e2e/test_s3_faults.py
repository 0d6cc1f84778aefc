"""Commits while the object store fails: none that was acknowledged is lost, and none is there twice.

The server under test reaches its warehouse through a proxy that injects faults. A commit has one of three
outcomes: acknowledged, refused, or unknown (a 5xx, a dropped connection). When the faults are over and the table
has been read once, what was acknowledged is there exactly once, what was refused is not there, and what is unknown
is there once or not at all.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import count
from random import randrange
from typing import Any, Final
from uuid import uuid4

import httpx
import lance
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from lance.namespace import RestNamespace
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, RESTError

from tests.conftest import RunningServer, start_server
from tests.faulty_store import Fault, FaultyStore, Rule, running_faulty_store
from tests.iceberg_requests import number_of, with_properties
from tests.object_store import KEY_ID, REGION, SECRET, ObjectStore
from tests.protocol.iceberg.clients import PEOPLE, people, pyiceberg_on
from tests.protocol.wire import TableOnWire, final_name, renumbered, stream

FINAL_MANIFEST: Final = r"_versions/\d+\.manifest$"
STAGED_MANIFEST: Final = r"_versions/\d+\.manifest-"
SEED: Final = 20260101
THREADS: Final = 8
# Clients of ours that meet a fault give up soon, as their next commit meets the next fault.
FEW_RETRIES: Final = {"client_max_retries": "2", "client_retry_timeout": "5"}
FAILURES: Final = (OSError, RuntimeError, ValueError, RESTError, httpx.TransportError)


@dataclass(frozen=True)
class Stand:
    """A server, the proxy before its warehouse, and the store behind the proxy."""

    server: RunningServer
    faulty: FaultyStore
    moto: ObjectStore
    bucket: str
    http: httpx.Client

    @cached_property
    def client(self) -> Any:
        return self.moto.client()

    @cached_property
    def direct_client(self) -> Any:
        return self.faulty.direct.client()

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def find(self, key: str) -> bytes | None:
        try:
            return self.read(key)
        except self.client.exceptions.NoSuchKey:
            return None

    def key_of(self, location: str) -> str:
        return location.removeprefix(f"s3://{self.bucket}/")


@dataclass(frozen=True)
class StoredTable(TableOnWire):
    """A Lance table in the store, seen from behind the proxy."""

    stand: Stand

    @cached_property
    def location(self) -> str:
        return str(self.asked("describe")["location"])

    @cached_property
    def versions_key(self) -> str:
        return f"{self.stand.key_of(self.location)}/_versions"

    def final_key(self, version: int) -> str:
        return f"{self.versions_key}/{final_name(version)}"

    def stored(self, version: int) -> bytes | None:
        """What has the final name of this version."""
        return self.stand.find(self.final_key(version))

    def described(self, version: int) -> bytes:
        """The manifest that the catalog names for this version."""
        found = self.asked("version/describe", {"version": version})["version"]
        assert found["version"] == version
        return self.stand.read(found["manifest_path"])

    def successor(self, version: int) -> bytes:
        """A manifest with the rows of the version before, unlike any other by its bytes."""
        before = self.stored(version - 1)
        assert before is not None
        return renumbered(before, version)

    def staged(self, version: int, manifest: bytes) -> dict[str, Any]:
        """The request that commits this manifest, with the manifest where clients put it first."""
        key = f"{self.versions_key}/{final_name(version)}-{uuid4()}"
        self.stand.client.put_object(Bucket=self.stand.bucket, Key=key, Body=manifest)
        return {"version": version, "manifest_path": key, "naming_scheme": "V2"}

    def put_by_location(self, version: int, manifest: bytes) -> bool:
        """As a writer who does not ask the catalog; returns whether the version was still free."""
        try:
            self.stand.direct_client.put_object(
                Bucket=self.stand.bucket, Key=self.final_key(version), Body=manifest, IfNoneMatch="*"
            )
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed"
            return False
        return True

    def rule(self, fault: Fault, **choice: Any) -> Rule:
        """A fault of requests for files of this table alone."""
        pattern = re.escape(self.stand.key_of(self.location)) + "/.*" + choice.pop("key", "")
        return Rule(fault, key=pattern, **choice)

    def requests_of(self, work: Callable[[], object]) -> list[str]:
        """What the server asks the store for files of this table, without faults."""
        with self.stand.faulty.failing():
            work()
        prefix = self.versions_key.removesuffix("_versions")
        found = [request for request in self.stand.faulty.requests if prefix in request.key]
        return [f"{request.method} {request.key.partition(prefix)[2]}" for request in found]


@pytest.fixture(scope="module")
def stand(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    bucket = object_store.new_bucket()
    with running_faulty_store(object_store, SEED) as faulty:
        server = start_server(
            tmp_path_factory.mktemp("s3-faults"),
            "--no-worker",
            TIDEMILL_WAREHOUSE=f"s3://{bucket}/lake",
            **faulty.store.environment,
        )
        with httpx.Client(base_url=server.url, timeout=120) as http:
            yield Stand(server, faulty, object_store, bucket, http)
        server.stop()


@pytest.fixture(autouse=True)
def own_credentials(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gives out addresses, and its clients have their own keys."""
    environment = {**object_store.environment, "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
    environment.pop("AWS_ENDPOINT_URL")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def namespace(stand: Stand) -> str:
    name = f"n{uuid4().hex[:12]}"
    stand.http.post(f"/v1/namespace/{name}/create", json={}).raise_for_status()
    return name


@pytest.fixture
def make(stand: Stand, namespace: str) -> Callable[[], StoredTable]:
    def made() -> StoredTable:
        table = StoredTable(stand.http, namespace, f"t{uuid4().hex[:8]}", stand)
        table.create(row(0))
        assert table.location
        return table

    return made


@pytest.fixture
def table(make: Callable[[], StoredTable]) -> StoredTable:
    return make()


def row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def numbers_at(table: StoredTable, version: int | None = None) -> Counter[int]:
    """The rows, read past the proxy."""
    options = table.stand.moto.options
    return Counter(
        lance.dataset(table.location, version, storage_options=options).to_table()["id"].to_pylist()
    )


def test_a_lost_response_of_the_final_put_is_a_commit(stand: Stand, table: StoredTable) -> None:
    """The server's S3 client repeats the put and is told 412, because of its own object."""
    ours = table.successor(2)
    body = table.staged(2, ours)
    with stand.faulty.failing(table.rule(Fault.LOST_RESPONSE, methods={"PUT"}, key=FINAL_MANIFEST, times=1)):
        answer = table.post("version/create", body)
    assert stand.faulty.injected[Fault.LOST_RESPONSE] == 1
    assert answer.status_code == 200, answer.text
    assert table.stored(2) == ours
    assert (table.numbers(), table.described(2)) == ([1, 2], ours)


def test_a_foreign_manifest_before_the_final_put_wins(stand: Stand, table: StoredTable) -> None:
    ours, foreign = table.successor(2), table.successor(2)
    body = table.staged(2, ours)
    meanwhile = table.rule(
        Fault.OVERTAKEN,
        methods={"PUT"},
        key=FINAL_MANIFEST,
        times=1,
        meanwhile=lambda: table.put_by_location(2, foreign),
    )
    with stand.faulty.failing(meanwhile):
        answer = table.post("version/create", body)
    assert stand.faulty.injected[Fault.OVERTAKEN] == 1
    assert answer.status_code == 409, answer.text
    assert (table.numbers(), table.described(2)) == ([1, 2], foreign)
    ours = table.successor(3)
    assert table.post("version/create", table.staged(3, ours)).status_code == 200
    assert (table.numbers(), table.described(3)) == ([1, 2, 3], ours)


def test_a_foreign_manifest_at_any_moment_of_a_commit_wins_or_comes_too_late(
    stand: Stand, make: Callable[[], StoredTable]
) -> None:
    table = make()
    first = table.staged(2, table.successor(2))
    requests = table.requests_of(lambda: table.post("version/create", first))
    wrong = []
    for place, request in enumerate(requests):
        table = make()
        ours, foreign = table.successor(2), table.successor(2)
        body, taken = table.staged(2, ours), []

        def overtake(table: StoredTable = table, taken: list[bool] = taken, foreign: bytes = foreign) -> None:
            taken.append(table.put_by_location(2, foreign))

        with stand.faulty.failing(table.rule(Fault.OVERTAKEN, skip=place, times=1, meanwhile=overtake)):
            status = table.post("version/create", body).status_code
        expected = (409, foreign) if taken == [True] else (200, ours)
        if len(taken) != 1 or (status, table.described(2)) != expected or table.numbers() != [1, 2]:
            wrong.append(f"before {request}: {status}, {'foreign' if taken == [True] else 'late'}")
    assert wrong == []
    assert any(request.startswith("PUT") for request in requests)


def test_an_insert_overtaken_at_any_moment_is_repeated_on_top(stand: Stand, table: StoredTable) -> None:
    requests = table.requests_of(lambda: table.insert(row(1)))
    version, wrong = 2, []
    for place, request in enumerate(requests):
        foreign, taken = table.successor(version + 1), []

        def overtake(number: int = version + 1, manifest: bytes = foreign, taken: list[bool] = taken) -> None:
            taken.append(table.put_by_location(number, manifest))

        with stand.faulty.failing(table.rule(Fault.OVERTAKEN, skip=place, times=1, meanwhile=overtake)):
            answer = table.post("insert", content=stream(row(100 + place)))
        version = table.numbers()[-1]
        is_kept = taken != [True] or table.described(version - 1) == foreign
        if answer.status_code != 200 or not is_kept or numbers_at(table)[100 + place] != 1:
            wrong.append(f"before {request}: {answer.status_code}, foreign kept: {is_kept}")
    assert wrong == []


@pytest.mark.parametrize(
    "fault", [Fault.LOST_RESPONSE, Fault.LOST_REQUEST, Fault.SLOW_DOWN], ids=lambda f: f.name
)
def test_one_fault_at_any_moment_of_a_commit_is_survived(
    stand: Stand, make: Callable[[], StoredTable], fault: Fault
) -> None:
    tables, bodies, manifests, requests = commits_at_every_request(make)
    rules = [table.rule(fault, skip=place, times=1) for place, table in enumerate(tables)]
    with stand.faulty.failing(*rules), ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(lambda table, body: table.post("version/create", body), tables, bodies))
        at_answer = [table.stored(2) for table in tables]
    assert stand.faulty.injected[fault] == len(tables)
    assert [(request, answer.status_code) for request, answer in zip(requests, answers, strict=True)] == [
        (request, 200) for request in requests
    ]
    assert at_answer == manifests
    assert [table.numbers() for table in tables] == [[1, 2]] * len(tables)


@pytest.mark.parametrize("then", ["the client repeats it", "a foreign writer takes the version"])
def test_a_store_that_goes_away_during_a_commit(
    stand: Stand, make: Callable[[], StoredTable], then: str
) -> None:
    """The answer is a 5xx, or the manifest has its final name: otherwise others could still take the version."""
    tables, bodies, manifests, requests = commits_at_every_request(make)
    rules = [table.rule(Fault.LOST_REQUEST, skip=place) for place, table in enumerate(tables)]
    with stand.faulty.failing(*rules), ThreadPoolExecutor(len(tables)) as threads:
        answers = list(threads.map(lambda table, body: table.post("version/create", body), tables, bodies))
        at_answer = [table.stored(2) for table in tables]
    assert stand.faulty.injected[Fault.LOST_REQUEST] >= len(tables)
    statuses = [answer.status_code for answer in answers]
    assert statuses[0] == 503
    told = zip(requests, statuses, manifests, at_answer, strict=True)
    too_early = [request for request, status, ours, found in told if status == 200 and found != ours]
    assert {status for status in statuses if status < 500} <= {200}
    wrong = []
    for request, table, body, ours in zip(requests, tables, bodies, manifests, strict=True):
        foreign = table.successor(2)
        is_foreign = then != "the client repeats it" and table.put_by_location(2, foreign)
        again = table.post("version/create", body).status_code
        expected = (409, foreign) if is_foreign else (200, ours)
        if (again, table.described(2)) != expected or table.numbers() != [1, 2]:
            wrong.append(f"away since {request}: {again}, {'foreign' if is_foreign else 'ours'}")
    assert (too_early, wrong) == ([], [])


@pytest.mark.parametrize(
    "fault", [Fault.PRECONDITION_FAILED, Fault.CONDITIONAL_CONFLICT], ids=lambda f: f.name
)
def test_a_condition_refused_for_no_reason_loses_nothing(
    stand: Stand, table: StoredTable, fault: Fault
) -> None:
    """409 asks the writer to try again; a 412 with nothing there comes from caches and replicas."""
    ours = table.successor(2)
    body = table.staged(2, ours)
    with stand.faulty.failing(table.rule(fault, only_conditional=True)):
        status = table.post("version/create", body).status_code
        is_there = table.stored(2) == ours
    assert stand.faulty.injected[fault] >= 1
    assert table.post("version/create", body).status_code == 200
    assert (table.numbers(), table.described(2)) == ([1, 2], ours)
    assert status >= 500 or (status, is_there) == (200, True)


def test_a_store_that_knows_no_conditions_is_good_enough(stand: Stand, table: StoredTable) -> None:
    ours = table.successor(2)
    with stand.faulty.failing(table.rule(Fault.NOT_IMPLEMENTED, only_conditional=True)):
        answer = table.post("version/create", table.staged(2, ours))
        assert table.post("insert", content=stream(row(1))).status_code == 200
    assert stand.faulty.injected[Fault.NOT_IMPLEMENTED] >= 1
    assert answer.status_code == 200, answer.text
    assert (table.numbers(), table.described(2)) == ([1, 2, 3], ours)
    assert numbers_at(table) == {0: 1, 1: 1}


def test_half_a_manifest_is_neither_refused_nor_committed(stand: Stand, table: StoredTable) -> None:
    """It is the store's fault, not the client's."""
    ours = table.successor(2)
    body = table.staged(2, ours)
    with stand.faulty.failing(table.rule(Fault.TRUNCATED, key=STAGED_MANIFEST)):
        status = table.post("version/create", body).status_code
    assert stand.faulty.injected[Fault.TRUNCATED] >= 1
    assert status >= 500
    assert table.post("version/create", body).status_code == 200
    assert (table.numbers(), table.described(2)) == ([1, 2], ours)


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.SLOW_DOWN], ids=lambda f: f.name)
def test_an_insert_without_a_store_is_answered_503(stand: Stand, table: StoredTable, fault: Fault) -> None:
    with stand.faulty.failing(table.rule(fault)):
        away = table.post("insert", content=stream(row(1)))
    with stand.faulty.failing(table.rule(fault, key="data/")):
        half_away = table.post("insert", content=stream(row(2)))
    assert numbers_at(table) == {0: 1}
    assert [away.status_code, half_away.status_code] == [503, 503], half_away.text


def commits_at_every_request(
    make: Callable[[], StoredTable],
) -> tuple[list[StoredTable], list[dict[str, Any]], list[bytes], list[str]]:
    """A table and a staged manifest for each request to the store that a commit takes."""
    sample = make()
    body = sample.staged(2, sample.successor(2))
    requests = sample.requests_of(lambda: sample.post("version/create", body))
    tables = [make() for _ in requests]
    manifests = [table.successor(2) for table in tables]
    bodies = [table.staged(2, ours) for table, ours in zip(tables, manifests, strict=True)]
    return tables, bodies, manifests, requests
