"""What several transactions at once may do to each other: nothing but wait or be refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import pytest

from tests.contract.samples import (
    LONG,
    NOTHING,
    a_function,
    a_job,
    a_namespace,
    a_part,
    a_table,
    a_version,
    claimed,
    ident,
    lease_of,
    path,
    stored_table,
    submitted,
)
from tests.contract.threads import together
from tidemill.catalog.errors import (
    ConcurrentModification,
    NamespaceAlreadyExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    TableAlreadyExists,
    TableNotFound,
    TableVersionAlreadyExists,
)
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.errors import JobAlreadyActive
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.ports import JobStore, JobTransaction

WRITERS = 16
VERSIONS = 50
ROUNDS = 15
# Long enough for a statement that does not wait to have been done.
MOMENT = 0.1


def in_transaction(store: JobStore, work: Callable[[JobTransaction], None]) -> Callable[[], None]:
    def run() -> None:
        with store.transaction() as tx:
            work(tx)

    return run


def drop_table(store: JobStore, table_id: UUID) -> Callable[[], None]:
    return in_transaction(store, lambda tx: tx.tables.remove(table_id))


def is_waiting(future: Future[None]) -> bool:
    time.sleep(MOMENT)
    return not future.done()


def test_of_many_writers_of_a_version_exactly_one_wins(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    barrier = Barrier(WRITERS)

    def write(writer: int) -> list[int]:
        won = []
        for number in range(1, VERSIONS + 1):
            barrier.wait()
            try:
                with store.transaction() as tx:
                    tx.versions.add(a_version(table.table_id, number, manifest_path=str(writer)))
            except TableVersionAlreadyExists:
                continue
            won.append(number)
        return won

    with ThreadPoolExecutor(WRITERS) as threads:
        won_by_writer = list(threads.map(write, range(WRITERS)))
    winners = {number: writer for writer, won in enumerate(won_by_writer) for number in won}
    assert sum(map(len, won_by_writer)) == VERSIONS
    with store.transaction() as tx:
        stored = tx.versions.list_all(table.table_id, MAIN_BRANCH)
    assert {version.version: int(version.manifest_path) for version in stored} == winners


def test_of_many_makers_of_a_namespace_exactly_one_wins(store: JobStore) -> None:
    outcomes = together(
        *[in_transaction(store, lambda tx: tx.namespaces.add(a_namespace("shop"))) for _ in range(8)]
    )
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, NamespaceAlreadyExists) for outcome in outcomes) == 7


def test_of_many_makers_of_a_table_exactly_one_wins(store: JobStore) -> None:
    outcomes = together(*[in_transaction(store, lambda tx: tx.tables.add(a_table("t"))) for _ in range(8)])
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, TableAlreadyExists) for outcome in outcomes) == 7


def test_many_may_register_the_same_function(store: JobStore) -> None:
    function = a_function("length")

    def register(tx: JobTransaction) -> None:
        tx.functions.add(function, "ada")

    outcomes = together(*[in_transaction(store, register) for _ in range(8)])
    assert list(outcomes) == [None] * 8
    with store.transaction() as tx:
        assert [item.function for item in tx.functions.list_registered()] == [function]


def test_of_many_submitters_for_a_subject_exactly_one_wins(store: JobStore) -> None:
    subject = a_job().subject_id
    outcomes = together(
        *[in_transaction(store, lambda tx: tx.jobs.add(a_job(subject_id=subject))) for _ in range(8)]
    )
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, JobAlreadyActive) for outcome in outcomes) == 7


def test_of_many_submitters_with_one_key_exactly_one_wins(store: JobStore) -> None:
    outcomes = together(
        *[in_transaction(store, lambda tx: tx.jobs.add(a_job(idempotency_key="key"))) for _ in range(8)]
    )
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, ConcurrentModification) for outcome in outcomes) == 7


def test_of_many_appliers_of_a_part_exactly_one_wins(store: JobStore) -> None:
    job = submitted(store)
    outcomes = together(
        *[in_transaction(store, lambda tx: tx.parts.add(a_part(job.job_id, "0"))) for _ in range(8)]
    )
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, ConcurrentModification) for outcome in outcomes) == 7


def test_workers_claiming_at_once_get_different_jobs(store: JobStore) -> None:
    expected = {submitted(store).job_id for _ in range(12)}
    results = together(*[lambda: [claimed(store).job_id for _ in range(3)]] * 4)
    taken = [job_id for result in results if isinstance(result, list) for job_id in result]
    assert len(taken) == 12
    assert set(taken) == expected


def test_of_two_workers_taking_over_a_job_only_one_gets_it(store: JobStore) -> None:
    def claim() -> Job | None:
        with store.transaction() as tx:
            return tx.leases.claim("worker", LONG)

    for _ in range(ROUNDS):
        submitted(store)
        old = claimed(store, duration=NOTHING)
        taken = [outcome for outcome in together(claim, claim) if isinstance(outcome, Job)]
        assert [(job.job_id, job.epoch) for job in taken] == [(old.job_id, old.epoch + 1)]


@pytest.mark.parametrize("kind", ["table", "namespace"])
def test_a_namespace_is_not_dropped_under_what_is_being_added_to_it(store: JobStore, kind: str) -> None:
    def add(tx: JobTransaction) -> None:
        if kind == "table":
            tx.tables.add(a_table("shop", "child"))
        else:
            tx.namespaces.add(a_namespace("shop", "child"))

    for _ in range(ROUNDS):
        in_transaction(store, lambda tx: tx.namespaces.add(a_namespace("shop")))()
        added, dropped = together(
            in_transaction(store, add), in_transaction(store, lambda tx: tx.namespaces.remove(path("shop")))
        )
        if added is None:
            assert isinstance(dropped, NamespaceNotEmpty)
            in_transaction(store, lambda tx: _clear(tx))()
        else:
            assert isinstance(added, NamespaceNotFound)
            assert dropped is None


def _clear(tx: JobTransaction) -> None:
    child = tx.tables.find(ident("shop", "child"))
    if child is not None:
        tx.tables.remove(child.table_id)
    else:
        tx.namespaces.remove(path("shop", "child"))
    tx.namespaces.remove(path("shop"))


def test_dropping_a_namespace_waits_for_a_table_that_is_being_added(store: JobStore) -> None:
    in_transaction(store, lambda tx: tx.namespaces.add(a_namespace("shop")))()
    drop = in_transaction(store, lambda tx: tx.namespaces.remove(path("shop")))
    with ThreadPoolExecutor() as threads:
        with store.transaction() as tx:
            tx.tables.add(a_table("shop", "orders"))
            dropping = threads.submit(drop)
            assert is_waiting(dropping)
        with pytest.raises(NamespaceNotEmpty):
            dropping.result()


def test_adding_a_table_waits_for_its_namespace_that_is_being_dropped(store: JobStore) -> None:
    in_transaction(store, lambda tx: tx.namespaces.add(a_namespace("shop")))()
    add = in_transaction(store, lambda tx: tx.tables.add(a_table("shop", "orders")))
    with ThreadPoolExecutor() as threads:
        with store.transaction() as tx:
            tx.namespaces.remove(path("shop"))
            adding = threads.submit(add)
            assert is_waiting(adding)
        with pytest.raises(NamespaceNotFound):
            adding.result()


def test_a_version_added_while_its_table_is_dropped_leaves_nothing_behind(store: JobStore) -> None:
    def add(table_id: UUID) -> Callable[[], None]:
        return in_transaction(store, lambda tx: tx.versions.add(a_version(table_id, 1)))

    for number in range(ROUNDS):
        table = stored_table(store, "shop", f"t{number}")
        added, dropped = together(add(table.table_id), drop_table(store, table.table_id))
        assert dropped is None
        assert added is None or isinstance(added, TableNotFound)
        with store.transaction() as tx:
            assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None


def test_dropping_a_table_waits_for_a_version_that_is_being_added_and_takes_it_along(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with ThreadPoolExecutor() as threads:
        with store.transaction() as tx:
            tx.versions.add(a_version(table.table_id, 1))
            dropping = threads.submit(drop_table(store, table.table_id))
            assert is_waiting(dropping)
        dropping.result()
    with store.transaction() as tx:
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None


def test_publishing_and_dropping_the_table_at_once_ends_without_a_deadlock(store: JobStore) -> None:
    def publish(lease_job: Job, table_id: UUID) -> Callable[[], None]:
        def work(tx: JobTransaction) -> None:
            tx.leases.check(lease_of(lease_job))
            tx.versions.add(a_version(table_id, 1))
            tx.parts.add(a_part(lease_job.job_id, "0"))

        return in_transaction(store, work)

    for number in range(ROUNDS):
        table = stored_table(store, "shop", f"t{number}")
        submitted(store, table_id=table.table_id)
        job = claimed(store)
        _, dropped = together(publish(job, table.table_id), drop_table(store, table.table_id))
        assert dropped is None
        with store.transaction() as tx:
            assert tx.jobs.get(job.job_id).state is JobState.CANCELLED


def test_nobody_takes_a_job_over_while_its_lease_is_being_checked(store: JobStore) -> None:
    submitted(store)
    job = claimed(store, duration=NOTHING)

    def claim() -> Job | None:
        with store.transaction() as tx:
            return tx.leases.claim("two", LONG)

    with ThreadPoolExecutor() as threads:
        with store.transaction() as tx:
            tx.leases.check(lease_of(job))
            claiming = threads.submit(claim)
            time.sleep(MOMENT)
            assert not claiming.done() or claiming.result() is None
            tx.parts.add(a_part(job.job_id, "0"))
        claiming.result()
    with store.transaction() as tx:
        assert len(tx.parts.list_of(job.job_id)) == 1


def test_cancelling_waits_for_a_commit_under_the_lease(store: JobStore) -> None:
    submitted(store)
    job = claimed(store)
    with ThreadPoolExecutor() as threads:
        with store.transaction() as tx:
            tx.leases.check(lease_of(job))
            cancelling = threads.submit(in_transaction(store, lambda tx: _cancel(tx, job.job_id)))
            assert is_waiting(cancelling)
        cancelling.result()
    with store.transaction() as tx:
        assert tx.jobs.get(job.job_id).cancel_requested_at is not None


def test_cancelling_a_job_that_is_being_claimed_marks_it_for_its_worker(store: JobStore) -> None:
    job = submitted(store)
    with ThreadPoolExecutor() as threads:
        with store.transaction() as tx:
            tx.leases.claim("worker", LONG)
            cancelling = threads.submit(in_transaction(store, lambda tx: _cancel(tx, job.job_id)))
            assert is_waiting(cancelling)
        cancelling.result()
    with store.transaction() as tx:
        assert tx.jobs.get(job.job_id).state is JobState.RUNNING
        assert tx.jobs.get(job.job_id).cancel_requested_at is not None


def _cancel(tx: JobTransaction, job_id: str) -> None:
    tx.jobs.request_cancel(job_id)
