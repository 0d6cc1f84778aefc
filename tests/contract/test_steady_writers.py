"""Jobs beside a writer that writes before every commit of the job: they end, and say what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

from tests.engine import Engine, column_function, succeeded
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.worker.backfill import MAX_CATCH_UPS
from tidemill.jobs.worker.refresh import MAX_TRIES
from tidemill.lance import publisher


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"x": pa.array(range(start, start + count), pa.int64())})


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    ident = engine.create_table("t", numbers(0, 20))
    engine.append(ident, numbers(20, 20))
    engine.declare(ident, "y", column_function(lambda x: x, pa.int64(), "x"))
    return ident


def write_before_every_commit(engine: Engine, write: Callable[[int], object]) -> list[int]:
    """The numbers of the writes that were made, as they are made."""
    made: list[int] = []

    def before() -> None:
        engine.publisher.before_next = before
        made.append(len(made))
        write(made[-1])

    engine.publisher.before_next = before
    return made


def wrong_rows(engine: Engine, table: TableIdent) -> list[int]:
    return sorted(row["x"] for row in engine.rows(table).to_pylist() if row["x"] != row["y"])


def test_a_backfill_beside_appends_ends_and_counts_the_rows_left(engine: Engine, table: TableIdent) -> None:
    made = write_before_every_commit(engine, lambda n: engine.append(table, numbers(1000 + n, 1)))
    result = succeeded(engine.backfill(table, "y"))
    assert len(made) == MAX_CATCH_UPS + 1
    assert result["rows_left"] == 1
    assert wrong_rows(engine, table) == [1000 + made[-1]]


def test_a_backfill_beside_updates_computes_the_rows_nobody_wrote(engine: Engine, table: TableIdent) -> None:
    write_before_every_commit(
        engine, lambda n: engine.open(table).update({"x": "x + 100"}, where=f"x % 100 = {n % 3}")
    )
    result = succeeded(engine.backfill(table, "y"))
    wrong = wrong_rows(engine, table)
    assert result["rows_left"] == len(wrong)
    assert {x % 100 for x in wrong} <= {0, 1, 2}


def test_rows_that_are_left_are_done_by_the_next_backfill(engine: Engine, table: TableIdent) -> None:
    write_before_every_commit(engine, lambda n: engine.append(table, numbers(1000 + n, 1)))
    assert succeeded(engine.backfill(table, "y"))["rows_left"] == 1
    engine.publisher.before_next = None
    result = succeeded(engine.backfill(table, "y"))
    assert (result["rows_computed"], result["rows_left"]) == (1, 0)
    assert wrong_rows(engine, table) == []


def test_a_writer_that_writes_as_much_as_is_computed_is_not_followed(
    engine: Engine, table: TableIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.jobs.worker.backfill.SMALL_PASS_ROWS", 0)
    made = write_before_every_commit(engine, lambda n: engine.append(table, numbers(1000 * (n + 1), 40)))
    assert succeeded(engine.backfill(table, "y"))["rows_left"] == 40
    assert len(made) == 2


def test_values_that_were_moved_before_every_commit_are_kept_for_the_next_job(
    engine: Engine, table: TableIdent
) -> None:
    """Rewrites every row with the values it has, so that no file fits and every value is still right."""
    write_before_every_commit(engine, lambda n: engine.open(table).update({"x": "x"}))
    assert succeeded(engine.backfill(table, "y"))["rows_left"] == 40
    engine.publisher.before_next = None
    result = succeeded(engine.backfill(table, "y"))
    assert (result["rows_computed"], result["rows_left"]) == (0, 0)
    assert wrong_rows(engine, table) == []


def test_a_pinned_backfill_beside_a_steady_writer_ends(engine: Engine, table: TableIdent) -> None:
    write_before_every_commit(engine, lambda n: engine.open(table).update({"x": "x"}, where="x < 5"))
    result = succeeded(engine.backfill(table, "y", read_version=engine.open(table).version))
    assert result["rows_left"] == 5
    assert wrong_rows(engine, table) == [0, 1, 2, 3, 4]


def test_rows_that_num_frags_leaves_out_are_counted(engine: Engine, table: TableIdent) -> None:
    assert succeeded(engine.backfill(table, "y", num_frags=1))["rows_left"] == 20


def test_a_refresh_beside_a_writer_of_the_source_ends(engine: Engine, table: TableIdent) -> None:
    view = engine.create_view("v", table, None)
    made = write_before_every_commit(engine, lambda n: engine.append(table, numbers(1000 + n, 1)))
    succeeded(engine.refresh(view))
    assert len(made) == 1
    assert sorted(engine.rows(view)["x"].to_pylist()) == list(range(40))


def test_a_refresh_whose_rows_are_written_each_time_says_what_to_do(
    engine: Engine, table: TableIdent
) -> None:
    view = engine.create_view("v", table, None)
    succeeded(engine.refresh(view))
    engine.open(view).add_columns({"note": "0"})
    engine.open(table).update({"x": "x + 100"}, where="x < 5")
    made = write_before_every_commit(engine, lambda n: engine.open(view).update({"note": str(n + 1)}))
    job = engine.refresh(view)
    assert job.state is JobState.FAILED
    assert len(made) == MAX_TRIES
    assert job.failure is not None
    assert f"nothing was published after {MAX_TRIES} tries" in job.failure.message


def test_a_backfill_that_never_wins_a_commit_keeps_its_values(
    engine: Engine, table: TableIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "ATTEMPTS", 2)
    with monkeypatch.context() as losing:
        losing.setattr(publisher.LancePublisher, "_try_commit", lambda *_: None)
        assert succeeded(engine.backfill(table, "y"))["rows_left"] == 40
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 0
    assert wrong_rows(engine, table) == []


def test_jobs_beside_a_writer_that_never_stops_end(engine: Engine, table: TableIdent) -> None:
    view, stops = engine.create_view("v", table, None), Event()

    def write() -> None:
        number = 0
        while not stops.is_set():
            number += 1
            engine.append(table, numbers(1000 + number, 1))
            engine.open(table).update({"x": "x + 10000"}, where=f"x = {number % 40}")

    writer = Thread(target=write)
    writer.start()
    try:
        succeeded(engine.backfill(table, "y"))
        succeeded(engine.refresh(view))
    finally:
        stops.set()
        writer.join()
