"""Every option of a backfill does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.asking import asked
from tests.e2e.calls import CallLog
from tests.e2e.meetings import Gate, Meeting
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled, numbered
from tests.e2e.waiting import eventually
from tidemill.sdk.errors import InvalidRequest


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@tidemill.udf
def size_of_most(id: int, text: str) -> int:
    if id == 2:
        raise ValueError("no size")
    return len(text)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Shut until opened; opened in the end, so that no call waits for good."""
    gate = Gate(str(tmp_path / "gate"))
    gate.shut()
    yield gate
    gate.open()


def with_size(table: tidemill.Table) -> tidemill.Table:
    table.add_column("size", size)
    return table


def measured(calls: CallLog, seconds_per_row: float = 0.0) -> Any:
    """An Arrow function that notes how many rows it gets and takes so long for each."""

    @tidemill.udf(output=pa.int64())
    def same(id: pa.Array) -> pa.Array:
        import time

        calls.note(len(id))
        time.sleep(len(id) * seconds_per_row)
        return id

    return same


def batches(calls: CallLog) -> list[int]:
    """How many rows each call got, one after the other."""
    return [int(line) for line in calls.lines()]


def meeting(tmp_path: Path, size: int) -> Any:
    """A function whose calls return once so many processes are in it, and say whether they came."""
    place = Meeting(str(tmp_path / "meeting"), size)

    @tidemill.udf
    def met(id: int) -> bool:
        return place.attend()

    return met


def planned(job: tidemill.Job) -> dict[str, Any]:
    """What the job said it would do when it began."""
    return next(dict(event.data) for event in job.events() if event.kind == "planned")


def test_where_says_which_rows_are_computed(make: Maker) -> None:
    table = with_size(make.numbered(4, 4))
    filled(table, "size", where="id >= 2 AND id < 5")
    assert [number for number, value in by_id(table, "size").items() if value is not None] == [2, 3, 4]


def test_as_many_tasks_as_the_concurrency_run_at_a_time(make: Maker, tmp_path: Path) -> None:
    table = make.numbered(2, 2)
    table.add_column("met", meeting(tmp_path, 2))
    filled(table, "met", concurrency=2)
    assert set(by_id(table, "met").values()) == {True}


def test_a_concurrency_of_one_uses_one_process_for_all_fragments(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def process(id: int) -> int:
        import os

        return os.getpid()

    table = make.numbered(2, 2, 2)
    table.add_column("process", process)
    filled(table, "process", concurrency=1)
    assert len(set(by_id(table, "process").values())) == 1


def test_calls_inside_one_task_overlap_as_often_as_asked(make: Maker, tmp_path: Path) -> None:
    table = make.numbered(6)
    table.add_column("met", meeting(tmp_path, 3))
    job = filled(table, "met", concurrency=1, intra_applier_concurrency=3)
    assert planned(job)["tasks"] == 1
    assert set(by_id(table, "met").values()) == {True}


def test_values_of_overlapping_calls_stay_with_their_rows(make: Maker) -> None:
    @tidemill.udf
    def twice(id: int) -> int:
        return 2 * id

    table = make.numbered(103)
    table.add_column("twice", twice)
    filled(table, "twice", intra_applier_concurrency=4, checkpoint_size=10)
    assert by_id(table, "twice") == {number: 2 * number for number in range(103)}


def test_batches_have_one_size_where_the_bounds_are_the_same(make: Maker, calls: CallLog) -> None:
    table = make.numbered(25)
    table.add_column("same", measured(calls))
    filled(table, "same", min_checkpoint_size=10, max_checkpoint_size=10)
    assert batches(calls) == [10, 10, 5]


def test_batches_of_a_fast_function_grow_up_to_the_largest(make: Maker, calls: CallLog) -> None:
    table = make.numbered(300)
    table.add_column("same", measured(calls))
    filled(table, "same", concurrency=1, checkpoint_size=4, max_checkpoint_size=64)
    assert batches(calls)[0] == 4
    assert max(batches(calls)) == 64
    assert sum(batches(calls)) == 300


def test_batches_of_a_slow_function_shrink_toward_the_target_time(make: Maker, calls: CallLog) -> None:
    table = make.numbered(60)
    table.add_column("same", measured(calls, seconds_per_row=0.02))
    filled(table, "same", concurrency=1, checkpoint_size=40)
    first, *rest = batches(calls)
    assert first == 40
    assert max(rest) <= 13


def test_batches_of_a_slow_function_do_not_shrink_below_the_smallest(make: Maker, calls: CallLog) -> None:
    table = make.numbered(24)
    table.add_column("same", measured(calls, seconds_per_row=0.1))
    filled(table, "same", concurrency=1, checkpoint_size=12, min_checkpoint_size=6)
    assert batches(calls) == [12, 6, 6]


def checkpoints(server: RunningServer) -> set[Path]:
    return set((server.root / "jobs" / "checkpoints").rglob("*.arrow"))


def held(make: Maker, calls: CallLog, gate: Gate) -> tidemill.Table:
    """Thirty rows and a function that waits at the gate with those from the 20th on."""

    @tidemill.udf(output=pa.int64())
    def waiting(id: pa.Array) -> pa.Array:
        calls.note(len(id))
        if id[0].as_py() >= 20:
            gate.wait()
        return id

    table = make.numbered(30)
    table.add_column("waiting", waiting)
    return table


BATCHES_OF_TEN: dict[str, Any] = {"min_checkpoint_size": 10, "max_checkpoint_size": 10}


def test_without_an_interval_between_checkpoints_each_batch_is_one(
    make: Maker, calls: CallLog, gate: Gate, server: RunningServer
) -> None:
    table, before = held(make, calls, gate), checkpoints(server)
    job = table.backfill("waiting", batch_checkpoint_flush_interval_seconds=0, **BATCHES_OF_TEN)
    eventually(lambda: calls.count() == 3, "the third batch waits")
    assert len(checkpoints(server) - before) == 2
    gate.open()
    job.wait(TIMEOUT)


def test_a_long_interval_between_checkpoints_writes_none_meanwhile(
    make: Maker, calls: CallLog, gate: Gate, server: RunningServer
) -> None:
    table, before = held(make, calls, gate), checkpoints(server)
    job = table.backfill("waiting", batch_checkpoint_flush_interval_seconds=3600, **BATCHES_OF_TEN)
    eventually(lambda: calls.count() == 3, "the third batch waits")
    assert checkpoints(server) == before
    gate.open()
    job.wait(TIMEOUT)


def test_a_finished_job_leaves_no_checkpoints(
    make: Maker, calls: CallLog, gate: Gate, server: RunningServer
) -> None:
    table, before = held(make, calls, gate), checkpoints(server)
    gate.open()
    filled(table, "waiting", batch_checkpoint_flush_interval_seconds=0, **BATCHES_OF_TEN)
    assert checkpoints(server) == before


def test_the_read_version_says_which_rows_and_inputs_are_taken(make: Maker) -> None:
    table = with_size(make.numbered(3))
    version = table.version
    table.add(numbered(3, 2))
    job = filled(table, "size", read_version=version)
    assert job.result is not None
    assert job.result["source_version"] == version
    assert by_id(table, "size") == {0: 6, 1: 6, 2: 6, 3: None, 4: None}


def test_the_task_size_cuts_a_fragment_into_tasks(make: Maker) -> None:
    table = with_size(make.numbered(45))
    said = table.explain("size", task_size=10)
    job = filled(table, "size", task_size=10)
    assert (said.tasks, planned(job)["tasks"], planned(job)["fragments"]) == (5, 5, 1)
    assert by_id(table, "size") == dict.fromkeys(range(45), 6) | dict.fromkeys(range(10, 45), 7)


def test_a_fragment_that_is_cut_is_computed_by_several_processes(make: Maker, tmp_path: Path) -> None:
    table = make.numbered(8)
    table.add_column("met", meeting(tmp_path, 2))
    filled(table, "met", task_size=4, concurrency=2)
    assert set(by_id(table, "met").values()) == {True}


def test_the_task_size_joins_small_fragments_to_tasks(make: Maker) -> None:
    table = with_size(make.numbered(5, 5, 5, 5))
    assert table.explain("size", task_size=10).tasks == 2
    assert planned(filled(table, "size", task_size=10))["tasks"] == 2


def test_as_many_fragments_as_asked_are_filled(make: Maker) -> None:
    table = with_size(make.numbered(3, 2, 2))
    assert planned(filled(table, "size", num_frags=1))["fragments"] == 1
    assert table.column_status("size").missing == 4


def test_each_commit_has_as_many_fragments_as_asked(make: Maker) -> None:
    table = with_size(make.numbered(2, 2, 2))
    version = table.version
    job = filled(table, "size", commit_granularity=2)
    assert (job.progress.commits, table.version - version) == (2, 2)


def test_a_job_runs_on_the_cluster_it_names(make: Maker) -> None:
    assert filled(with_size(make.numbered(1)), "size", cluster="default").cluster == "default"


def test_an_unknown_cluster_is_refused_with_those_there_are(make: Maker) -> None:
    with pytest.raises(InvalidRequest, match=r"cluster.*'tpu'; configured are: default"):
        with_size(make.numbered(1)).backfill("size", cluster="tpu")


def test_a_manifest_says_what_a_function_finds(make: Maker) -> None:
    @tidemill.udf
    def model(id: int) -> str | None:
        import os

        return os.environ.get("MODEL")

    table = make.numbered(1)
    table.add_column("model", model)
    filled(table, "model", manifest=tidemill.Manifest(env={"MODEL": "small"}))
    assert by_id(table, "model") == {0: "small"}


def with_failing_row(make: Maker) -> tidemill.Table:
    """Four rows, on one of which the function raises."""
    table = make.numbered(4)
    table.add_column("size", size_of_most)
    return table


@pytest.mark.parametrize(
    "policy", ["fail", "retry", {"action": "fail", "attempts": 2, "backoff_seconds": 0}], ids=str
)
def test_a_failing_row_ends_the_job_unless_it_may_be_skipped(
    make: Maker, server: RunningServer, policy: Any
) -> None:
    table = with_failing_row(make)
    answer = asked(server, table, on_error=policy)
    job = make.lake.job(answer.json()["job_id"])
    with pytest.raises(tidemill.JobFailed, match="no size"):
        job.wait(TIMEOUT)
    assert table.column_status("size").missing == 4


@pytest.mark.parametrize(
    "policy",
    ["skip", {"action": "skip"}, {"action": "skip", "max_skipped": 1}, {"action": "skip", "attempts": 1}],
    ids=str,
)
def test_a_failing_row_is_left_null_where_it_may_be_skipped(
    make: Maker, server: RunningServer, policy: Any
) -> None:
    table = with_failing_row(make)
    make.lake.job(asked(server, table, on_error=policy).json()["job_id"]).wait(TIMEOUT)
    assert by_id(table, "size") == {0: 6, 1: 6, 2: None, 3: 6}


def test_as_large_a_part_of_the_rows_as_said_may_be_skipped(make: Maker) -> None:
    assert filled(with_failing_row(make), "size", on_error=tidemill.skip(fraction=0.25)).progress.skipped == 1


def test_a_larger_part_of_the_rows_than_said_ends_the_job(make: Maker) -> None:
    with pytest.raises(tidemill.JobFailed):
        filled(with_failing_row(make), "size", on_error=tidemill.skip(fraction=0.2))


def test_only_missing_rows_are_computed_where_only_they_are_asked_for(make: Maker) -> None:
    table = with_size(make.numbered(3))
    filled(table, "size")
    table.to_lance().update({"text": "'changed'"}, where="id = 0")
    table.add(numbered(3, 1))
    filled(table, "size", only="missing")
    assert by_id(table, "size") == dict.fromkeys(range(4), 6)
    assert table.column_status("size").stale == 1


def test_only_rows_that_failed_are_computed_where_they_are_to_be_tried_again(make: Maker) -> None:
    table = with_failing_row(make)
    filled(table, "size", on_error="skip")
    table.add(numbered(4, 1))
    job = filled(table, "size", retry_failed=True, on_error="skip")
    assert (job.progress.total, job.progress.skipped) == (1, 1)
    assert table.column_status("size").missing == 1
