"""Commits while the object store fails: none that was acknowledged is lost, and none is there twice.

The server under test reaches its warehouse through a proxy that injects faults. A commit has one of three
outcomes: acknowledged, refused, or unknown (a 5xx, a dropped connection). When the faults are over and the
table has been read once, what was acknowledged is there exactly once, what was refused is not there, and what
is unknown is there once or not at all.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property, partial
from itertools import count
from random import Random, randrange
from typing import Any, Final, TypeVar
from uuid import uuid4

import httpx
import lance
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from lance.namespace import RestNamespace
from lance_namespace.errors import LanceNamespaceError
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
QUICK_SECONDS: Final = 3.0
DEEP_SECONDS: Final = 30.0
DEEP_TURNS: Final = 6
QUICK_SHARE: Final = 0.25
DEEP_SHARES: Final = (0.02, 0.1, 0.3)
# Clients of ours that meet a fault give up soon, as their next commit meets the next fault.
FEW_RETRIES: Final = {"client_max_retries": "2", "client_retry_timeout": "5"}
ALL_KEPT: Final = {"write.metadata.previous-versions-max": "1000"}
FEW_KEPT: Final = {
    "write.metadata.previous-versions-max": "3",
    "write.metadata.delete-after-commit.enabled": "true",
}
# Neither the clients nor what they send are at fault.
POSSIBLE: Final = (None, 200, 409, 500, 503, 520)
FAILURES: Final = (
    OSError,
    RuntimeError,
    ValueError,
    RESTError,
    LanceNamespaceError,
    httpx.TransportError,
)


Item = TypeVar("Item")
Result = TypeVar("Result")


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
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            return False
        return True

    def rule(self, fault: Fault, **choice: Any) -> Rule:
        """A fault of requests for files of this table alone."""
        [rule] = self.only([Rule(fault, **choice)])
        return rule

    def only(self, rules: Sequence[Rule]) -> list[Rule]:
        """These rules for files of this table alone."""
        return [
            replace(rule, key=f"{re.escape(self.stand.key_of(self.location))}/.*{rule.key}") for rule in rules
        ]

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
    with running_faulty_store(object_store) as faulty:
        server = start_server(
            tmp_path_factory.mktemp("s3-faults"),
            "--no-worker",
            TIDEMILL_WAREHOUSE=f"s3://{bucket}/lake",
            **faulty.store.environment,
        )
        with httpx.Client(base_url=server.url, timeout=120) as http:
            yield Stand(server, faulty, object_store, bucket, http)
        server.stop()


@pytest.fixture(scope="module", autouse=True)
def own_credentials(object_store: ObjectStore) -> Iterator[None]:
    """The server gives out addresses, and its clients have their own keys."""
    environment = {**object_store.environment, "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
    environment.pop("AWS_ENDPOINT_URL")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def namespace(stand: Stand) -> str:
    name = f"n{uuid4().hex[:12]}"
    stand.http.post(f"/v1/namespace/{name}/create", json={}).raise_for_status()
    return name


@pytest.fixture
def make(stand: Stand, namespace: str) -> Callable[[], StoredTable]:
    return partial(new_table, stand, namespace)


@pytest.fixture
def catalog(stand: Stand) -> Iterator[RestCatalog]:
    """Its client side goes to the store past the faults, unless the server says otherwise."""
    options = {
        "s3.endpoint": stand.faulty.direct.endpoint,
        "s3.access-key-id": KEY_ID,
        "s3.secret-access-key": SECRET,
        "s3.region": REGION,
    }
    with pyiceberg_on(f"{stand.server.url}/iceberg", **options) as connected:
        yield connected


@pytest.fixture
def table(make: Callable[[], StoredTable]) -> StoredTable:
    return make()


def new_table(stand: Stand, namespace: str) -> StoredTable:
    """A table with one row, whose location is known before any fault."""
    table = StoredTable(stand.http, namespace, f"t{uuid4().hex[:8]}", stand)
    table.create(row(0))
    assert table.location
    return table


def failed_requests(stand: Stand) -> list[str]:
    """Routes that failed with a stack trace, except where the data files were missing on purpose."""
    lines = map(json.loads, (stand.server.root / "server.log").read_text().splitlines())
    routes = [str(line.get("route")) for line in lines if line.get("event") == "request failed"]
    return [route for route in routes if not route.endswith(("/insert", "/count_rows", "/query", "/delete"))]


class Outcome(Enum):
    ACKNOWLEDGED = auto()
    REFUSED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class Attempt:
    """A commit as its client saw it: `row` is what it added, `manifest` what it staged by hand."""

    writer: str
    outcome: Outcome
    said: str = ""
    version: int | None = None
    row: int | None = None
    manifest: bytes | None = None
    status: int | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.outcome is Outcome.ACKNOWLEDGED


Writer = Callable[[StoredTable, int], Attempt]


def outcome_of(answer: httpx.Response) -> Outcome:
    if answer.status_code >= 500:
        return Outcome.UNKNOWN
    return Outcome.ACKNOWLEDGED if answer.status_code == 200 else Outcome.REFUSED


def commits_by_hand(table: StoredTable, number: int) -> Attempt:
    """A version without new rows; its manifest is written past the proxy."""
    latest = table.post("version/list?limit=1&descending=true", {})
    if latest.status_code != 200:
        return Attempt("by hand", Outcome.REFUSED, latest.text, status=latest.status_code)
    found = latest.json()["versions"][0]
    version, before = found["version"] + 1, table.stand.find(found["manifest_path"])
    if before is None:
        # It has moved to its final name meanwhile.
        return Attempt("by hand", Outcome.REFUSED, "too late")
    manifest = renumbered(before, version)
    answer = table.post("version/create", table.staged(version, manifest))
    return Attempt("by hand", outcome_of(answer), answer.text, version, None, manifest, answer.status_code)


def inserts_over_http(table: StoredTable, number: int) -> Attempt:
    answer = table.post("insert", content=stream(row(number)))
    version = answer.json()["version"] if answer.status_code == 200 else None
    return Attempt("insert", outcome_of(answer), answer.text, version, number, None, answer.status_code)


def appends_with_pylance(writer: str, number: int, uri: str | None, **options: Any) -> Attempt:
    try:
        dataset = lance.write_dataset(row(number), uri, mode="append", **options)
    except FAILURES as error:
        return Attempt(writer, Outcome.UNKNOWN, str(error), row=number)
    return Attempt(writer, Outcome.ACKNOWLEDGED, "", dataset.version, number)


def appends_by_catalog(table: StoredTable, number: int) -> Attempt:
    rest = RestNamespace(uri=table.stand.server.url)
    return appends_with_pylance("by catalog", number, None, namespace_client=rest, table_id=table.levels)


def appends_by_location(table: StoredTable, number: int) -> Attempt:
    # Nothing delays this one: without a pause it would take every version.
    time.sleep(0.2)
    options = {**table.stand.faulty.direct.options, **FEW_RETRIES}
    return appends_with_pylance("by location", number, table.location, storage_options=options)


def appends_by_faulty_location(table: StoredTable, number: int) -> Attempt:
    options = {**table.stand.faulty.store.options, **FEW_RETRIES}
    return appends_with_pylance("by faulty location", number, table.location, storage_options=options)


OF_THE_CATALOG: Final = (commits_by_hand, commits_by_hand, inserts_over_http, appends_by_catalog)
ALL_WRITERS: Final = (*OF_THE_CATALOG, appends_by_location)
WRITERS: Final[dict[str, Sequence[Writer]]] = {
    # Without conditions nobody who writes by location is safe from anybody.
    "no conditions": OF_THE_CATALOG,
    "everything, for all": (*OF_THE_CATALOG, appends_by_faulty_location),
}


def run_writers(table: StoredTable, writers: Sequence[Writer], seconds: float) -> list[Attempt]:
    """All at the same time, each one commit after the other."""
    numbers, deadline = count(1000), time.monotonic() + seconds

    def run(writer: Writer) -> list[Attempt]:
        attempts: list[Attempt] = []
        while not attempts or time.monotonic() < deadline:
            attempts.append(writer(table, next(numbers)))
        return attempts

    with ThreadPoolExecutor(len(writers)) as threads:
        return [attempt for made in threads.map(run, writers) for attempt in made]


def check_history(table: StoredTable, attempts: Sequence[Attempt]) -> None:
    """What clients were told against what is there; the first request is the one that reads the table."""
    print(Counter((attempt.writer, attempt.outcome.name, attempt.status) for attempt in attempts))
    listed = table.numbers()
    assert listed == list(range(1, listed[-1] + 1))
    finals = {version: table.stored(version) for version in listed}
    assert None not in finals.values()
    names = [key.rpartition("/")[2] for key in table.stand.moto.keys(table.stand.bucket, table.versions_key)]
    assert len([name for name in names if name.endswith(".manifest")]) == len(listed)
    acknowledged = [attempt for attempt in attempts if attempt.is_acknowledged]
    winners: dict[int | None, list[str]] = {}
    for attempt in acknowledged:
        winners.setdefault(attempt.version, []).append(attempt.writer)
    assert {version: writers for version, writers in winners.items() if len(writers) > 1} == {}
    by_hand = [attempt for attempt in attempts if attempt.manifest is not None]
    for attempt in by_hand:
        times = list(finals.values()).count(attempt.manifest)
        is_at_version = finals.get(attempt.version or 0) == attempt.manifest
        assert_outcome(attempt, times, is_at_version)
    shown = numbers_at(table)
    assert [attempt.said for attempt in attempts if attempt.status not in POSSIBLE] == []
    for attempt in attempts:
        if attempt.row is not None:
            is_at_version = attempt.version in finals and attempt.row in numbers_at(table, attempt.version)
            assert_outcome(attempt, shown[attempt.row], is_at_version)
    assert shown.keys() <= {0, 1} | {attempt.row for attempt in attempts}
    assert table.asked("count_rows") == shown.total()
    for version in (listed[-1], listed[len(listed) // 2]):
        assert table.described(version) == finals[version]


def assert_outcome(attempt: Attempt, times: int, is_at_version: bool) -> None:
    told = f"{attempt.writer}, version {attempt.version}, row {attempt.row}: {attempt.said:.300}"
    match attempt.outcome:
        case Outcome.ACKNOWLEDGED:
            assert (times, is_at_version) == (1, True), f"acknowledged and there {times} times: {told}"
        case Outcome.REFUSED:
            assert times == 0, f"refused and there {times} times: {told}"
        case Outcome.UNKNOWN:
            assert times <= 1, f"unknown and there {times} times: {told}"


RANDOM_FAULTS: Final = {
    "slow down": [Rule(Fault.SLOW_DOWN, probability=0.2)],
    "lost responses": [Rule(Fault.LOST_RESPONSE, probability=0.2)],
    "lost requests": [Rule(Fault.LOST_REQUEST, probability=0.2)],
    "delays": [Rule(Fault.DELAY, probability=0.3, seconds=0.1)],
    "refused conditions": [
        Rule(Fault.CONDITIONAL_CONFLICT, only_conditional=True, times=1),
        Rule(Fault.PRECONDITION_FAILED, only_conditional=True, probability=0.2),
        Rule(Fault.CONDITIONAL_CONFLICT, only_conditional=True, probability=0.3),
    ],
    "halves": [Rule(Fault.TRUNCATED, probability=0.2)],
    "no conditions": [Rule(Fault.NOT_IMPLEMENTED, only_conditional=True)],
}
MIXED: Final = [rule for kind, rules in RANDOM_FAULTS.items() if kind != "no conditions" for rule in rules]


def drawn(rules: Sequence[Rule], share: float = 1.0) -> list[Rule]:
    """The same rules with their counters at zero, and with this share of their faults."""
    return [replace(rule, probability=rule.probability * share) for rule in rules]


def row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def numbers_at(table: StoredTable, version: int | None = None) -> Counter[int]:
    """The rows, read past the proxy."""
    options = table.stand.moto.options
    return Counter(
        lance.dataset(table.location, version, storage_options=options).to_table()["id"].to_pylist()
    )


@dataclass
class Overtake:
    """Another writer, who takes the version by location."""

    table: StoredTable
    version: int
    manifest: bytes
    was_free: bool | None = None

    def __call__(self) -> None:
        self.was_free = self.table.put_by_location(self.version, self.manifest)

    def __str__(self) -> str:
        return "overtaken" if self.was_free else "too late" if self.was_free is False else "never"


@dataclass(frozen=True)
class StagedCommit:
    """A commit that will be disturbed at one of its requests to the store, the one with this number."""

    table: StoredTable
    place: int
    request: str
    manifest: bytes
    body: dict[str, Any]

    def send(self) -> int:
        return self.table.post("version/create", self.body).status_code

    @property
    def is_stored(self) -> bool:
        return self.table.stored(2) == self.manifest


def commits_at_every_request(make: Callable[[], StoredTable]) -> list[StagedCommit]:
    """A table with a staged manifest for each request to the store that a commit takes."""

    def staged(place: int = 0, request: str = "") -> StagedCommit:
        table = make()
        manifest = table.successor(2)
        return StagedCommit(table, place, request, manifest, table.staged(2, manifest))

    sample = staged()
    return [staged(place, request) for place, request in enumerate(sample.table.requests_of(sample.send))]


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(work, items))


def commits_properties(stand: Stand, path: str, number: int) -> Attempt:
    answer = stand.http.post(path, json=with_properties(**{f"p{number}": "x"}))
    said = answer.json().get("metadata-location") or answer.text
    if answer.status_code == 500:
        assert answer.json()["error"]["type"] == "CommitStateUnknownException", answer.text
    return Attempt("properties", outcome_of(answer), said, row=number)


def appends_with_pyiceberg(catalog: RestCatalog, name: tuple[str, str], number: int) -> Attempt:
    try:
        made = catalog.load_table(name)
        made.append(people((number, "x")))
    except CommitFailedException as error:
        return Attempt("pyiceberg", Outcome.REFUSED, str(error), row=number)
    except FAILURES as error:
        return Attempt("pyiceberg", Outcome.UNKNOWN, str(error), row=number)
    return Attempt("pyiceberg", Outcome.ACKNOWLEDGED, made.metadata_location, row=number)


def run_iceberg(stand: Stand, catalog: RestCatalog, name: tuple[str, str], seconds: float) -> list[Attempt]:
    path = f"/iceberg/v1/namespaces/{name[0]}/tables/{name[1]}"
    numbers, deadline = count(1000), time.monotonic() + seconds

    def run(place: int) -> list[Attempt]:
        attempts: list[Attempt] = []
        while not attempts or time.monotonic() < deadline:
            if place % 2:
                attempts.append(commits_properties(stand, path, next(numbers)))
            else:
                attempts.append(appends_with_pyiceberg(catalog, name, next(numbers)))
        return attempts

    with ThreadPoolExecutor(4) as threads:
        return [attempt for made in threads.map(run, range(4)) for attempt in made]


def check_iceberg(stand: Stand, catalog: RestCatalog, name: tuple[str, str], attempts: list[Attempt]) -> None:
    print(Counter((attempt.writer, attempt.outcome.name) for attempt in attempts))
    path = f"/iceberg/v1/namespaces/{name[0]}/tables/{name[1]}"
    loaded = stand.http.get(path).raise_for_status().json()
    metadata = json.loads(stand.read(stand.key_of(loaded["metadata-location"])))
    assert metadata == loaded["metadata"]
    log = [entry["metadata-file"] for entry in metadata["metadata-log"]]
    history = [*log, loaded["metadata-location"]]
    first = number_of(history[0])
    assert [number_of(location) for location in history] == list(range(first, first + len(history)))
    assert [location for location in history if stand.find(stand.key_of(location)) is None] == []
    shown = Counter(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())
    for attempt in attempts:
        if attempt.writer == "properties":
            assert_outcome(attempt, int(f"p{attempt.row}" in metadata["properties"]), is_at_version=True)
        else:
            assert_outcome(attempt, shown[attempt.row or 0], is_at_version=True)
        is_in_history = attempt.said in history or first > 0
        assert is_in_history or not attempt.is_acknowledged, f"not in the history: {attempt}"
    said = Counter(attempt.said for attempt in attempts if attempt.is_acknowledged)
    assert [location for location, times in said.items() if times > 1] == []


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
    body, overtake = table.staged(2, ours), Overtake(table, 2, foreign)
    rule = table.rule(Fault.OVERTAKEN, methods={"PUT"}, key=FINAL_MANIFEST, times=1, meanwhile=overtake)
    with stand.faulty.failing(rule):
        answer = table.post("version/create", body)
    assert overtake.was_free
    assert answer.status_code == 409, answer.text
    assert (table.numbers(), table.described(2)) == ([1, 2], foreign)
    ours = table.successor(3)
    assert table.post("version/create", table.staged(3, ours)).status_code == 200
    assert (table.numbers(), table.described(3)) == ([1, 2, 3], ours)


def test_a_foreign_manifest_at_any_moment_of_a_commit_wins_or_comes_too_late(
    stand: Stand, make: Callable[[], StoredTable]
) -> None:
    commits = commits_at_every_request(make)
    overtakes = [Overtake(commit.table, 2, commit.table.successor(2)) for commit in commits]
    rules = [
        commit.table.rule(Fault.OVERTAKEN, skip=commit.place, times=1, meanwhile=overtake)
        for commit, overtake in zip(commits, overtakes, strict=True)
    ]
    with stand.faulty.failing(*rules):
        statuses = in_parallel(StagedCommit.send, commits)
    wrong = []
    for commit, overtake, status in zip(commits, overtakes, statuses, strict=True):
        expected = (409, overtake.manifest) if overtake.was_free else (200, commit.manifest)
        if (status, commit.table.described(2)) != expected or commit.table.numbers() != [1, 2]:
            wrong.append(f"{status}, {overtake} before {commit.request}")
    assert not wrong, "\n".join(wrong)
    assert {overtake.was_free for overtake in overtakes} == {True, False}


def test_an_insert_overtaken_at_any_moment_is_repeated_on_top(stand: Stand, table: StoredTable) -> None:
    """The foreign version repeats an append, which is no reason to refuse another one."""
    requests = [name for name in table.requests_of(lambda: table.insert(row(1))) if "_versions" in name]
    latest, wrong = 2, []
    for place, request in enumerate(requests):
        foreign = table.successor(latest + 1)
        overtake = Overtake(table, latest + 1, foreign)
        with stand.faulty.failing(
            table.rule(Fault.OVERTAKEN, key="_versions", skip=place, times=1, meanwhile=overtake)
        ):
            status = table.post("insert", content=stream(row(100 + place))).status_code
        is_foreign = table.described(latest + 1) == foreign
        count = table.asked("count_rows", {"predicate": f"id = {100 + place}"})
        if (status, is_foreign, count) != (200, overtake.was_free, 1):
            wrong.append(f"{status}, row there {count} times, {overtake} before {request}")
        latest = table.numbers()[-1]
    assert not wrong, "\n".join(wrong)
    assert numbers_at(table) == dict.fromkeys([0, 1, *range(100, 100 + len(requests))], 1)


def test_faults_of_one_request_of_a_commit_are_survived(
    stand: Stand, make: Callable[[], StoredTable]
) -> None:
    """Whichever request it is: its response gets lost, then it is told to slow down.

    The server's S3 client stops repeating requests after some hundred faults: this runs before the others.
    """
    commits, faults = commits_at_every_request(make), (Fault.LOST_RESPONSE, Fault.SLOW_DOWN)
    rules = [commit.table.rule(fault, skip=commit.place, times=1) for fault in faults for commit in commits]
    with stand.faulty.failing(*rules):
        statuses = in_parallel(StagedCommit.send, commits)
    assert stand.faulty.injected == dict.fromkeys(faults, len(commits))
    told = zip(commits, statuses, strict=True)
    assert [f"{status}: {commit.request}" for commit, status in told if status != 200] == []
    assert [commit.request for commit in commits if not commit.is_stored] == []
    assert {tuple(commit.table.numbers()) for commit in commits} == {(1, 2)}


def test_an_iceberg_commit_survives_a_lost_response_and_is_unknown_without_a_store(
    stand: Stand, catalog: RestCatalog, namespace: str
) -> None:
    name = (namespace, "people")
    made = catalog.create_table(name, PEOPLE, properties=ALL_KEPT)
    path, key = f"/iceberg/v1/namespaces/{namespace}/tables/people", re.escape(stand.key_of(made.location()))
    with stand.faulty.failing(Rule(Fault.LOST_RESPONSE, methods={"PUT"}, key=key, times=1)):
        survived = commits_properties(stand, path, 1)
    assert stand.faulty.injected[Fault.LOST_RESPONSE] == 1
    with stand.faulty.failing(Rule(Fault.LOST_RESPONSE, key=key)):
        unknown = commits_properties(stand, path, 2)
    with stand.faulty.failing(Rule(Fault.LOST_REQUEST, key=key)):
        lost = commits_properties(stand, path, 3)
    outcomes = [attempt.outcome for attempt in (survived, unknown, lost)]
    assert outcomes == [Outcome.ACKNOWLEDGED, Outcome.UNKNOWN, Outcome.UNKNOWN]
    again = commits_properties(stand, path, 4)
    assert again.is_acknowledged
    check_iceberg(stand, catalog, name, [survived, unknown, lost, again])


@pytest.mark.parametrize("then", ["the client repeats it", "a foreign writer takes the version"])
def test_a_store_that_goes_away_during_a_commit(
    stand: Stand, make: Callable[[], StoredTable], then: str
) -> None:
    """The answer is a 5xx, or the manifest has its final name: nobody else can take the version any more."""
    commits = commits_at_every_request(make)
    rules = [commit.table.rule(Fault.LOST_REQUEST, skip=commit.place) for commit in commits]
    with stand.faulty.failing(*rules):
        statuses = in_parallel(StagedCommit.send, commits)
        is_stored = [commit.is_stored for commit in commits]
    assert stand.faulty.injected[Fault.LOST_REQUEST] >= len(commits)
    assert statuses[0] == 503
    told = zip(commits, statuses, is_stored, strict=True)
    wrong = [
        f"{status} without its final manifest: away since {commit.request}"
        for commit, status, is_final in told
        if status < 500 and (status, is_final) != (200, True)
    ]
    for commit in commits:
        foreign = commit.table.successor(2)
        is_foreign = then != "the client repeats it" and commit.table.put_by_location(2, foreign)
        again = commit.send()
        expected = (409, foreign) if is_foreign else (200, commit.manifest)
        if (again, commit.table.described(2)) != expected or commit.table.numbers() != [1, 2]:
            wrong.append(f"then {again}, foreign: {is_foreign}: away since {commit.request}")
    assert not wrong, "\n".join(wrong)


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


def test_a_manifest_that_breaks_off_once_is_read_again(stand: Stand, table: StoredTable) -> None:
    body = table.staged(2, table.successor(2))
    with stand.faulty.failing(table.rule(Fault.TRUNCATED, key=STAGED_MANIFEST, times=1)):
        answer = table.post("version/create", body)
    assert stand.faulty.injected[Fault.TRUNCATED] == 1
    assert answer.status_code == 200, answer.text


def test_requests_without_their_data_files_are_answered_503(stand: Stand, table: StoredTable) -> None:
    """The store is at fault, neither the request nor the server."""
    requests: dict[str, dict[str, Any]] = {
        "insert": {"content": stream(row(1))},
        "count_rows": {"body": {"predicate": "id > 0"}},
        "query": {"body": {"k": 5, "vector": {}, "filter": "id > 0"}},
        "delete": {"body": {"predicate": "id = 7"}},
    }
    lost = table.rule(Fault.LOST_REQUEST, methods={"PUT"}, key="data/")
    with stand.faulty.failing(lost, table.rule(Fault.TRUNCATED, key="data/")):
        answers = in_parallel(lambda action: table.post(action, **requests[action]), [*requests])
    assert stand.faulty.injected.keys() == {Fault.LOST_REQUEST, Fault.TRUNCATED}
    assert (numbers_at(table), table.numbers()) == ({0: 1}, [1])
    statuses = {action: answer.status_code for action, answer in zip(requests, answers, strict=True)}
    assert statuses == dict.fromkeys(requests, 503), [answer.text for answer in answers]


@dataclass(frozen=True)
class Run:
    """A table that clients of all kinds wrote to while its files met these faults."""

    table: StoredTable
    rules: Sequence[Rule]
    writers: Sequence[Writer]


@pytest.fixture(scope="module")
def runs(stand: Stand) -> dict[str, tuple[Run, list[Attempt]]]:
    """All kinds of faults at the same time, each on a table of its own: most of the time is spent waiting."""
    name = f"n{uuid4().hex[:12]}"
    stand.http.post(f"/v1/namespace/{name}/create", json={}).raise_for_status()
    prepared = {}
    for kind, rules in {**RANDOM_FAULTS, "everything": MIXED, "everything, for all": MIXED}.items():
        table = new_table(stand, name)
        # Versions made by hand repeat the newest one: appends go on after an append.
        table.insert(row(1))
        share = QUICK_SHARE if rules is MIXED else 1.0
        prepared[kind] = Run(table, table.only(drawn(rules, share)), WRITERS.get(kind, ALL_WRITERS))
    with stand.faulty.failing(*(rule for run in prepared.values() for rule in run.rules)):
        made = in_parallel(
            lambda run: run_writers(run.table, run.writers, QUICK_SECONDS), [*prepared.values()]
        )
    return {kind: (run, attempts) for (kind, run), attempts in zip(prepared.items(), made, strict=True)}


@pytest.mark.parametrize("kind", [*RANDOM_FAULTS, "everything", "everything, for all"])
def test_clients_of_all_kinds_commit_while_the_store_fails(
    runs: dict[str, tuple[Run, list[Attempt]]], kind: str
) -> None:
    run, attempts = runs[kind]
    assert sum(rule.fired for rule in run.rules) > 0
    assert any(attempt.is_acknowledged for attempt in attempts)
    check_history(run.table, attempts)


@pytest.mark.deep
def test_long_runs_with_every_fault(stand: Stand, make: Callable[[], StoredTable]) -> None:
    """New ones every time; a store that hangs is waited for as long as the clients do, which is minutes."""
    for _ in range(DEEP_TURNS):
        table, seed = make(), randrange(1 << 32)
        table.insert(row(1))
        share = Random(seed).choice(DEEP_SHARES)
        hang = Rule(Fault.HANG, probability=0.002, times=2)
        writers = (*ALL_WRITERS, *OF_THE_CATALOG, appends_by_faulty_location)
        print(f"seed {seed}, share {share}")
        with stand.faulty.failing(hang, *drawn(MIXED, share), seed=seed):
            attempts = run_writers(table, writers, DEEP_SECONDS)
        print(stand.faulty.injected)
        check_history(table, attempts)


@pytest.mark.deep
def test_a_store_that_hangs_during_the_final_put(stand: Stand, table: StoredTable) -> None:
    ours = table.successor(2)
    body = table.staged(2, ours)
    with stand.faulty.failing(table.rule(Fault.HANG, methods={"PUT"}, key=FINAL_MANIFEST, times=1)):
        answer = table.post("version/create", body)
    assert stand.faulty.injected[Fault.HANG] == 1
    assert answer.status_code == 200 or answer.status_code >= 500
    assert table.post("version/create", body).status_code == 200
    assert (table.numbers(), table.described(2)) == ([1, 2], ours)


@pytest.mark.parametrize("properties", [ALL_KEPT, FEW_KEPT], ids=["all kept", "few kept"])
def test_iceberg_tables_are_committed_while_the_store_fails(
    stand: Stand,
    catalog: RestCatalog,
    namespace: str,
    properties: dict[str, str],
) -> None:
    name = (namespace, "people")
    catalog.create_table(name, PEOPLE, properties=properties)
    with stand.faulty.failing(*drawn(MIXED, QUICK_SHARE)):
        attempts = run_iceberg(stand, catalog, name, QUICK_SECONDS / 2)
    assert stand.faulty.injected.total() > 2
    check_iceberg(stand, catalog, name, attempts)
    assert {attempt.writer for attempt in attempts if attempt.is_acknowledged} == {"properties", "pyiceberg"}


@pytest.mark.deep
def test_long_iceberg_runs_with_every_fault(stand: Stand, catalog: RestCatalog, namespace: str) -> None:
    for turn in range(DEEP_TURNS):
        name, seed = (namespace, f"people{turn}"), randrange(1 << 32)
        share = Random(seed).choice(DEEP_SHARES)
        print(f"seed {seed}, share {share}")
        catalog.create_table(name, PEOPLE, properties=(ALL_KEPT, FEW_KEPT)[turn % 2])
        with stand.faulty.failing(*drawn(MIXED, share), seed=seed):
            attempts = run_iceberg(stand, catalog, name, DEEP_SECONDS)
        print(stand.faulty.injected)
        check_iceberg(stand, catalog, name, attempts)


def test_no_request_failed_with_a_stack_trace(
    stand: Stand, runs: dict[str, tuple[Run, list[Attempt]]]
) -> None:
    assert failed_requests(stand) == []
