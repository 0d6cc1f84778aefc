"""Commits of Iceberg tables and views, and receipts of requests, raced in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from tests.histories import seeded_commits as bugs
from tests.interleavings import iceberg_scenarios as races
from tests.interleavings.iceberg_scenarios import SCENARIOS, THREE
from tests.interleavings.iceberg_world import (
    ANSWER_LOST,
    KILLED,
    NO_FAULT,
    OUTAGE_AFTER,
    OUTAGE_BEFORE,
    STEP_FAILED,
    Fault,
    IcebergDeployment,
    Scenario,
    walk,
)
from tests.interleavings.scheduler import Exploration
from tidemill.iceberg.operations import commit_engine, outcomes
from tidemill.iceberg.operations.purges import FileRemover
from tidemill.iceberg.operations.tables import IcebergTableOperations

FAULTS: Final = (NO_FAULT, KILLED, ANSWER_LOST, STEP_FAILED, OUTAGE_AFTER, OUTAGE_BEFORE)


@pytest.fixture(scope="module")
def lake(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergDeployment]:
    with IcebergDeployment.opened(url, tmp_path_factory.mktemp("iceberg")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(outcomes, "RESOLVE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(commit_engine, "FIRST_PAUSE_SECONDS", 0.0)


# Walked through with faults in every run of the tests; make test-deep does it with all of them.
QUICK: Final[Sequence[Scenario]] = (
    races.two_commits,
    races.two_creates,
    races.transactions_that_require_what_the_other_changes,
    races.one_commit_sent_again_beside_another,
)


def name_of(value: Scenario | Fault) -> str:
    return value.name if isinstance(value, Fault) else value.__name__


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_one_order_explains_all_answers(lake: IcebergDeployment, scenario: Scenario) -> None:
    report(scenario, NO_FAULT, walk(lake, scenario))


@pytest.mark.parametrize("fault", [KILLED, ANSWER_LOST], ids=name_of)
@pytest.mark.parametrize("scenario", QUICK, ids=name_of)
def test_one_order_explains_all_answers_when_something_fails(
    lake: IcebergDeployment, scenario: Scenario, fault: Fault
) -> None:
    report(scenario, fault, walk(lake, scenario, fault))


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS[1:], ids=name_of)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_one_order_explains_all_answers_whatever_fails(
    lake: IcebergDeployment, scenario: Scenario, fault: Fault
) -> None:
    report(scenario, fault, walk(lake, scenario, fault))


SOME: Final = 15


@pytest.mark.parametrize("scenario", THREE, ids=name_of)
def test_one_order_explains_what_three_clients_are_answered(
    lake: IcebergDeployment, scenario: Scenario
) -> None:
    report(scenario, NO_FAULT, walk(lake, scenario, limit=SOME))


@pytest.mark.deep
@pytest.mark.parametrize("fault", [NO_FAULT, KILLED, ANSWER_LOST], ids=name_of)
@pytest.mark.parametrize("scenario", THREE, ids=name_of)
def test_one_order_explains_all_that_three_clients_are_answered(
    lake: IcebergDeployment, scenario: Scenario, fault: Fault
) -> None:
    report(scenario, fault, walk(lake, scenario, fault))


@pytest.mark.deep
@pytest.mark.parametrize("fault", [NO_FAULT, KILLED], ids=name_of)
def test_one_order_explains_what_two_clients_of_one_server_are_answered(
    lake: IcebergDeployment, fault: Fault
) -> None:
    report(races.two_commits_to_one_server, fault, walk(lake, races.two_commits_to_one_server, fault))


def old_files_are_removed_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileRemover, "remove_obsolete", FileRemover.remove_all)


def a_removed_file_is_looked_for_once(patch: pytest.MonkeyPatch) -> None:
    def load(self: Any, caller: Any, ident: Any) -> Any:
        entry = self._names.get(caller, ident)
        self._check_file_exists(entry)
        return entry

    patch.setattr(IcebergTableOperations, "load", load)


BUGS: Final[Sequence[tuple[Callable[[pytest.MonkeyPatch], None], Scenario, Fault]]] = (
    (bugs.a_lost_race_is_ignored, races.two_commits, NO_FAULT),
    (bugs.a_lost_race_for_the_second_table_is_ignored, races.a_transaction_and_single_commits, NO_FAULT),
    (bugs.unchanged_tables_are_not_checked, races.a_transaction_that_requires_what_another_changes, NO_FAULT),
    (bugs.unchanged_tables_are_not_checked, races.transactions_that_require_what_the_other_changes, NO_FAULT),
    (bugs.receipts_have_a_transaction_of_their_own, races.one_commit_sent_again_beside_another, KILLED),
    (bugs.receipts_have_a_transaction_of_their_own, races.one_create_sent_twice, NO_FAULT),
    (bugs.files_of_unknown_commits_are_deleted, races.two_commits, OUTAGE_AFTER),
    (bugs.every_unsettled_file_is_removed, races.two_commits, OUTAGE_AFTER),
    (bugs.a_state_that_others_followed_counts_as_gone, races.two_commits, OUTAGE_AFTER),
    (bugs.a_lost_commit_counts_as_done, races.two_commits, STEP_FAILED),
    (bugs.a_lost_commit_is_sent_again_unseen, races.two_creates, ANSWER_LOST),
    (bugs.a_refusal_by_its_own_effect_is_believed, races.two_creates, ANSWER_LOST),
    (old_files_are_removed_unseen, races.a_commit_and_an_overwrite_with_an_old_state, NO_FAULT),
    (a_removed_file_is_looked_for_once, races.commits_that_remove_old_states_and_a_load, NO_FAULT),
)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("plant", "scenario", "fault"), BUGS, ids=[f"{bug[0].__name__}-{bug[1].__name__}" for bug in BUGS]
)
def test_a_planted_bug_is_found(
    lake: IcebergDeployment,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    scenario: Scenario,
    fault: Fault,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        walk(lake, scenario, fault)


def report(scenario: Scenario, fault: Fault, seen: Exploration) -> None:
    print(f"{scenario.__name__}, {fault.name}: {seen}")
