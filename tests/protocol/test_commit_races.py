"""Writers that commit at the same moment: each version has one winner, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace

from tests.conftest import RunningServer
from tests.protocol.wire import TableOnWire, commit_body, final_name, key_of, some_rows

WRITERS = 8
APPENDS = 12
RACERS = 16
ROUNDS = 20
RACED = list(range(2, 2 + ROUNDS))


@dataclass(frozen=True)
class Attempt:
    """One racer's commit of one version, and what it saw right after."""

    version: int
    staged: Path
    content: bytes
    answer: httpx.Response
    seen: httpx.Response

    @property
    def is_winner(self) -> bool:
        return self.answer.status_code == 200


class Race:
    """Racers on all servers, each with a staged manifest of its own for every version."""

    def __init__(self, table: TableOnWire, servers: Sequence[RunningServer]) -> None:
        self._table = table
        self._servers = servers
        self._barrier = Barrier(RACERS)

    def run(self) -> list[Attempt]:
        with ThreadPoolExecutor(RACERS) as threads:
            return [
                attempt for attempts in threads.map(self._commit_all, range(RACERS)) for attempt in attempts
            ]

    def _commit_all(self, racer: int) -> list[Attempt]:
        staged = [self._table.stage(version) for version in RACED]
        with httpx.Client(base_url=self._servers[racer % len(self._servers)].url, timeout=60) as http:
            table = TableOnWire(http, *self._table.levels)
            return [self._commit(table, version, path) for version, path in zip(RACED, staged, strict=True)]

    def _commit(self, table: TableOnWire, version: int, staged: Path) -> Attempt:
        content = staged.read_bytes()
        self._barrier.wait(60)
        answer = table.post("version/create", commit_body(version, staged, manifest_size=len(content)))
        seen = table.post("version/describe", {"version": version})
        return Attempt(version, staged, content, answer, seen)


@dataclass(frozen=True)
class Outcome:
    table: TableOnWire
    attempts: Sequence[Attempt]

    @property
    def winners(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.is_winner]

    @property
    def losers(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if not attempt.is_winner]


@pytest.fixture(scope="module", params=["one server", "two servers"])
def race(request: pytest.FixtureRequest, server: RunningServer, http: httpx.Client) -> Outcome:
    """Sixteen writers who want each of twenty versions for themselves."""
    servers = [server]
    if request.param == "two servers":
        servers.append(request.getfixturevalue("second_server"))
    table = TableOnWire(http, f"race{len(servers)}", "t")
    assert http.post(f"/v1/namespace/{table.namespace}/create", json={}).status_code == 200
    table.create(some_rows())
    return Outcome(table, Race(table, servers).run())


def test_every_version_has_one_winner(race: Outcome) -> None:
    assert sorted(winner.version for winner in race.winners) == RACED


def test_all_others_are_told_of_a_conflict(race: Outcome) -> None:
    answers = {(loser.answer.status_code, loser.answer.json()["code"]) for loser in race.losers}
    assert (answers, len(race.losers)) == ({(409, 14)}, (RACERS - 1) * ROUNDS)


def test_everybody_sees_the_winner_at_once(race: Outcome) -> None:
    """What a client asks after a conflict has to name a manifest that can be read there and then."""
    directory = race.table.directory / "_versions"
    readable = {
        winner.version: {key_of(winner.staged), key_of(directory / final_name(winner.version))}
        for winner in race.winners
    }
    assert {attempt.seen.status_code for attempt in race.attempts} == {200}
    seen = [(attempt.version, attempt.seen.json()["version"]) for attempt in race.attempts]
    assert all(shown["version"] == version for version, shown in seen)
    assert all(shown["manifest_path"] in readable[version] for version, shown in seen)


def test_the_winners_manifests_are_in_place(race: Outcome) -> None:
    manifests = race.table.manifests()
    assert {winner.version: manifests.get(final_name(winner.version)) for winner in race.winners} == {
        winner.version: winner.content for winner in race.winners
    }
    assert not any(winner.staged.exists() for winner in race.winners)


def test_the_losers_manifests_are_left_to_them(race: Outcome) -> None:
    assert all(loser.staged.read_bytes() == loser.content for loser in race.losers)


def test_the_versions_have_no_gap(race: Outcome) -> None:
    assert race.table.numbers() == [1, *RACED]


def test_the_table_is_readable_after_the_race(race: Outcome, rest: RestNamespace) -> None:
    dataset = lance.dataset(namespace_client=rest, table_id=race.table.levels)
    assert (dataset.version, dataset.to_table()) == (RACED[-1], some_rows())


def test_concurrent_appends_all_land_exactly_once(
    server: RunningServer, http: httpx.Client, namespace: str
) -> None:
    levels = [namespace, "busy"]
    rest = RestNamespace(uri=server.url)
    empty = pa.table({"id": pa.array([], pa.int64())})
    lance.write_dataset(empty, namespace_client=rest, table_id=levels, mode="create")
    barrier = Barrier(WRITERS)

    def append_all(writer: int) -> None:
        own = RestNamespace(uri=server.url)
        barrier.wait(60)
        for number in range(APPENDS):
            rows = pa.table({"id": [writer * APPENDS + number]})
            lance.write_dataset(rows, namespace_client=own, table_id=levels, mode="append")

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(append_all, range(WRITERS)))

    dataset = lance.dataset(namespace_client=rest, table_id=levels)
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(WRITERS * APPENDS))
    table = TableOnWire(http, *levels)
    assert table.numbers() == list(range(1, WRITERS * APPENDS + 2))
    assert table.manifests().keys() == {final_name(number) for number in table.numbers()}
