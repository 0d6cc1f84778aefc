"""Sixteen clients on two servers with one PostgreSQL: no commit is lost, and the history is a line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.iceberg_requests import SCHEMA, new_table, new_view, number_of, with_properties, with_version
from tests.postgres import PostgresCluster, PostgresMissing

CLIENTS = 16
COMMITS = 6
ROUNDS = 25
KEEP_ALL = str(CLIENTS * COMMITS + 10)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    cluster.create_database("races")
    root = tmp_path_factory.mktemp("races")
    settings = {"TIDEMILL_DATABASE_URL": cluster.url("races"), "TIDEMILL_WAREHOUSE": str(root / "warehouse")}
    started = [start_server(root / name, "--no-worker", **settings) for name in ("one", "two")]
    yield started
    for server in started:
        server.stop()
    cluster.stop()


@pytest.fixture(scope="module")
def tables(servers: Sequence[RunningServer]) -> str:
    """Where the namespace of these tests is, below the root of a server."""
    with httpx.Client(base_url=servers[0].url) as http:
        created = http.post("/iceberg/v1/namespaces", json={"namespace": ["races"], "properties": {}})
        assert created.status_code == 200, created.text
        kept = {"write.metadata.previous-versions-max": KEEP_ALL}
        assert http.post("/iceberg/v1/namespaces/races/tables", json=new_table("t", kept)).status_code == 200
        kept = {"version.history.num-entries": KEEP_ALL}
        for name in ("replaced", "described"):
            made = http.post("/iceberg/v1/namespaces/races/views", json=new_view(name, "SELECT 0", kept))
            assert made.status_code == 200, made.text
    return "/iceberg/v1/namespaces/races"


def commit_all(servers: Sequence[RunningServer], path: str, bodies: Sequence[Sequence[Any]]) -> list[Any]:
    """Every client sends its bodies one after the other, half of the clients to each server."""

    def commit(client: int) -> list[httpx.Response]:
        with httpx.Client(base_url=servers[client % len(servers)].url, timeout=120) as http:
            return [http.post(path, json=body) for body in bodies[client]]

    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = [answer for given in threads.map(commit, range(len(bodies))) for answer in given]
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers][:3]
    return [answer.json() for answer in answers]


def stored(location: str) -> Any:
    data = Path(location.removeprefix("file://")).read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def test_every_commit_to_one_table_is_in_its_history_once(servers: list[RunningServer], tables: str) -> None:
    marks = [
        [with_properties(**{f"c{client}-{n}": "x"}) for n in range(COMMITS)] for client in range(CLIENTS)
    ]
    answers = commit_all(servers, f"{tables}/tables/t", marks)
    loaded = httpx.get(f"{servers[1].url}{tables}/tables/t").json()
    expected = {f"c{client}-{n}" for client in range(CLIENTS) for n in range(COMMITS)}
    assert expected <= loaded["metadata"]["properties"].keys()
    states = {answer["metadata-location"] for answer in answers}
    assert len(states) == CLIENTS * COMMITS
    assert sorted(map(number_of, states)) == list(range(1, CLIENTS * COMMITS + 1))
    line = [entry["metadata-file"] for entry in loaded["metadata"]["metadata-log"]]
    assert [*map(number_of, line)] == list(range(CLIENTS * COMMITS))
    for before, after in zip(line, [*line[1:], loaded["metadata-location"]], strict=True):
        assert stored(after)["metadata-log"][-1]["metadata-file"] == before


def test_what_a_transaction_requires_of_one_table_holds_while_it_changes_another(
    servers: list[RunningServer], tables: str
) -> None:
    """Each changes one table if the other is as it was: whichever comes second finds that it is not."""
    root = tables.rpartition("/namespaces/")[0]
    moved = [
        {"action": "add-schema", "schema": {**SCHEMA, "fields": [{**SCHEMA["fields"][0], "name": "other"}]}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    require = [{"type": "assert-current-schema-id", "current-schema-id": 0}]

    def change(name: str, requirements: Sequence[Any], updates: Sequence[Any]) -> dict[str, Any]:
        identifier = {"namespace": ["races"], "name": name}
        return {"identifier": identifier, "requirements": requirements, "updates": updates}

    for number in range(ROUNDS):
        pair = (f"a{number}", f"b{number}")
        for name in pair:
            assert httpx.post(f"{servers[0].url}{tables}/tables", json=new_table(name)).status_code == 200
        transactions = [
            [change(one, require, []), change(other, [], moved)] for one, other in (pair, pair[::-1])
        ]

        def commit(place: int, given: Sequence[Any] = transactions) -> int:
            body = {"table-changes": given[place % 2]}
            return httpx.post(f"{servers[place % 2].url}{root}/transactions/commit", json=body).status_code

        with ThreadPoolExecutor(4) as threads:
            statuses = list(threads.map(commit, range(4)))
        assert set(statuses) == {204, 409}, statuses
        loaded = [httpx.get(f"{servers[0].url}{tables}/tables/{name}").json() for name in pair]
        assert sorted(table["metadata"]["current-schema-id"] for table in loaded) == [0, 1]


def test_every_replacement_of_one_view_becomes_a_version_of_its_own(
    servers: list[RunningServer], tables: str
) -> None:
    bodies = [[with_version(f"SELECT {client}, {n}") for n in range(COMMITS)] for client in range(CLIENTS)]
    commit_all(servers, f"{tables}/views/replaced", bodies)
    metadata = httpx.get(f"{servers[0].url}{tables}/views/replaced").json()["metadata"]
    count = CLIENTS * COMMITS + 1
    assert [version["version-id"] for version in metadata["versions"]] == list(range(1, count + 1))
    assert [entry["version-id"] for entry in metadata["version-log"]] == list(range(1, count + 1))
    assert metadata["current-version-id"] == count
    said = {version["representations"][0]["sql"] for version in metadata["versions"]}
    assert said == {"SELECT 0"} | {f"SELECT {c}, {n}" for c in range(CLIENTS) for n in range(COMMITS)}


def test_properties_set_by_all_clients_are_all_there(servers: list[RunningServer], tables: str) -> None:
    bodies = [
        [with_properties(**{f"c{client}-{n}": "x"}) for n in range(COMMITS)] for client in range(CLIENTS)
    ]
    commit_all(servers, f"{tables}/views/described", bodies)
    loaded = httpx.get(f"{servers[0].url}{tables}/views/described").json()
    assert len(loaded["metadata"]["properties"]) == CLIENTS * COMMITS + 1
    assert number_of(loaded["metadata-location"]) == CLIENTS * COMMITS
