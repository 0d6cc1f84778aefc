"""JobLeases, on every store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.samples import LONG, NOON, NOTHING, claimed, lease_of, submitted
from tidemill.jobs.errors import InvalidJobTransition, LeaseLost
from tidemill.jobs.model.jobs import Failure, Job, JobState, Lease, Progress
from tidemill.jobs.ports import JobStore, JobTransaction

PATIENCE_SECONDS = 30


def test_with_no_jobs_there_is_nothing_to_claim(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.leases.claim("worker", LONG) is None


def test_a_claimed_job_runs_under_its_new_owner_and_epoch(store: JobStore) -> None:
    job = submitted(store)
    with store.transaction() as tx:
        before = tx.now()
        running = tx.leases.claim("worker", LONG)
        after = tx.now()
    assert running is not None
    assert (running.job_id, running.state) == (job.job_id, JobState.RUNNING)
    assert (running.epoch, running.owner) == (job.epoch + 1, "worker")
    assert running.started_at is not None
    assert before <= running.started_at <= after
    assert running.lease_until_at is not None
    assert before + LONG <= running.lease_until_at <= after + LONG
    with store.transaction() as tx:
        assert tx.jobs.get(job.job_id) == running


def test_the_oldest_job_is_claimed_first(store: JobStore) -> None:
    late = submitted(store, created_at=NOON + timedelta(days=2))
    early = submitted(store, created_at=NOON + timedelta(days=1))
    assert [claimed(store).job_id, claimed(store).job_id] == [early.job_id, late.job_id]


def test_of_equally_old_jobs_the_lower_id_is_claimed_first(store: JobStore) -> None:
    first, second = submitted(store, created_at=NOON), submitted(store, created_at=NOON)
    assert [claimed(store).job_id, claimed(store).job_id] == [first.job_id, second.job_id]


def test_a_cluster_claims_its_own_jobs_only(store: JobStore) -> None:
    on_gpu, anywhere = submitted(store, cluster="gpu"), submitted(store)
    assert claimed(store).job_id == anywhere.job_id
    with store.transaction() as tx:
        assert tx.leases.claim("worker", LONG) is None
        assert tx.leases.claim("worker", LONG, "GPU") is None
        claimed_there = tx.leases.claim("worker", LONG, "gpu")
    assert claimed_there is not None
    assert (claimed_there.job_id, claimed_there.cluster) == (on_gpu.job_id, "gpu")


def test_a_job_whose_lease_ran_out_stays_with_its_cluster(store: JobStore) -> None:
    job = submitted(store, cluster="gpu")
    for expected in (job.job_id, job.job_id):
        with store.transaction() as tx:
            assert tx.leases.claim("worker", LONG) is None
            taken = tx.leases.claim("worker", NOTHING, "gpu")
        assert taken is not None
        assert taken.job_id == expected


def test_a_job_under_a_lease_is_not_claimed_again(store: JobStore) -> None:
    submitted(store)
    claimed(store)
    with store.transaction() as tx:
        assert tx.leases.claim("other", LONG) is None


def test_a_job_is_claimed_again_once_the_database_says_its_lease_ran_out(store: JobStore) -> None:
    submitted(store)
    first = claimed(store, "one", LONG)
    with store.transaction() as tx:
        assert tx.leases.claim("two", LONG) is None
        tx.leases.renew(lease_of(first), timedelta(milliseconds=20))
    second = claimed_in_time(store, "two")
    assert (second.job_id, second.epoch, second.owner) == (first.job_id, first.epoch + 1, "two")
    assert second.started_at == first.started_at


def claimed_in_time(store: JobStore, owner: str) -> Job:
    """Once the lease before has run out, however long the machine takes for that."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up_at:
        with store.transaction() as tx:
            job = tx.leases.claim(owner, LONG)
        if job is not None:
            return job
        time.sleep(0.01)
    raise AssertionError("the lease never ran out")


def test_a_job_marked_for_cancelling_is_still_taken_over(store: JobStore) -> None:
    job = submitted(store)
    claimed(store, duration=NOTHING)
    with store.transaction() as tx:
        tx.jobs.request_cancel(job.job_id)
    assert claimed(store, "two").cancel_requested_at is not None


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_a_finished_job_is_never_claimed(store: JobStore, state: JobState) -> None:
    submitted(store, state=state)
    with store.transaction() as tx:
        assert tx.leases.claim("worker", LONG) is None


def test_renewing_moves_the_end_of_the_lease(store: JobStore) -> None:
    submitted(store)
    job = claimed(store, duration=NOTHING)
    with store.transaction() as tx:
        renewed = tx.leases.renew(lease_of(job), LONG)
        assert tx.leases.claim("other", LONG) is None
        assert renewed.lease_until_at is not None
        assert renewed.lease_until_at > tx.now()
    assert renewed.epoch == job.epoch


def test_renewing_shows_a_request_to_cancel(store: JobStore) -> None:
    submitted(store)
    job = claimed(store)
    with store.transaction() as tx:
        tx.jobs.request_cancel(job.job_id)
    with store.transaction() as tx:
        assert tx.leases.renew(lease_of(job), LONG).cancel_requested_at is not None


def test_a_lease_that_ran_out_is_good_until_somebody_takes_over(store: JobStore) -> None:
    submitted(store)
    job = claimed(store, duration=NOTHING)
    with store.transaction() as tx:
        tx.leases.check(lease_of(job))


def test_progress_is_recorded(store: JobStore) -> None:
    submitted(store)
    job = claimed(store)
    progress = Progress(total=10, done=5, computed=4, reused=1, commits=2)
    with store.transaction() as tx:
        tx.leases.record_progress(lease_of(job), progress)
    with store.transaction() as tx:
        assert tx.jobs.get(job.job_id).progress == progress


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_finishing_writes_how_the_job_ended(store: JobStore, state: JobState) -> None:
    submitted(store)
    job = claimed(store)
    ended = replace(
        job, state=state, progress=Progress(done=3), result={"version": 4}, failure=Failure("no", row_id=7)
    )
    with store.transaction() as tx:
        tx.leases.finish(lease_of(job), ended)
    with store.transaction() as tx:
        found = tx.jobs.get(job.job_id)
    assert (found.state, found.progress, found.result, found.failure) == (
        ended.state,
        ended.progress,
        ended.result,
        ended.failure,
    )
    assert found.finished_at is not None
    assert found.lease_until_at is None


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
def test_finishing_without_an_end_is_refused(store: JobStore, state: JobState) -> None:
    submitted(store)
    job = claimed(store)
    with store.transaction() as tx, pytest.raises(InvalidJobTransition):
        tx.leases.finish(lease_of(job), replace(job, state=state))


def test_a_released_job_can_be_claimed_at_once(store: JobStore) -> None:
    submitted(store)
    job = claimed(store)
    with store.transaction() as tx:
        tx.leases.release(lease_of(job))
    assert claimed(store, "two").epoch == job.epoch + 1


def test_releasing_a_lost_lease_is_fine_and_leaves_the_new_one_alone(store: JobStore) -> None:
    submitted(store)
    old = claimed(store, duration=NOTHING)
    new = claimed(store, "two")
    with store.transaction() as tx:
        tx.leases.release(lease_of(old))
    with store.transaction() as tx:
        assert tx.jobs.get(new.job_id) == new


Use = Callable[[JobTransaction, Lease, Job], object]
USES: dict[str, Use] = {
    "check": lambda tx, lease, job: tx.leases.check(lease),
    "renew": lambda tx, lease, job: tx.leases.renew(lease, LONG),
    "record_progress": lambda tx, lease, job: tx.leases.record_progress(lease, Progress(done=99)),
    "finish": lambda tx, lease, job: tx.leases.finish(lease, replace(job, state=JobState.DONE)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_after_a_take_over_the_old_lease_is_lost(store: JobStore, use: Use) -> None:
    submitted(store)
    old = claimed(store, duration=NOTHING)
    new = claimed(store, "two")
    with store.transaction() as tx, pytest.raises(LeaseLost):
        use(tx, lease_of(old), old)
    with store.transaction() as tx:
        assert tx.jobs.get(new.job_id) == new


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_after_the_end_the_lease_is_lost(store: JobStore, use: Use) -> None:
    submitted(store)
    job = claimed(store)
    with store.transaction() as tx:
        tx.leases.finish(lease_of(job), replace(job, state=JobState.FAILED))
    with store.transaction() as tx, pytest.raises(LeaseLost):
        use(tx, lease_of(job), job)


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_lease_on_a_missing_job_is_lost(store: JobStore, use: Use) -> None:
    job = submitted(store)
    with store.transaction() as tx, pytest.raises(LeaseLost):
        use(tx, Lease("nobody", 1, "worker"), job)
