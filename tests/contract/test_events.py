"""JobEvents, on every store."""

from __future__ import annotations

import pytest

from tests.contract.samples import submitted
from tests.contract.threads import together
from tidemill.jobs.errors import JobNotFound
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.ports import JobStore


def test_events_are_numbered_from_one_and_keep_their_order(store: JobStore) -> None:
    job, other = submitted(store), submitted(store)
    with store.transaction() as tx:
        tx.events.append(job.job_id, "planned", {"rows": 3, "why": ["new"]})
        tx.events.append(other.job_id, "planned", {})
        tx.events.append(job.job_id, "committed", {"version": 2})
        events = tx.events.list_after(job.job_id, 0)
    assert [(e.job_id, e.sequence, e.kind, e.data) for e in events] == [
        (job.job_id, 1, "planned", {"rows": 3, "why": ["new"]}),
        (job.job_id, 2, "committed", {"version": 2}),
    ]


def test_events_carry_the_time_of_the_database(store: JobStore) -> None:
    job = submitted(store)
    with store.transaction() as tx:
        before = tx.now()
        tx.events.append(job.job_id, "planned", {})
        (event,) = tx.events.list_after(job.job_id, 0)
        assert before <= event.at <= tx.now()


def test_only_events_after_the_given_one_are_listed(store: JobStore) -> None:
    job = submitted(store)
    with store.transaction() as tx:
        for kind in "abc":
            tx.events.append(job.job_id, kind, {})
        assert [event.kind for event in tx.events.list_after(job.job_id, 1)] == ["b", "c"]
        assert list(tx.events.list_after(job.job_id, 3)) == []


def test_an_event_of_a_missing_job_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(JobNotFound):
        tx.events.append("nobody", "planned", {})


def test_events_appended_at_the_same_time_all_get_a_number(store: JobStore) -> None:
    job = submitted(store)

    def append() -> None:
        with store.transaction() as tx:
            tx.events.append(job.job_id, "planned", {})

    together(*[append] * 8)
    with store.transaction() as tx:
        assert [event.sequence for event in tx.events.list_after(job.job_id, 0)] == list(range(1, 9))


def test_the_revision_of_a_job_changes_with_the_job_and_with_its_log(store: JobStore) -> None:
    job, other = submitted(store), submitted(store)
    job_ids = [job.job_id, other.job_id, "nobody"]
    with store.reading() as tx:
        first = tx.events.revisions(job_ids)
    assert first.keys() == {job.job_id, other.job_id}
    with store.transaction() as tx:
        tx.events.append(job.job_id, "planned", {})
    with store.reading() as tx:
        second = tx.events.revisions(job_ids)
    with store.transaction() as tx:
        tx.jobs.request_cancel(job.job_id)
    with store.reading() as tx:
        third = tx.events.revisions(job_ids)
    assert first[other.job_id] == second[other.job_id] == third[other.job_id]
    assert first[job.job_id] != second[job.job_id] != third[job.job_id]
    assert third[job.job_id].state is JobState.CANCELLED
