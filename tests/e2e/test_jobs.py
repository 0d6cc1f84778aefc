"""Jobs as their submitter sees them: progress, events, cancelling, conflicts, listings."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest

import tidemill
from tests.e2e.calls import Brake, CallLog
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled
from tests.e2e.waiting import eventually, settled
from tidemill.sdk.errors import Conflict, InvalidRequest, NotFound, WaitTimedOut

# Small batches, so that there is something to see between two of them.
STEPS: Any = {"checkpoint_size": 20, "max_checkpoint_size": 20}


def slow(calls: CallLog, brake: Brake) -> Any:
    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        brake.pause()
        return len(text)

    return size


@pytest.fixture
def docs(make: Maker, calls: CallLog, brake: Brake) -> tidemill.Table:
    """Six thousand rows with a slow column: fifteen seconds of work on two cores."""
    table = make.numbered(*[1500] * 4)
    table.add_column("size", slow(calls, brake))
    return table


def underway(table: tidemill.Table, calls: CallLog) -> tidemill.Job:
    job = table.backfill("size", **STEPS)
    eventually(calls.count, "the function is called")
    return job


def test_a_running_job_can_be_cancelled(docs: tidemill.Table, calls: CallLog, brake: Brake) -> None:
    version = docs.version
    job = underway(docs, calls)
    job.cancel()
    asked_at = time.monotonic()
    with pytest.raises(tidemill.JobCancelled):
        job.wait(TIMEOUT)
    assert time.monotonic() - asked_at < 30
    stopped_at = settled(calls.count, "the number of calls")
    assert stopped_at < 6000
    assert docs.version == version
    assert docs.count_rows("size IS NULL") == 6000
    brake.release()
    filled(docs, "size")
    assert docs.count_rows("size IS NOT NULL") == 6000


def test_a_queued_job_can_be_cancelled(
    docs: tidemill.Table, make: Maker, calls: CallLog, brake: Brake
) -> None:
    other = make.numbered(3, name="other")
    other.add_column("size", slow(calls, brake))
    running = underway(docs, calls)
    waiting = other.backfill("size")
    assert waiting.cancel().state == "CANCELLED"
    brake.release()
    running.wait(TIMEOUT)
    assert by_id(other, "size") == {0: None, 1: None, 2: None}


def test_cancelling_a_job_that_has_ended_changes_nothing(make: Maker, calls: CallLog, brake: Brake) -> None:
    brake.release()
    table = make.numbered(3)
    table.add_column("size", slow(calls, brake))
    job = filled(table, "size")
    with pytest.raises(Conflict):
        job.cancel()
    assert job.reload().state == "DONE"


def test_a_column_has_one_active_job(docs: tidemill.Table, calls: CallLog, brake: Brake) -> None:
    job = underway(docs, calls)
    with pytest.raises(Conflict, match=job.id):
        docs.backfill("size")
    brake.release()
    job.wait(TIMEOUT)


def test_the_same_key_gives_the_same_job(make: Maker, calls: CallLog, brake: Brake) -> None:
    brake.release()
    table = make.numbered(3)
    table.add_column("size", slow(calls, brake))
    key = str(uuid4())
    first = table.backfill("size", idempotency_key=key)
    again = table.backfill("size", idempotency_key=key)
    first.wait(TIMEOUT)
    later = table.backfill("size", idempotency_key=key)
    assert first.id == again.id == later.id
    assert later.state == "DONE"


def test_a_key_belongs_to_one_request(make: Maker, calls: CallLog, brake: Brake) -> None:
    brake.release()
    table = make.numbered(3)
    table.add_column("size", slow(calls, brake))
    key = str(uuid4())
    table.backfill("size", idempotency_key=key).wait(TIMEOUT)
    with pytest.raises(InvalidRequest, match="Idempotency-Key"):
        table.backfill("size", idempotency_key=key, num_frags=1)


def test_progress_grows_while_a_job_runs(docs: tidemill.Table, brake: Brake, calls: CallLog) -> None:
    job = underway(docs, calls)
    seen: list[int] = []

    def has_grown_twice() -> bool:
        done = job.reload().progress.done
        if not seen or done > seen[-1]:
            seen.append(done)
        return len(seen) >= 3

    eventually(has_grown_twice, "the progress grows")
    assert job.state == "RUNNING"
    assert 0 < job.progress.done < job.progress.total == 6000
    brake.release()
    job.wait(TIMEOUT)
    assert job.progress.done == job.progress.total == job.progress.computed == 6000


def test_waiting_can_end_before_the_job(docs: tidemill.Table, calls: CallLog, brake: Brake) -> None:
    job = underway(docs, calls)
    with pytest.raises(WaitTimedOut):
        job.wait(0.2)
    assert job.reload().state == "RUNNING"
    brake.release()
    job.wait(TIMEOUT)


def test_events_tell_what_happened(make: Maker, calls: CallLog, brake: Brake) -> None:
    brake.release()
    table = make.numbered(3)
    table.add_column("size", slow(calls, brake))
    job = filled(table, "size")
    events = job.events()
    assert [event.kind for event in events] == ["submitted", "started", "planned", "done"]
    assert events[2].data["rows"] == 3
    assert [event.sequence for event in job.events(after=events[1].sequence)] == [
        event.sequence for event in events[2:]
    ]


def test_jobs_are_listed_newest_first_page_by_page(
    make: Maker, calls: CallLog, brake: Brake, monkeypatch: pytest.MonkeyPatch
) -> None:
    brake.release()
    table = make.numbered(3)
    table.add_column("size", slow(calls, brake))
    made = [filled(table, "size").id for _ in range(5)]
    monkeypatch.setattr("tidemill.sdk.lake.MAX_PAGE", 2)
    assert [job.id for job in make.lake.jobs(limit=5)] == made[::-1]


def test_a_job_that_is_not_there_is_not_found(lake: tidemill.Lake) -> None:
    with pytest.raises(NotFound):
        lake.job(str(uuid4()))


def test_jobs_run_one_after_the_other_in_the_order_they_came(
    make: Maker, calls: CallLog, brake: Brake
) -> None:
    brake.release()
    jobs = []
    for name in ("first", "second", "third"):
        table = make.numbered(3, name=name)
        table.add_column("size", slow(calls, brake))
        jobs.append(table.backfill("size"))
    times = [job.wait(TIMEOUT).started_at for job in jobs]
    assert times == sorted(time for time in times if time is not None)
