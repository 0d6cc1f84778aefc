"""Refreshes killed half-way: readers see the old rows or the new ones, and nothing is there twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

import tidemill
from tests.conftest import start_server
from tests.e2e.calls import Brake, CallLog
from tests.e2e.processes import descendants
from tests.e2e.tables import Maker, refreshed
from tests.e2e.test_kills import SMALL_SPARK, TAKE_OVER_SECONDS, Victim, java_of
from tests.e2e.view_kinds import Shown, Total, Word, created, rows_of, texts, verified
from tests.e2e.waiting import eventually
from tidemill.sdk.errors import Conflict, InvalidRequest

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes through /proc")

ROWS: Final = 400
PLACES: Final = 40
# A checkpoint follows half a second in the function, at the end of a batch; these take up to 0.64 seconds.
LOST: Final = 64 + 50
# Each row of the statement's tables takes a while, so that it can be killed on its way.
HEAVY: Final = "max(length(sha2(repeat(text, 5000), 512)))"


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    root = tmp_path_factory.mktemp("view-victim")
    victim = Victim(root, start_server(root, **SMALL_SPARK))
    yield victim
    if victim.running.process.poll() is None:
        victim.running.stop()


@pytest.fixture
def lake(victim: Victim) -> Iterator[tidemill.Lake]:
    with victim.connect() as connected:
        yield connected


@pytest.fixture
def brake(tmp_path: Path) -> Iterator[Brake]:
    brake = Brake(str(tmp_path / "brake"), seconds=0.01)
    yield brake
    brake.release()


@pytest.fixture
def source(make: Maker) -> tidemill.Table:
    rows = texts(*(f"text {number}" for number in range(ROWS)))
    placed = [{**row, "place": f"place {row['id'] % PLACES}"} for row in rows]
    return make.table(placed[: ROWS // 2], placed[ROWS // 2 :])


def splitter(calls: CallLog, brake: Brake) -> Any:
    @tidemill.chunker
    def words(text: str) -> Iterator[Word]:
        calls.note(text)
        brake.pause()
        for word in text.split():
            yield Word(word)

    return words


def adder(calls: CallLog, brake: Brake) -> Any:
    @tidemill.udtf
    def totals(source: Any) -> Iterator[Total]:
        rows = source.to_list()
        calls.note(rows[0]["place"])
        for _ in range(10):
            brake.pause()
        yield Total(rows[0]["place"], len(rows), sum(len(row["text"]) for row in rows))

    return totals


@dataclass
class Refreshed:
    """A view whose source has changed, and what it should show before and after."""

    view: tidemill.View
    columns: tuple[str, ...]
    old: Shown
    new: Shown

    def watch(self, job: tidemill.Job) -> None:
        """Looks at the view until the job has ended, which is DONE; never sees anything half-way."""

        def has_ended() -> bool:
            assert self.shown() in (self.old, self.new)
            return job.reload().state.is_final

        eventually(has_ended, "the refresh ends", TAKE_OVER_SECONDS)
        assert job.state == "DONE"

    def check(self) -> None:
        assert self.shown() == self.new
        assert verified(self.view).is_same
        assert refreshed(self.view).progress.commits == 0

    def shown(self) -> Shown:
        return rows_of(self.view, *self.columns)


def changed(source: tidemill.Table) -> list[dict[str, Any]]:
    """Makes every row another, takes some away and adds some; the rows that there are then."""
    source.to_lance().update({"text": "concat(text, ' again')"})
    source.to_lance().delete("id < 10")
    source.add([{"id": ROWS, "place": "place 3", "text": "the last one"}])
    rows: list[dict[str, Any]] = source.query(columns=["id", "place", "text"]).to_pylist()
    return rows


@pytest.fixture
def words(make: Maker, source: tidemill.Table, calls: CallLog, brake: Brake) -> Refreshed:
    view = created(make, source.select("id").chunk(splitter(calls, brake)))
    refreshed(view)
    columns = ("id", "__child_index", "word")
    old = rows_of(view, *columns)
    new = [
        (row["id"], number, word)
        for row in changed(source)
        for number, word in enumerate(row["text"].split())
    ]
    return Refreshed(view, columns, old, sorted(new, key=repr))


@pytest.fixture
def totals(make: Maker, source: tidemill.Table, calls: CallLog, brake: Brake) -> Refreshed:
    view = created(make, adder(calls, brake).over(source, partition_by="place"))
    refreshed(view)
    columns = ("place", "texts", "letters")
    return Refreshed(view, columns, rows_of(view, *columns), totals_of(changed(source)))


@pytest.fixture
def groups(make: Maker, source: tidemill.Table) -> Refreshed:
    statement = (
        f"SELECT place, count(*) AS texts, sum(length(text)) AS letters, {HEAVY} AS heavy "
        f"FROM {source.name} GROUP BY place"
    )
    view = created(make, statement)
    refreshed(view)
    columns = ("place", "texts", "letters")
    return Refreshed(view, columns, rows_of(view, *columns), totals_of(changed(source)))


def totals_of(rows: list[dict[str, Any]]) -> Shown:
    found = {row["place"]: [r["text"] for r in rows if r["place"] == row["place"]] for row in rows}
    return sorted(((place, len(all_), sum(map(len, all_))) for place, all_ in found.items()), key=repr)


def half_done(refresh: Refreshed, calls: CallLog, brake: Brake, half: int) -> tidemill.Job:
    calls.take()
    brake.put_on()
    job = refresh.view.refresh()
    eventually(lambda: calls.count() > half, "half of it is made", TAKE_OVER_SECONDS)
    assert refresh.shown() == refresh.old
    return job


def planned_only(refresh: Refreshed) -> tidemill.Job:
    job = refresh.view.refresh()
    eventually(lambda: any(event.kind == "planned" for event in job.events()), "it is planned", 60)
    return job


def kill_worker(victim: Victim) -> None:
    """With everything that it has started: that goes with it."""
    worker = victim.worker()
    left = descendants(worker.pid)
    worker.send(signal.SIGKILL)
    eventually(lambda: not any(process.is_alive for process in left), "its Spark ends with it", 20)


def test_a_view_has_one_refresh_at_a_time(words: Refreshed, calls: CallLog, brake: Brake) -> None:
    key = str(uuid4())
    brake.put_on()
    job = words.view.refresh(idempotency_key=key)
    with pytest.raises(Conflict, match=job.id):
        words.view.refresh()
    assert words.view.refresh(idempotency_key=key).id == job.id
    assert any(job.id in conflict for conflict in words.view.explain().conflicts)
    with pytest.raises(InvalidRequest, match="another request"):
        words.view.refresh(idempotency_key=key, full=True)
    brake.release()
    words.watch(job)
    assert words.view.refresh(idempotency_key=key).id == job.id
    words.check()


def test_a_chunker_whose_worker_is_killed_is_finished_by_the_next(
    victim: Victim, words: Refreshed, calls: CallLog, brake: Brake
) -> None:
    job = half_done(words, calls, brake, ROWS // 2)
    kill_worker(victim)
    brake.release()
    words.watch(job)
    # Ten rows are gone and one is new; at 10 ms a row, each of two tasks loses what it had not checkpointed.
    assert ROWS - 9 <= calls.count() <= ROWS - 9 + 2 * LOST
    assert len(set(calls.lines())) == ROWS - 9
    assert job.progress.computed + job.progress.reused == ROWS - 9
    words.check()
    assert "taken_over" in [event.kind for event in job.events()]


def test_a_table_function_whose_spark_is_killed_is_called_again(
    victim: Victim, totals: Refreshed, calls: CallLog, brake: Brake
) -> None:
    job = half_done(totals, calls, brake, PLACES // 2)
    java_of(victim.worker()).send(signal.SIGKILL)
    brake.release()
    totals.watch(job)
    # A call takes 0.1 seconds, and a checkpoint follows after five of them.
    assert calls.count() <= PLACES + 4 * 6
    totals.check()


@pytest.mark.deep
def test_a_statement_whose_worker_is_killed_is_run_again(victim: Victim, groups: Refreshed) -> None:
    job = planned_only(groups)
    kill_worker(victim)
    assert job.reload().state == "RUNNING"
    assert groups.shown() == groups.old
    groups.watch(job)
    groups.check()


@pytest.mark.deep
def test_a_table_function_whose_tasks_are_killed_is_called_again(
    victim: Victim, totals: Refreshed, calls: CallLog, brake: Brake
) -> None:
    job = half_done(totals, calls, brake, PLACES // 2)
    for process in descendants(victim.worker().pid):
        if process.is_task:
            process.send(signal.SIGKILL)
    brake.release()
    totals.watch(job)
    assert calls.count() <= PLACES + 4 * 6
    totals.check()


@pytest.mark.deep
def test_a_chunker_whose_server_is_killed_is_finished_by_its_successor(
    victim: Victim, words: Refreshed, calls: CallLog, brake: Brake
) -> None:
    job = half_done(words, calls, brake, ROWS // 2)
    family = descendants(victim.pid)
    victim.kill()
    eventually(lambda: not any(process.is_alive for process in family), "nobody is left", 20)
    brake.release()
    victim.start()
    with victim.connect() as lake:
        again = Refreshed(lake.view(words.view.name), words.columns, words.old, words.new)
        again.watch(lake.job(job.id))
        assert calls.count() <= ROWS - 9 + 2 * LOST
        again.check()
