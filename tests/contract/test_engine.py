"""The heart of it on every database: commits, backfills and refreshes under concurrent clients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, chunker_function, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.model.options import RefreshRequest


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path / "lake", database_url=store_url)
    yield running
    running.close()


def numbers(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def test_concurrent_appends_all_land_once(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: engine.append(table, numbers(n)), range(1, 31)))
    assert sorted(engine.rows(table)["x"].to_pylist()) == list(range(31))
    assert engine.open(table).version == 31


def test_a_backfill_beside_writers_leaves_no_stale_value(engine: Engine) -> None:
    table = engine.create_table("t", numbers(*range(20)))
    engine.declare(table, "y", column_function(lambda x: x, pa.int64(), "x"))

    def write(n: int) -> None:
        engine.append(table, numbers(100 + n))
        engine.open(table).update({"x": f"x + {1000 * n}"}, where=f"x = {n}")
        engine.open(table).delete(f"x = {n + 10}")

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, n) for n in range(1, 7)]
        while not all(task.done() for task in writing):
            succeeded(engine.backfill(table, "y"))
        for task in writing:
            task.result()
    succeeded(engine.backfill(table, "y"))
    rows = engine.rows(table).to_pylist()
    assert len(rows) == 20
    assert [row for row in rows if row["x"] != row["y"]] == []


def test_a_view_follows_its_source(engine: Engine) -> None:
    table = engine.create_table("t", numbers(1, 2, 3))
    output = pa.schema([pa.field("n", pa.int64())])
    view = engine.create_view(
        "v", table, chunker_function(lambda x: ({"n": x} for _ in range(x)), output, "x")
    )
    succeeded(engine.refresh(view))
    engine.open(table).update({"x": "4"}, where="x = 1")
    engine.open(table).delete("x = 2")
    assert succeeded(engine.refresh(view))["rows_computed"] == 1
    assert sorted(engine.rows(view)["n"].to_pylist()) == [3, 3, 3, 4, 4, 4, 4]


def test_a_worker_that_lost_its_lease_publishes_nothing(engine: Engine) -> None:
    table = engine.create_table("t", numbers(1, 2, 3))
    output = pa.schema([pa.field("n", pa.int64())])
    view = engine.create_view(
        "v", table, chunker_function(lambda x: ({"n": x} for _ in range(x)), output, "x")
    )
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
    paused, successor = engine.worker, engine.new_worker("second")
    claimed = paused.claim()
    assert claimed is not None

    def meanwhile() -> None:
        """The paused worker has computed and is about to publish; its lease runs out and another one acts."""
        paused.release(claimed)
        taken_over = successor.claim()
        assert taken_over is not None
        successor.run(taken_over)

    engine.publisher.before_next = meanwhile
    paused.run(claimed)
    assert sorted(engine.rows(view)["n"].to_pylist()) == [1, 2, 2, 3, 3, 3]
    ended = engine.operations.jobs.get(LOCAL_CALLER, job.job_id)
    assert (ended.state, ended.epoch) == (JobState.DONE, 2)
    with engine.lake.store.transaction() as tx:
        assert [part.epoch for part in tx.parts.list_of(job.job_id)] == [2]
