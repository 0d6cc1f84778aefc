"""Somebody else writes between the computing and the commit of a backfill or refresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.engine import Engine, chunker_function, column_function, succeeded
from tests.histories.writes import PaperTable
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.columns import ColumnFile, ComputedRows, FillColumn
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import RowSelection
from tidemill.jobs.model.views import ViewStage, WriteViewRows, WrittenRows
from tidemill.jobs.ports import StageExecutor, StageWatch

Disturbance = Callable[[lance.LanceDataset], object]


class DisturbedExecutor:
    """Lets another writer in once the first stage is computed and not committed yet."""

    def __init__(self, inner: StageExecutor) -> None:
        self._inner = inner
        self.disturb: Callable[[], object] | None = None
        self.computed: list[int] = []

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]:
        files = self._inner.fill_column(stage, watch)
        self.computed.append(sum(len(file.rows) - file.reused_rows for file in files))
        self._let_in()
        return files

    def compute_rows(self, stage: FillColumn, watch: StageWatch) -> Sequence[ComputedRows]:
        return self._inner.compute_rows(stage, watch)

    def write_view(self, stage: ViewStage, watch: StageWatch) -> WrittenRows:
        written = self._inner.write_view(stage, watch)
        if isinstance(stage, WriteViewRows):
            self._let_in()
        return written

    def _let_in(self) -> None:
        disturb, self.disturb = self.disturb, None
        if disturb is not None:
            disturb()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    running.executor = DisturbedExecutor(running.executor)
    running.worker = running.new_worker("first")
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    ident = engine.create_table("t", rows(range(10)))
    engine.append(ident, rows(range(10, 20)))
    engine.open(ident).delete("x = 4")
    engine.open(ident).add_columns(pa.field("note", pa.string()))
    engine.declare(ident, "y", column_function(lambda x: x, pa.int64(), "x"))
    engine.declare(ident, "neighbour", column_function(lambda x: x, pa.int64(), "x"))
    return ident


def rows(values: range) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def disturb(engine: Engine, ident: TableIdent, action: Disturbance) -> DisturbedExecutor:
    executor = engine.executor
    assert isinstance(executor, DisturbedExecutor)
    executor.disturb = lambda: action(engine.open(ident))
    return executor


def compact(dataset: lance.LanceDataset) -> None:
    dataset.optimize.compact_files(target_rows_per_fragment=1000)


def update_and_compact(dataset: lance.LanceDataset) -> None:
    dataset.update({"x": "x + 1000"}, where="x = 2")
    compact(dataset)


def merge(dataset: lance.LanceDataset) -> None:
    new = pa.table({"x": pa.array([3, 500], pa.int64())})
    dataset.merge_insert("x").when_matched_update_all().when_not_matched_insert_all().execute(new)


def update_note(where: str) -> Disturbance:
    return lambda dataset: dataset.update({"note": "'seen'"}, where=where)


def write_result(where: str) -> Disturbance:
    return lambda dataset: dataset.update({"y": "-1"}, where=where)


DISTURBANCES: dict[str, tuple[Disturbance, int]] = {
    "append": (lambda dataset: dataset.insert(rows(range(100, 103))), 22),
    "delete rows": (lambda dataset: dataset.delete("x IN (1, 12)"), 19),
    "delete a fragment": (lambda dataset: dataset.delete("x < 10"), 19),
    "update": (lambda dataset: dataset.update({"x": "x + 1000"}, where="x IN (2, 13)"), 21),
    "update another column": (update_note("x IN (2, 13)"), 19),
    "update another column of a fragment": (update_note("x < 10"), 19),
    "write into the column": (write_result("x IN (2, 13)"), 19),
    "merge": (merge, 20),
    "compact": (compact, 19),
    "update and compact": (update_and_compact, 20),
    "index": (lambda dataset: dataset.create_scalar_index("x", "BTREE"), 19),
    "add a column": (lambda dataset: dataset.add_columns(pa.field("w", pa.int8())), 19),
    "configure": (lambda dataset: dataset.update_config({"a": "b"}), 19),
}


@pytest.mark.parametrize("name", DISTURBANCES)
def test_no_value_is_lost_stale_or_computed_needlessly(engine: Engine, table: TableIdent, name: str) -> None:
    action, calls = DISTURBANCES[name]
    executor = disturb(engine, table, action)
    result = succeeded(engine.backfill(table, "y"))
    assert result["commits"] <= len(executor.computed)
    found = engine.rows(table, columns=("x", "y")).to_pylist()
    assert [row for row in found if row["x"] != row["y"]] == []
    assert sorted(row["x"] for row in found) == sorted(engine.open(table).to_table()["x"].to_pylist())
    assert 4 not in [row["x"] for row in found]
    assert sum(executor.computed) == calls
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 0


CARRYING: dict[str, tuple[Disturbance, int]] = {
    "update another column of a row to be computed": (update_note("x = 1002"), 2),
    "update another column of a row that has its value": (update_note("x = 7"), 2),
    "write a value into a row to be computed": (write_result("x = 1002"), 2),
    "write a value into a row that has its own": (write_result("x = 7"), 3),
    "compact": (compact, 2),
}


@pytest.mark.parametrize("name", CARRYING)
def test_values_that_are_carried_forward_survive(engine: Engine, table: TableIdent, name: str) -> None:
    succeeded(engine.backfill(table, "y"))
    engine.open(table).update({"x": "x + 1000"}, where="x IN (2, 13)")
    compact(engine.open(table))
    action, calls = CARRYING[name]
    disturb(engine, table, action)
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == calls
    assert all(row["x"] == row["y"] for row in engine.rows(table, columns=("x", "y")).to_pylist())
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_neighbours_backfill_costs_nothing(engine: Engine, table: TableIdent, is_first: bool) -> None:
    """Its commit rewrites the same fragments, and for our column no row has changed."""
    if not is_first:
        succeeded(engine.backfill(table, "y"))
        engine.open(table).update({"x": "x + 1000"}, where="x IN (2, 13)")
    neighbours: list[Job] = []
    executor = disturb(engine, table, lambda _: neighbours.append(fill_neighbour(engine, table)))
    ours = succeeded(engine.backfill(table, "y"))
    assert (ours["rows_computed"], ours["commits"]) == (19 if is_first else 2, 1)
    assert [succeeded(job)["rows_computed"] for job in neighbours] == [19]
    assert sum(executor.computed) == (2 * 19 if is_first else 2 * 19 + 2)
    found = engine.rows(table).to_pylist()
    assert all(row["x"] == row["y"] == row["neighbour"] for row in found)
    for column in ("y", "neighbour"):
        assert succeeded(engine.backfill(table, column))["rows_computed"] == 0


def fill_neighbour(engine: Engine, table: TableIdent) -> Job:
    """With a worker of its own, as the other one is busy."""
    busy, engine.worker = engine.worker, engine.new_worker("second")
    try:
        return engine.backfill(table, "neighbour")
    finally:
        engine.worker = busy


@pytest.mark.parametrize("action", [compact, merge, lambda d: d.insert(rows(range(100, 103)))])
def test_a_pinned_backfill_keeps_its_values_and_claims_no_others(
    engine: Engine, table: TableIdent, action: Disturbance
) -> None:
    version = engine.open(table).version
    disturb(engine, table, action)
    assert succeeded(engine.backfill(table, "y", read_version=version))["rows_computed"] == 19
    found = {row["x"]: row["y"] for row in engine.rows(table, columns=("x", "y")).to_pylist()}
    assert {x: y for x, y in found.items() if y is not None and x != y} == {}
    assert sum(y is not None for y in found.values()) >= 18
    succeeded(engine.backfill(table, "y"))
    assert all(row["x"] == row["y"] for row in engine.rows(table, columns=("x", "y")).to_pylist())


def test_a_pinned_backfill_claims_nothing_that_was_written_in_place_since(engine: Engine) -> None:
    paper = PaperTable(engine, [1, 2, 3], has_stable_row_ids=True)
    engine.declare(paper.ident, "y", column_function(lambda x: x, pa.int64(), "x"))
    paper.declared("y")
    paper.read()
    version = engine.open(paper.ident).version
    paper.update_in_place(0, "x", 7)
    # Nothing is covered yet, and that is known of a later version than the pinned one.
    assert succeeded(engine.backfill(paper.ident, "y", only=RowSelection.STALE))["rows_computed"] == 0
    assert succeeded(engine.backfill(paper.ident, "y", read_version=version))["rows_computed"] == 3
    assert succeeded(engine.backfill(paper.ident, "y"))["rows_computed"] == 1
    found = engine.rows(paper.ident, columns=("x", "y")).to_pylist()
    assert [(row["x"], row["y"]) for row in found] == [(7, 7), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("action", "word"),
    [
        (lambda dataset: dataset.drop_columns(["y"]), "y"),
        (lambda dataset: dataset.insert(rows(range(5)), mode="overwrite"), "y"),
    ],
)
def test_a_column_taken_away_ends_the_job_with_that_reason(
    engine: Engine, table: TableIdent, action: Disturbance, word: str
) -> None:
    disturb(engine, table, action)
    job = engine.backfill(table, "y")
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert f"no column '{word}'" in job.failure.message
    assert engine.rows(table).num_rows


VIEW_DISTURBANCES: dict[str, Disturbance] = {
    "compact": compact,
    "add a column": lambda dataset: dataset.add_columns(pa.field("w", pa.int8())),
    "delete of the user's": lambda dataset: dataset.delete("n = 99"),
    "index": lambda dataset: dataset.create_scalar_index("n", "BTREE"),
}


@pytest.mark.parametrize("name", VIEW_DISTURBANCES)
def test_a_refresh_lands_beside_other_writers_of_the_view(
    engine: Engine, table: TableIdent, name: str
) -> None:
    output = pa.schema([pa.field("n", pa.int64())])
    function = chunker_function(lambda x: ({"n": x + i} for i in range(x % 3)), output, "x")
    view = engine.create_view("v", table, function)
    succeeded(engine.refresh(view))
    engine.open(table).update({"x": "x + 30"}, where="x < 5")
    engine.open(table).delete("x = 15")
    disturb(engine, view, VIEW_DISTURBANCES[name])
    succeeded(engine.refresh(view))
    sources = engine.open(table).to_table()["x"].to_pylist()
    assert sorted(engine.rows(view)["n"].to_pylist()) == sorted(x + i for x in sources for i in range(x % 3))


def labelled(engine: Engine) -> tuple[TableIdent, TableIdent]:
    """A view over two rows, with a column that somebody added and wrote into."""
    source = engine.create_table("s", rows(range(2)))
    view = engine.create_view("labelled", source, None, columns={"x": "x", "twice": "x * 2"})
    succeeded(engine.refresh(view))
    engine.open(view).add_columns(pa.field("label", pa.string()))
    engine.open(view).update({"label": "'old'"})
    return source, view


def test_what_others_write_beside_a_row_that_is_being_refreshed_is_kept(engine: Engine) -> None:
    source, view = labelled(engine)
    engine.open(source).update({"x": "x + 10"}, where="x = 1")
    disturb(engine, view, lambda dataset: dataset.update({"label": "'new'"}, where="x = 1"))
    succeeded(engine.refresh(view))
    found = {row["x"]: (row["twice"], row["label"]) for row in engine.rows(view).to_pylist()}
    assert found == {0: (0, "old"), 11: (22, "new")}


def test_a_column_added_while_rows_are_being_refreshed_keeps_its_values(engine: Engine) -> None:
    source, view = labelled(engine)
    engine.open(source).update({"x": "x + 10"}, where="x = 1")
    disturb(engine, view, lambda dataset: dataset.add_columns({"more": "x + 100"}))
    succeeded(engine.refresh(view))
    found = {row["x"]: (row["label"], row["more"]) for row in engine.rows(view).to_pylist()}
    assert found == {0: ("old", 100), 11: ("old", 101)}


def test_rows_that_others_deleted_during_a_refresh_come_back(engine: Engine) -> None:
    source, view = labelled(engine)
    engine.open(source).update({"x": "x + 10"}, where="x = 1")
    disturb(engine, view, lambda dataset: dataset.delete("x = 0"))
    succeeded(engine.refresh(view))
    assert sorted(engine.rows(view)["x"].to_pylist()) == [0, 11]
    assert engine.verify(view)["is_same"]
