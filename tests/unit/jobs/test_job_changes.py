"""One poll wakes everybody who waits for a job."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event

import pytest

from tidemill.errors import Unavailable
from tidemill.jobs.model.jobs import JobRevision, JobState
from tidemill.jobs.service.job_changes import (
    INTERVAL_SHARE,
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
    JobChanges,
)

WAITERS = 30
PATIENCE_SECONDS = 30
RUNNING = JobRevision(JobState.RUNNING, 1, datetime(2026, 1, 2, tzinfo=UTC))
DONE = replace(RUNNING, state=JobState.DONE)


class Revisions:
    """What the database says, and how often it was asked."""

    def __init__(self) -> None:
        self.revisions = {f"job-{number}": RUNNING for number in range(WAITERS)}
        self.fault: Exception | None = None
        self.reads = 0

    def read(self, job_ids: Collection[str]) -> Mapping[str, JobRevision]:
        self.reads += 1
        if self.fault is not None:
            raise self.fault
        return {job_id: found for job_id, found in list(self.revisions.items()) if job_id in job_ids}


@pytest.fixture
def database() -> Revisions:
    return Revisions()


@pytest.fixture
def changes(database: Revisions) -> JobChanges:
    return JobChanges(database.read)


def test_many_waiters_cost_no_more_reads_than_one(database: Revisions, changes: JobChanges) -> None:
    started = time.monotonic()
    with ThreadPoolExecutor(WAITERS) as pool:
        for job_id in database.revisions:
            pool.submit(changes.wait_for_end, job_id, 1.0)
    elapsed = time.monotonic() - started
    # Each arrival reads at once, and the poll goes on meanwhile.
    assert database.reads <= WAITERS + elapsed / SHORTEST_INTERVAL + 1


def test_the_longer_somebody_waits_the_fewer_the_reads(database: Revisions, changes: JobChanges) -> None:
    with changes.notifying("job-1", lambda _: None):
        time.sleep(LONGEST_INTERVAL / INTERVAL_SHARE / 4)
        before, started = database.reads, time.monotonic()
        time.sleep(0.5)
        assert database.reads - before < (time.monotonic() - started) / SHORTEST_INTERVAL / 2


def test_the_end_of_a_job_wakes_only_those_who_wait_for_it(database: Revisions, changes: JobChanges) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(changes.wait_for_end, "job-1", PATIENCE_SECONDS)
        second = pool.submit(changes.wait_for_end, "job-2", PATIENCE_SECONDS)
        database.revisions["job-1"] = DONE
        first.result(PATIENCE_SECONDS / 2)
        assert not second.done()
        database.revisions["job-2"] = DONE
        second.result(PATIENCE_SECONDS / 2)


def test_other_changes_of_a_job_do_not_end_the_wait_for_its_end(
    database: Revisions, changes: JobChanges
) -> None:
    database.revisions["job-1"] = replace(RUNNING, event_count=2)
    started = time.monotonic()
    changes.wait_for_end("job-1", 0.1)
    assert time.monotonic() - started >= 0.1


def test_every_change_is_notified_once(database: Revisions, changes: JobChanges) -> None:
    heard: list[JobRevision | None] = []
    was_heard = Event()

    def wake(revision: JobRevision | None) -> None:
        heard.append(revision)
        was_heard.set()

    expected = [RUNNING, replace(RUNNING, event_count=2), DONE]
    with changes.notifying("job-1", wake):
        for revision in expected:
            database.revisions["job-1"] = revision
            assert was_heard.wait(PATIENCE_SECONDS)
            was_heard.clear()
        reads = database.reads
        while database.reads < reads + 3:
            time.sleep(SHORTEST_INTERVAL)
    assert heard == expected


@pytest.mark.parametrize("fault", [None, Unavailable("busy")])
def test_whoever_waits_for_a_job_that_cannot_be_read_looks_for_themselves(
    database: Revisions, changes: JobChanges, fault: Exception | None
) -> None:
    database.fault = fault
    started = time.monotonic()
    changes.wait_for_end("gone", PATIENCE_SECONDS)
    assert time.monotonic() - started < PATIENCE_SECONDS / 2


def test_nobody_polls_when_nobody_waits(database: Revisions, changes: JobChanges) -> None:
    changes.wait_for_end("job-1", 0.05)
    time.sleep(2 * LONGEST_INTERVAL)
    reads = database.reads
    time.sleep(LONGEST_INTERVAL)
    assert database.reads == reads
    database.revisions["job-1"] = DONE
    started = time.monotonic()
    changes.wait_for_end("job-1", PATIENCE_SECONDS)
    assert time.monotonic() - started < PATIENCE_SECONDS / 2
