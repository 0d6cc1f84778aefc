"""JobRepository, on every store."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.contract.samples import NOON, a_job, claimed, lease_of, submitted
from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.functions import Environment
from tidemill.jobs.errors import InvalidJobTransition, JobAlreadyActive, JobNotFound
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.jobs import Failure, JobFilter, JobKind, JobState, Progress
from tidemill.jobs.model.options import (
    BackfillRequest,
    JobRequest,
    PreviewRequest,
    RefreshRequest,
    RowSelection,
    VerifyRequest,
)
from tidemill.jobs.model.views import RefreshPolicy
from tidemill.jobs.ports import JobStore

ENVIRONMENT = Environment(("numpy==2.0", "pillow"), {"B": "1", "A": "\u00e4"})
REQUESTS = [
    (JobKind.BACKFILL, BackfillRequest("caption")),
    (
        JobKind.BACKFILL,
        BackfillRequest(
            "caption",
            branch="dev",
            where="a > 'x'",
            only=RowSelection.FAILED,
            read_version=3,
            concurrency=4,
            num_frags=5,
            commit_granularity=6,
            checkpoint_size=7,
            min_checkpoint_size=8,
            max_checkpoint_size=9,
            flush_interval_seconds=1.5,
            intra_applier_concurrency=2,
            task_size=1_000,
            cluster="gpu",
            environment=ENVIRONMENT,
            on_error=ErrorPolicy(ErrorAction.SKIP, 3, 0.5, ("TimeoutError", "OSError"), 100, 0.25),
        ),
    ),
    (JobKind.PREVIEW, PreviewRequest("caption", 5, "dev", "a > 1", "gpu", ENVIRONMENT)),
    (JobKind.PREVIEW, PreviewRequest("caption", 5)),
    (JobKind.REFRESH, RefreshRequest()),
    (
        JobKind.REFRESH,
        RefreshRequest(
            source_version=3,
            concurrency=2,
            intra_applier_concurrency=4,
            max_rows_per_fragment=9,
            source_task_size=100,
            output_limit=0,
            cluster="gpu",
            environment=ENVIRONMENT,
            policy=RefreshPolicy.FULL,
            on_error=ErrorPolicy(ErrorAction.SKIP, retry_on=("OSError",)),
        ),
    ),
    (JobKind.VERIFY, VerifyRequest()),
    (JobKind.VERIFY, VerifyRequest(rows=10, seed=7, cluster="gpu")),
]


def listed(store: JobStore, **wanted: Any) -> list[str]:
    with store.transaction() as tx:
        return [job.job_id for job in tx.jobs.list_recent(None, 10, JobFilter(**wanted))]


@pytest.mark.parametrize(("kind", "request_"), REQUESTS)
def test_a_job_comes_back_as_it_was_added(store: JobStore, kind: JobKind, request_: JobRequest) -> None:
    job = a_job(
        kind=kind,
        request=request_,
        idempotency_key="key",
        cluster="gpu",
        updated_at=NOON,
        progress=Progress(total=9, done=3),
        result={"rows": [1, 2]},
        failure=Failure("no", "ValueError", "Traceback", 2**40),
    )
    with store.transaction() as tx:
        tx.jobs.add(job)
        assert tx.jobs.get(job.job_id) == job


def test_a_second_active_job_of_a_subject_is_refused_naming_the_first(store: JobStore) -> None:
    first = submitted(store)
    with store.transaction() as tx, pytest.raises(JobAlreadyActive) as refused:
        tx.jobs.add(a_job(subject_id=first.subject_id))
    assert refused.value.job_id == first.job_id


def test_a_running_job_is_active_too(store: JobStore) -> None:
    first = submitted(store)
    claimed(store)
    with store.transaction() as tx, pytest.raises(JobAlreadyActive):
        tx.jobs.add(a_job(subject_id=first.subject_id))


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_a_finished_job_makes_room_for_the_next(store: JobStore, state: JobState) -> None:
    first = submitted(store, state=state)
    second = submitted(store, subject_id=first.subject_id)
    with store.transaction() as tx:
        assert tx.jobs.get(second.job_id).state is JobState.QUEUED


def test_an_idempotency_key_used_for_another_subject_is_a_conflict(store: JobStore) -> None:
    submitted(store, idempotency_key="key")
    with store.transaction() as tx, pytest.raises(ConcurrentModification):
        tx.jobs.add(a_job(idempotency_key="key"))


def test_an_idempotency_key_belongs_to_its_submitter(store: JobStore) -> None:
    first = submitted(store, idempotency_key="key", submitted_by="ada")
    second = submitted(store, idempotency_key="key", submitted_by="bob")
    with store.transaction() as tx:
        assert tx.jobs.find_by_key("ada", "key") == tx.jobs.get(first.job_id)
        assert tx.jobs.find_by_key("bob", "key") == tx.jobs.get(second.job_id)
        assert tx.jobs.find_by_key("eve", "key") is None


def test_jobs_without_a_key_do_not_collide(store: JobStore) -> None:
    first, second = submitted(store), submitted(store)
    with store.transaction() as tx:
        assert tx.jobs.get(first.job_id) != tx.jobs.get(second.job_id)


def test_getting_a_missing_job_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(JobNotFound):
        tx.jobs.get(str(uuid4()))


def test_recent_jobs_are_listed_newest_first_in_pages(store: JobStore) -> None:
    newest_first = [submitted(store).job_id for _ in range(5)][::-1]
    with store.transaction() as tx:
        first = [job.job_id for job in tx.jobs.list_recent(None, 3)]
        second = [job.job_id for job in tx.jobs.list_recent(first[-1], 3)]
    assert first + second == newest_first


def test_recent_jobs_are_listed_by_what_they_are_about(store: JobStore) -> None:
    table_id, subject_id = uuid4(), uuid4()
    done = submitted(store, table_id=table_id, subject_id=subject_id, state=JobState.DONE)
    failed = submitted(store, table_id=table_id, subject_id=subject_id, state=JobState.FAILED)
    preview = submitted(store, table_id=table_id, kind=JobKind.PREVIEW, request=PreviewRequest("caption", 5))
    other = submitted(store, state=JobState.DONE)
    assert listed(store) == [other.job_id, preview.job_id, failed.job_id, done.job_id]
    assert listed(store, table_id=table_id) == [preview.job_id, failed.job_id, done.job_id]
    assert listed(store, subject_id=subject_id) == [failed.job_id, done.job_id]
    assert listed(store, kind=JobKind.PREVIEW) == [preview.job_id]
    assert listed(store, state=JobState.DONE) == [other.job_id, done.job_id]
    assert listed(store, table_id=table_id, state=JobState.DONE) == [done.job_id]
    assert listed(store, table_id=uuid4()) == []


def test_a_filtered_list_has_pages_too(store: JobStore) -> None:
    table_id = uuid4()
    wanted = []
    for _ in range(4):
        wanted.append(submitted(store, table_id=table_id).job_id)
        submitted(store)
    with store.transaction() as tx:
        page = [job.job_id for job in tx.jobs.list_recent(wanted[3], 2, JobFilter(table_id))]
    assert page == [wanted[2], wanted[1]]


def test_cancelling_a_queued_job_ends_it_at_once(store: JobStore) -> None:
    job = submitted(store)
    with store.transaction() as tx:
        cancelled = tx.jobs.request_cancel(job.job_id)
        assert cancelled == tx.jobs.get(job.job_id)
    assert cancelled.state is JobState.CANCELLED
    assert cancelled.cancel_requested_at is not None
    assert cancelled.finished_at is not None


def test_a_job_cancelled_in_the_queue_is_never_claimed(store: JobStore) -> None:
    job = submitted(store)
    with store.transaction() as tx:
        tx.jobs.request_cancel(job.job_id)
    with store.transaction() as tx:
        assert tx.leases.claim("worker", duration=NOON - NOON) is None


def test_cancelling_a_running_job_marks_it_for_its_worker(store: JobStore) -> None:
    job = submitted(store)
    lease = lease_of(claimed(store))
    with store.transaction() as tx:
        marked = tx.jobs.request_cancel(job.job_id)
        assert marked.state is JobState.RUNNING
        assert marked.cancel_requested_at is not None
        tx.leases.check(lease)


def test_cancelling_twice_keeps_the_first_moment(store: JobStore) -> None:
    job = submitted(store)
    claimed(store)
    with store.transaction() as tx:
        first = tx.jobs.request_cancel(job.job_id)
    with store.transaction() as tx:
        assert tx.jobs.request_cancel(job.job_id).cancel_requested_at == first.cancel_requested_at


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_cancelling_a_finished_job_is_refused(store: JobStore, state: JobState) -> None:
    job = submitted(store, state=state)
    with store.transaction() as tx, pytest.raises(InvalidJobTransition):
        tx.jobs.request_cancel(job.job_id)


def test_cancelling_a_missing_job_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(JobNotFound):
        tx.jobs.request_cancel("nobody")
