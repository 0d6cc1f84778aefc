"""Many writers on one managed table through two servers: every commit lands exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.interop.storm import Outcome, Storm, run
from tests.postgres import PostgresCluster, PostgresMissing

pytestmark = pytest.mark.timeout(3600)

# `make storm` sets the full size.
STORM = Storm(
    writers=int(os.environ.get("TIDEMILL_STORM_WRITERS", "8")),
    commits=int(os.environ.get("TIDEMILL_STORM_COMMITS", "6")),
)
SERVERS = 2


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresCluster]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def servers(
    database: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[RunningServer]]:
    """Two processes over one database and one warehouse; each has a log of its own."""
    root = tmp_path_factory.mktemp("storm")
    environment = {}
    if database == "postgresql":
        cluster: PostgresCluster = request.getfixturevalue("postgres")
        cluster.create_database("storm")
        environment["TIDEMILL_DATABASE_URL"] = cluster.url("storm")
    with ExitStack() as stack:
        running = []
        for _ in range(SERVERS):
            running.append(start_server(root, "--no-worker", **environment))
            stack.callback(running[-1].stop)
        yield running


@pytest.fixture(scope="module")
def outcome(servers: Sequence[RunningServer], database: str, request: pytest.FixtureRequest) -> Outcome:
    urls = [server.url for server in servers]
    assert httpx.post(f"{urls[0]}/v1/namespace/storm/create", json={}).status_code == 200
    logs = sorted({server.root / "server.log" for server in servers})
    result = run(STORM, urls, logs, ["storm", "t"])
    with capture_disabled(request):
        print(f"\n{database}: {result}")
    return result


def capture_disabled(request: pytest.FixtureRequest) -> ExitStack:
    manager = request.config.pluginmanager.getplugin("capturemanager")
    stack = ExitStack()
    if manager is not None:
        stack.enter_context(manager.global_and_fixture_disabled())
    return stack


def test_no_commit_fails(outcome: Outcome) -> None:
    assert not outcome.failures, "\n".join(outcome.failures)


def test_no_row_is_lost_and_none_comes_twice(outcome: Outcome) -> None:
    assert outcome.rows == list(range(STORM.total))


@pytest.mark.operation("CreateTableVersion", "ListTableVersions", client="pylance")
def test_every_version_is_there_once(outcome: Outcome) -> None:
    numbers = list(range(1, STORM.total + 2))
    assert (list(outcome.versions), list(outcome.manifests)) == (numbers, numbers)


def test_the_servers_answer_success_or_conflict(outcome: Outcome) -> None:
    assert set(outcome.answers) <= {200, 409}
    # One more made the table.
    assert outcome.answers[200] == STORM.total + 1
