"""Sixteen clients of every kind commit while servers are killed and stopped: no acknowledged commit is lost.

The storm runs at two sizes: a few hundred versions by default, 50,000 with the marker `deep` (`make storm`).
`TIDEMILL_STORM_VERSIONS`, `TIDEMILL_STORM_SECONDS` and `TIDEMILL_STORM_SEED` override the size and the seed.
A seed repeats what clients try and which servers are hit, but not the timing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from tests.interop.storm.deployment import two_processes_on_sqlite, two_servers_on_postgresql
from tests.interop.storm.outcome import Outcome
from tests.interop.storm.plan import FULL, SMALL, configured
from tests.interop.storm.run import run
from tests.linearizability import Result
from tests.postgres import PostgresMissing

pytestmark = pytest.mark.timeout(5400)

SHOWN = 10
DEPLOYMENTS = {
    "two servers on PostgreSQL": two_servers_on_postgresql,
    "two processes on SQLite": two_processes_on_sqlite,
}


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param((name, SMALL), id=name) for name in DEPLOYMENTS),
        *(
            pytest.param((name, FULL), id=f"{name}, full size", marks=pytest.mark.deep)
            for name in DEPLOYMENTS
        ),
    ],
)
def storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What is left after a storm; all tests look at the same one."""
    name, plan = request.param
    plan = configured(plan)
    _say(request, f"\n{name}: seed {plan.seed}")
    try:
        with DEPLOYMENTS[name](tmp_path_factory.mktemp("storm")) as deployment:
            outcome = run(plan, deployment)
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    _say(request, str(outcome))
    return outcome


def _say(request: pytest.FixtureRequest, line: str) -> None:
    manager = request.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        if manager is not None:
            stack.enter_context(manager.global_and_fixture_disabled())
        print(line)


def check_none(findings: Sequence[object]) -> None:
    shown = "\n".join(map(str, findings[:SHOWN]))
    assert not findings, f"{len(findings)} findings, such as\n{shown}"


def test_every_acknowledged_manifest_is_read_back(storm: Outcome) -> None:
    check_none(storm.lost_commits)


def test_every_version_has_one_winner(storm: Outcome) -> None:
    check_none(storm.versions_with_several_winners)


def test_no_refused_manifest_lands(storm: Outcome) -> None:
    check_none(storm.refused_commits_that_landed)


def test_every_acknowledged_row_is_there_once(storm: Outcome) -> None:
    """Of pylance through the catalog and by location, and of inserts; an unknown one at most once."""
    check_none(storm.wrong_rows)


@pytest.mark.operation("CreateTableVersion", "ListTableVersions", client="pylance")
def test_every_version_is_there_once(storm: Outcome) -> None:
    """The catalog lists the versions from 1 to the latest, and storage holds their manifests."""
    check_none(storm.holes)


def test_batches_land_whole_or_not_at_all(storm: Outcome) -> None:
    check_none(storm.torn_batches)


def test_the_servers_answer_success_or_conflict(storm: Outcome) -> None:
    """No 500 ever; 503 and 520 (unknown) only while a server is being killed or stopped."""
    check_none(storm.unexpected_answers)


def test_no_request_ends_in_a_deadlock(storm: Outcome) -> None:
    check_none(storm.deadlocks)


def test_clients_fail_only_when_a_server_is_killed_or_stopped(storm: Outcome) -> None:
    check_none(storm.unexcused_incidents)


def test_no_answer_contradicts_what_was_known_before(storm: Outcome) -> None:
    """Readers see what was acknowledged before they asked, and nothing is refused without a reason."""
    check_none(storm.journal.contradictions)


def test_the_history_of_every_version_is_linearizable(storm: Outcome) -> None:
    check_none(storm.violations)


def test_the_storm_has_its_size(storm: Outcome) -> None:
    assert storm.versions >= storm.plan.versions or not storm.plan.must_be_complete


def test_every_kind_of_client_takes_part(storm: Outcome) -> None:
    """A storm without conflicts and faults would prove nothing."""
    written = {write.how for write in storm.journal.rows if write.result is Result.DONE}
    assert written == {"pylance through the catalog", "pylance by location", "insert"}
    assert storm.journal.count(Result.REFUSED) > 0
    assert {fault.kind for fault in storm.faults} == {"kill", "stop"}
    assert any(batch.result is Result.DONE for batch in storm.journal.batches)
