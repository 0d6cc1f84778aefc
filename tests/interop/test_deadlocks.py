"""Many clients change the same tables in different orders through two servers: nobody deadlocks.

The answers alone would not show a deadlock that a server got over by a retry; PostgreSQL's own count does.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.conftest import RunningServer, start_server
from tests.postgres import PostgresCluster, PostgresMissing
from tests.protocol.wire import TableOnWire, final_name, key_of, renumbered, some_rows

SERVERS = 2
CLIENTS = 8
TABLES = 5
SECONDS = 8
DEEP_SECONDS = 90
DATABASE = "deadlocks"
NAMESPACE = "busy"

Request = tuple[str, Any, frozenset[int]]
"""A path, a body, and the answers that are right for it."""

COMMITTED_OR_BEATEN = frozenset({200, 409})
# Somebody else may have removed or added the name meanwhile.
NAMED_OR_BEATEN = COMMITTED_OR_BEATEN | {404}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresCluster]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    cluster.create_database(DATABASE)
    yield cluster
    cluster.stop()


@pytest.fixture
def servers(postgres: PostgresCluster, tmp_path: Path) -> Iterator[Sequence[RunningServer]]:
    with ExitStack() as stack:
        running = []
        for _ in range(SERVERS):
            url = {"TIDEMILL_DATABASE_URL": postgres.url(DATABASE)}
            running.append(start_server(tmp_path, "--no-worker", **url))
            stack.callback(running[-1].stop)
        yield running


def deadlocks_in(cluster: PostgresCluster) -> int:
    """As many as PostgreSQL has seen; sessions report to it when they end, or a moment later."""
    time.sleep(1.5)
    url = cluster.url("postgres").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = %s"
        row = connection.execute(query, [DATABASE]).fetchone()
    assert row is not None
    return int(row[0])


class Client:
    """Sends one random change after the other, each over tables in random order."""

    def __init__(self, url: str, seed: int, manifests: Sequence[tuple[Path, bytes]]) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self._random = random.Random(seed)
        self._manifests = manifests
        self.answers: Counter[int] = Counter()
        self.surprises: list[str] = []
        self.slowest = 0.0

    def run(self, seconds: float) -> None:
        kinds: Sequence[Callable[[], Request]] = (
            self._create_versions,
            self._create_versions,
            self._mixed,
            self._mixed,
            self._rename_by_batch,
            self._create_version,
            self._delete_versions,
            self._rename,
        )
        give_up_at = time.monotonic() + seconds
        with self._http:
            while time.monotonic() < give_up_at:
                self._send(*self._random.choice(kinds)())

    def _send(self, path: str, body: Any, right: frozenset[int]) -> None:
        started_at = time.monotonic()
        answer = self._http.post(path, json=body)
        self.slowest = max(self.slowest, time.monotonic() - started_at)
        self.answers[answer.status_code] += 1
        if answer.status_code not in right:
            self.surprises.append(f"{path}: {answer.status_code} {answer.text:.300}")

    def _create_versions(self) -> Request:
        entries = [self._next_version(number) for number in self._some_tables()]
        return "/v1/table/version/batch-create", {"entries": entries}, COMMITTED_OR_BEATEN

    def _create_version(self) -> Request:
        number = self._random.randrange(TABLES)
        entry = self._next_version(number)
        return f"/v1/table/{NAMESPACE}$t{number}/version/create", entry, COMMITTED_OR_BEATEN

    def _delete_versions(self) -> Request:
        number = self._random.randrange(TABLES)
        body = {"ranges": [{"start_version": 1, "end_version": self._latest(number)}]}
        return f"/v1/table/{NAMESPACE}$t{number}/version/delete", body, COMMITTED_OR_BEATEN

    def _mixed(self) -> Request:
        operations = []
        for number in self._some_tables():
            if self._random.random() < 0.6:
                operations.append({"create_table_version": self._next_version(number)})
            else:
                ranges = [{"start_version": 1, "end_version": self._latest(number)}]
                operations.append({"delete_table_versions": {"id": self._id(number), "ranges": ranges}})
        new = [NAMESPACE, f"n{uuid4().hex}"]
        operations.insert(self._random.randrange(len(operations)), {"declare_table": {"id": new}})
        operations.append({"deregister_table": {"id": new}})
        return "/v1/table/batch-commit", {"operations": operations}, COMMITTED_OR_BEATEN

    def _rename_by_batch(self) -> Request:
        """Takes names that others want, and gives others free."""
        names = self._random.sample(["a", "b", "c", "d"], 3)
        operations: list[Any] = [{"create_table_version": self._next_version(number)} for number in (0, 1)]
        operations += [{"declare_table": {"id": [NAMESPACE, name]}} for name in names[:2]]
        operations.append({"deregister_table": {"id": [NAMESPACE, names[2]]}})
        self._random.shuffle(operations)
        return "/v1/table/batch-commit", {"operations": operations}, NAMED_OR_BEATEN

    def _rename(self) -> Request:
        old, new = self._random.sample(["a", "b", "c", "d"], 2)
        if self._random.random() < 0.5:
            return f"/v1/table/{NAMESPACE}${old}/deregister", {}, NAMED_OR_BEATEN
        body = {"new_table_name": new, "new_namespace_id": [NAMESPACE]}
        return f"/v1/table/{NAMESPACE}${old}/rename", body, NAMED_OR_BEATEN

    def _some_tables(self) -> list[int]:
        return self._random.sample(range(TABLES), self._random.randint(2, 4))

    def _next_version(self, number: int) -> dict[str, Any]:
        directory, manifest = self._manifests[number]
        version = self._latest(number) + 1
        staged = directory / "_versions" / f"{final_name(version)}-{uuid4()}"
        staged.write_bytes(renumbered(manifest, version))
        staged_key = key_of(staged)
        return {
            "id": self._id(number),
            "version": version,
            "manifest_path": staged_key,
            "naming_scheme": "V2",
        }

    def _latest(self, number: int) -> int:
        answer = self._http.post(f"/v1/table/{NAMESPACE}$t{number}/version/describe", json={})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["version"]["version"])

    def _id(self, number: int) -> list[str]:
        return [NAMESPACE, f"t{number}"]


def made_tables(url: str) -> list[tuple[Path, bytes]]:
    """Where they lie, and the manifest that all their versions are copies of."""
    found = []
    with httpx.Client(base_url=url, timeout=60) as http:
        http.post(f"/v1/namespace/{NAMESPACE}/drop", json={"behavior": "Cascade", "mode": "Skip"})
        assert http.post(f"/v1/namespace/{NAMESPACE}/create", json={}).status_code == 200
        for number in range(TABLES):
            table = TableOnWire(http, NAMESPACE, f"t{number}")
            table.create(some_rows())
            manifest = (table.directory / "_versions" / final_name(1)).read_bytes()
            found.append((table.directory, manifest))
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(DEEP_SECONDS, marks=pytest.mark.deep)])
def test_changes_in_any_order_end_without_a_deadlock(
    postgres: PostgresCluster, servers: Sequence[RunningServer], seconds: int
) -> None:
    manifests = made_tables(servers[0].url)
    before = deadlocks_in(postgres)
    seed = random.randrange(1 << 32)
    clients = [Client(servers[number % SERVERS].url, seed + number, manifests) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(lambda client: client.run(seconds), clients))
    answers = sum((client.answers for client in clients), Counter())
    surprises = [surprise for client in clients for surprise in client.surprises]
    deadlocks = deadlocks_in(postgres) - before
    slowest = max(client.slowest for client in clients)
    print(f"\nseed {seed}: {dict(answers)}, {deadlocks} deadlocks, slowest {slowest:.1f} s")
    assert answers[200] > 0
    assert not surprises, f"{len(surprises)} of {answers.total()}:\n" + "\n".join(surprises[:5])
    assert deadlocks == 0
