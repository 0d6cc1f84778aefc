"""Jobs under way: watched, paused, resumed, cancelled, found again, and foretold by explain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.calls import Brake, CallLog
from tests.e2e.tables import TIMEOUT, Maker, filled, numbered
from tests.e2e.waiting import eventually, settled
from tidemill.sdk.errors import Conflict, InvalidRequest, NotFound

STEP: Final = 20
SMALL_STEPS: Final[dict[str, Any]] = {
    "min_checkpoint_size": STEP,
    "max_checkpoint_size": STEP,
    "batch_checkpoint_flush_interval_seconds": 0,
}
TASKS: Final = 2
STOP_SECONDS: Final = 30.0


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@pytest.fixture
def brake(tmp_path: Path) -> Iterator[Brake]:
    brake = Brake(str(tmp_path / "brake"), seconds=0.02)
    brake.put_on()
    yield brake
    brake.release()


@pytest.fixture
def docs(make: Maker, calls: CallLog, brake: Brake) -> tidemill.Table:
    """Two fragments of 300 rows, and a column that takes its time while the brake is on."""

    @tidemill.udf
    def slow(id: int) -> int:
        calls.note(id)
        brake.pause()
        return id

    table = make.numbered(300, 300)
    table.add_column("slow", slow)
    table.add_column("size", size)
    return table


def begun(docs: tidemill.Table, calls: CallLog, rows: int = 1) -> tidemill.Job:
    """A job that has computed at least so many rows and goes on slowly."""
    job = docs.backfill("slow", concurrency=TASKS, **SMALL_STEPS)
    eventually(lambda: calls.count() >= rows, "the job is under way", TIMEOUT)
    return job


def paused(job: tidemill.Job) -> tidemill.Job:
    job.pause()
    eventually(lambda: job.reload().state == "PAUSED", "the job is paused")
    return job


def planned(job: tidemill.Job) -> dict[str, Any]:
    """What the job said it would do when it began."""
    return next(dict(event.data) for event in job.events() if event.kind == "planned")


def test_a_watcher_sees_progress_and_the_end(docs: tidemill.Table, calls: CallLog, brake: Brake) -> None:
    job = begun(docs, calls)
    seen = []
    for snapshot in job.watch():
        seen.append((snapshot.state, snapshot.progress.done))
        if snapshot.progress.done:
            brake.release()
    done = [count for _, count in seen]
    assert done == sorted(done)
    assert any(0 < count < 600 for count in done)
    assert seen[-1] == ("DONE", 600)
    assert job.state == "DONE"


def test_a_watcher_is_told_what_happens(docs: tidemill.Table, brake: Brake) -> None:
    brake.release()
    kinds: list[str] = []
    list(docs.backfill("slow").watch(lambda event: kinds.append(event.kind)))
    assert kinds[0] == "submitted"
    assert "planned" in kinds


def test_watching_a_job_that_has_ended_shows_how(docs: tidemill.Table) -> None:
    job = filled(docs, "size")
    assert [snapshot.state for snapshot in job.watch()] == ["DONE"]


def test_a_job_that_is_paused_calls_nothing(docs: tidemill.Table, calls: CallLog) -> None:
    job = paused(begun(docs, calls))
    settled(calls.count, "the number of calls", quiet=0.5, timeout=STOP_SECONDS)
    assert docs.count_rows("slow IS NOT NULL") == 0
    job.cancel()


def test_a_job_that_is_resumed_goes_on_from_its_checkpoints(
    docs: tidemill.Table, calls: CallLog, brake: Brake
) -> None:
    job = paused(begun(docs, calls, rows=10 * STEP))
    # Tasks hear of it a moment later; until then they go on, and would beside those of the resumed job.
    settled(calls.count, "the number of calls")
    brake.release()
    job.resume().wait(TIMEOUT)
    assert docs.count_rows("slow = id") == 600
    # What a task has in hand when it stops is lost: the batch it is at.
    assert 600 <= calls.count() <= 600 + TASKS * STEP
    assert job.progress.reused >= 10 * STEP - TASKS * STEP
    assert job.progress.reused + job.progress.computed == 600


def test_a_job_that_waits_for_a_worker_is_paused_at_once(
    docs: tidemill.Table, calls: CallLog, brake: Brake
) -> None:
    first = begun(docs, calls)
    waiting = docs.backfill("size")
    assert waiting.pause().state == "PAUSED"
    brake.release()
    first.wait(TIMEOUT)
    assert waiting.reload().state == "PAUSED"
    assert waiting.resume().wait(TIMEOUT).state == "DONE"


def test_a_paused_job_can_be_cancelled(docs: tidemill.Table, calls: CallLog) -> None:
    job = paused(begun(docs, calls))
    assert job.cancel().state == "CANCELLED"


def test_a_job_that_has_ended_cannot_be_paused(docs: tidemill.Table) -> None:
    with pytest.raises(tidemill.TidemillRequestError, match="DONE"):
        filled(docs, "size").pause()


def test_a_cancelled_job_stops_within_seconds(docs: tidemill.Table, calls: CallLog) -> None:
    job = begun(docs, calls)
    asked_at = time.monotonic()
    job.cancel()
    eventually(lambda: job.reload().state == "CANCELLED", "the job is cancelled", STOP_SECONDS)
    assert time.monotonic() - asked_at < STOP_SECONDS
    count = settled(calls.count, "the number of calls", quiet=0.5, timeout=STOP_SECONDS)
    assert count < 600
    assert docs.count_rows("slow IS NOT NULL") == 0


def test_a_call_that_never_ends_does_not_keep_a_cancelled_job(
    make: Maker, calls: CallLog, brake: Brake
) -> None:
    @tidemill.udf
    def endless(id: int) -> int:
        import time

        calls.note(id)
        time.sleep(600)
        return id

    table = make.numbered(2)
    table.add_column("endless", endless)
    job = table.backfill("endless")
    eventually(calls.count, "the function is called", TIMEOUT)
    job.cancel()
    eventually(lambda: job.reload().state == "CANCELLED", "the job is cancelled", STOP_SECONDS)


def test_whoever_waits_for_a_cancelled_job_is_told(docs: tidemill.Table, calls: CallLog) -> None:
    job = begun(docs, calls).cancel()
    with pytest.raises(tidemill.JobCancelled):
        job.wait(TIMEOUT)


def test_a_column_can_be_filled_after_its_job_was_cancelled(
    docs: tidemill.Table, calls: CallLog, brake: Brake
) -> None:
    job = begun(docs, calls, rows=4 * STEP).cancel()
    eventually(lambda: job.reload().state.is_final, "the job has ended")
    brake.release()
    again = filled(docs, "slow")
    assert docs.count_rows("slow = id") == 600
    assert again.progress.reused > 0


@pytest.fixture
def history(docs: tidemill.Table, make: Maker) -> list[str]:
    """The ids of the jobs of a table, newest first: a preview, a backfill that failed, three that did not."""

    @tidemill.udf
    def broken(id: int) -> int:
        raise ValueError("never")

    docs.add_column("broken", broken)
    ids = [filled(docs, "size", where=f"id = {number}").id for number in range(3)]
    with pytest.raises(tidemill.JobFailed) as failed:
        filled(docs, "broken")
    ids.append(failed.value.job.id)
    ids.append(docs.preview("size", rows=1, timeout=TIMEOUT).job_id)
    return ids[::-1]


def test_jobs_are_found_by_table_kind_and_state(
    docs: tidemill.Table, lake: tidemill.Lake, history: list[str]
) -> None:
    def found(**wanted: str) -> list[str]:
        return [job.id for job in lake.jobs(table=docs.name, **wanted)]  # type: ignore[arg-type]  # limit is an int

    assert found() == history
    assert found(kind="preview") == history[:1]
    assert found(state="FAILED") == history[1:2]
    assert found(kind="backfill", state="DONE") == history[2:]
    assert found(state="RUNNING") == []


def test_the_latest_jobs_come_first(docs: tidemill.Table, lake: tidemill.Lake, history: list[str]) -> None:
    assert [job.id for job in lake.jobs(table=docs.name, limit=2)] == history[:2]


def test_the_history_of_jobs_comes_in_pages(
    docs: tidemill.Table, server: RunningServer, history: list[str]
) -> None:
    def page(**wanted: str) -> dict[str, Any]:
        answer = httpx.get(f"{server.url}/api/v1/jobs", params={"table": docs.name, **wanted})
        return dict(answer.json())

    first = page(limit="2")
    second = page(limit="9", page_token=first["page_token"])
    assert [job["job_id"] for job in first["jobs"] + second["jobs"]] == history
    assert "page_token" not in second


@pytest.mark.parametrize("wanted", [{"kind": "wish"}, {"state": "HAPPY"}], ids=str)
def test_a_kind_or_state_that_does_not_exist_is_refused(lake: tidemill.Lake, wanted: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(wanted))):
        lake.jobs(**wanted)  # type: ignore[arg-type]  # limit is an int


def test_a_job_that_does_not_exist_is_not_found(lake: tidemill.Lake) -> None:
    with pytest.raises(NotFound):
        lake.job("nothing")


def test_the_same_key_gives_the_same_job(docs: tidemill.Table) -> None:
    first = docs.backfill("size", idempotency_key="once")
    assert docs.backfill("size", idempotency_key="once").id == first.id
    first.wait(TIMEOUT)
    assert docs.backfill("size", idempotency_key="once").id == first.id


def test_the_same_key_for_another_request_is_refused(docs: tidemill.Table) -> None:
    filled(docs, "size", idempotency_key="another")
    with pytest.raises(InvalidRequest, match="Idempotency-Key"):
        docs.backfill("size", where="id = 1", idempotency_key="another")


def test_a_second_job_for_the_same_column_is_refused_while_one_is_active(
    docs: tidemill.Table, calls: CallLog
) -> None:
    job = begun(docs, calls)
    with pytest.raises(Conflict, match=job.id):
        docs.backfill("slow")
    job.cancel()


PLANNED: Final = ("rows", "rows_reused", "tasks", "fragments", "commits", "read_version", "reason")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"where": "id % 3 = 0"},
        {"task_size": 100},
        {"commit_granularity": 1},
        {"num_frags": 1, "concurrency": 1},
        {"only": "missing"},
    ],
    ids=str,
)
def test_the_job_does_what_explain_said(docs: tidemill.Table, options: dict[str, Any]) -> None:
    filled(docs, "size", where="id < 100")
    docs.add(numbered(600, 10))
    docs.to_lance().update({"text": "'changed'"}, where="id = 50")
    said = docs.explain("size", **options)
    job = filled(docs, "size", **options)
    assert {name: getattr(said, name) for name in PLANNED} == {name: planned(job)[name] for name in PLANNED}
    assert (job.progress.computed, job.progress.commits) == (said.rows, said.commits)


def test_the_time_a_job_will_take_is_known_after_the_first(docs: tidemill.Table) -> None:
    assert docs.explain("size").expected_seconds is None
    filled(docs, "size", where="id < 300")
    expected = docs.explain("size").expected_seconds
    assert expected is not None
    assert 0 < expected < 60
    filled(docs, "size")
    assert docs.explain("size").expected_seconds == 0


def test_explain_foresees_the_job_that_is_active(docs: tidemill.Table, calls: CallLog) -> None:
    assert docs.explain("slow").conflicts == ()
    job = begun(docs, calls)
    [same] = docs.explain("slow").conflicts
    [other] = docs.explain("size").conflicts
    assert f"job {job.id} is filling this column" in same
    assert f"job {job.id} works on column 'slow'" in other
    job.cancel()
