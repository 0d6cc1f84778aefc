"""What every executor of stages promises: on Spark, and in the process of fast tests."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, InlineStageExecutor, chunker_function, column_function, succeeded
from tests.geneva import geneva_column, geneva_rows
from tests.sealing import CipherInMemory
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.errors import JobCancelled
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.ports import StageExecutor
from tidemill.jobs.service.columns import SqlExpression
from tidemill.jobs.service.views import ViewDefinition
from tidemill.spark.cluster import ClassicCluster, through_arrow, through_rdd
from tidemill.spark.executor import SparkStageExecutor
from tidemill.spark.startup import SparkStart

IN_TASK, IN_PROCESS = FunctionHost(Isolation.TASK), FunctionHost(Isolation.PROCESS)
ON_SPARK = {
    "spark rdd": (through_rdd, IN_TASK),
    "spark arrow": (through_arrow, IN_TASK),
    "spark rdd, functions apart": (through_rdd, IN_PROCESS),
}


@pytest.fixture(
    params=[
        "inline",
        "inline, functions apart",
        *(pytest.param(name, marks=pytest.mark.spark) for name in ON_SPARK),
    ]
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    scratch = str(tmp_path / "stages")
    if request.param not in ON_SPARK:
        host = IN_TASK if request.param == "inline" else IN_PROCESS
        executor: StageExecutor = InlineStageExecutor(scratch, host)
    else:
        fan_out, host = ON_SPARK[request.param]
        cluster = ClassicCluster(request.getfixturevalue("spark"), fan_out=fan_out)
        executor = SparkStageExecutor(SparkStart.of(cluster), scratch, host, CipherInMemory())
    running = Engine(tmp_path / "lake", executor)
    yield running
    running.close()


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"x": pa.array(range(start, start + count), pa.int64())})


def test_values_land_in_every_fragment_beside_deleted_rows(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 50))
    engine.append(table, numbers(50, 50))
    engine.open(table).delete("x % 3 = 0")
    engine.declare(table, "y", column_function(lambda x: x.cast(pa.float64()), pa.float64(), "x"))
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 66
    rows = engine.rows(table).to_pylist()
    assert {row["x"]: row["y"] for row in rows} == {x: float(x) for x in range(100) if x % 3}


def test_rows_that_are_not_asked_for_keep_their_value(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 20))
    engine.declare(
        table,
        "y",
        column_function(lambda x: [x, str(x)], pa.list_(pa.string()), "x", kind=FunctionKind.SCALAR),
    )
    job = engine.backfill(table, "y", where="x >= 10")
    assert job.state is JobState.FAILED
    engine.declare(
        table,
        "z",
        column_function(
            lambda x: [str(x)] * (x % 3), pa.list_(pa.string()), "x", kind=FunctionKind.SCALAR, digest="2"
        ),
    )
    assert succeeded(engine.backfill(table, "z", where="x >= 10"))["rows_computed"] == 10
    assert succeeded(engine.backfill(table, "z", where="x < 5"))["rows_computed"] == 5
    found = {row["x"]: row["z"] for row in engine.rows(table).to_pylist()}
    assert found == {x: None if 5 <= x < 10 else [str(x)] * (x % 3) for x in range(20)}


def test_a_raising_function_is_traced_to_its_row(engine: Engine) -> None:
    def picky(x: pa.Array) -> pa.Array:
        if 13 in x.to_pylist():
            raise ArithmeticError("thirteen")
        return x

    table = engine.create_table("t", numbers(0, 40))
    engine.declare(table, "y", column_function(picky, pa.int64(), "x"))
    version = engine.open(table).version
    job = engine.backfill(table, "y")
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert (job.failure.exception, job.failure.row_id) == ("ArithmeticError", 13)
    assert "thirteen" in job.failure.message
    assert "picky" in (job.failure.traceback or "")
    assert engine.open(table).version == version


def test_failing_rows_are_skipped_and_noted(engine: Engine) -> None:
    def picky(x: pa.Array) -> pa.Array:
        if {13, 27} & set(x.to_pylist()):
            raise ArithmeticError("odd ones")
        return x

    table = engine.create_table("t", numbers(0, 40))
    engine.declare(table, "y", column_function(picky, pa.int64(), "x"))
    result = succeeded(engine.backfill(table, "y", on_error=ErrorPolicy(ErrorAction.SKIP)))
    assert result["rows_skipped"] == 2
    found = {row["x"]: row["y"] for row in engine.rows(table).to_pylist()}
    assert found == {x: None if x in (13, 27) else x for x in range(40)}
    errors = engine.operations.provenance.errors(LOCAL_CALLER, table, "y", None)
    assert [(error.failure.row_id, error.failure.exception) for _, error in errors] == [
        (13, "ArithmeticError"),
        (27, "ArithmeticError"),
    ]
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 0
    retried = engine.backfill(table, "y", only=RowSelection.FAILED, on_error=ErrorPolicy(ErrorAction.SKIP))
    assert succeeded(retried)["rows_computed"] == 2


def test_more_failures_than_allowed_end_the_job(engine: Engine) -> None:
    def picky(x: int) -> int:
        return 1 // (x % 4)

    table = engine.create_table("t", numbers(0, 40))
    engine.declare(table, "y", column_function(picky, pa.int64(), "x", kind=FunctionKind.SCALAR))
    version = engine.open(table).version
    job = engine.backfill(table, "y", on_error=ErrorPolicy(ErrorAction.SKIP, max_skipped=3))
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "3 may be skipped" in job.failure.message
    assert engine.open(table).version == version
    assert engine.operations.provenance.errors(LOCAL_CALLER, table, "y", None)


def test_a_fragment_is_cut_into_tasks_and_put_together(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 50))
    engine.open(table).delete("x % 7 = 0")
    engine.declare(table, "y", column_function(lambda x: x, pa.int64(), "x"))
    explained = engine.operations.explain.backfill(LOCAL_CALLER, table, BackfillRequest("y", task_size=10))
    assert explained.plan.tasks == 5
    assert succeeded(engine.backfill(table, "y", task_size=10))["rows_computed"] == 42
    assert all(row["x"] == row["y"] for row in engine.rows(table).to_pylist())
    engine.open(table).update({"x": "x + 100"}, where="x % 2 = 0")
    assert succeeded(engine.backfill(table, "y", task_size=3))["rows_computed"] == 21
    assert all(row["x"] == row["y"] for row in engine.rows(table).to_pylist())


def test_a_preview_publishes_nothing_and_is_used_by_the_backfill(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 30))
    shares = column_function(lambda x: 60 // (x - 2), pa.int64(), "x", kind=FunctionKind.SCALAR)
    engine.declare(table, "y", shares)
    version = engine.open(table).version
    shown = succeeded(engine.preview(table, "y", rows=5))
    assert engine.open(table).version == version
    assert shown["rows_previewed"] == 5
    assert [error["exception"] for error in shown["errors"]] == ["ZeroDivisionError"]
    rows = pa.ipc.open_stream(base64.b64decode(shown["arrow"])).read_all().to_pylist()
    assert {row["x"]: row["y"] for row in rows} == {0: -30, 1: -60, 2: None, 3: 60, 4: 30}
    engine.open(table).delete("x = 2")
    result = succeeded(engine.backfill(table, "y"))
    assert (result["rows_computed"], result["rows_reused"]) == (25, 4)


def test_children_know_their_source_row(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 4))
    engine.append(table, numbers(4, 2))
    output = pa.schema([pa.field("n", pa.int64())])
    view = engine.create_view(
        "v", table, chunker_function(lambda x: ({"n": i} for i in range(x)), output, "x")
    )
    assert succeeded(engine.refresh(view))["rows_written"] == 15
    rows = engine.rows(view).to_pylist()
    assert sorted((row["__source_row_id"], row["__child_index"], row["n"]) for row in rows) == [
        (x, n, n) for x in range(6) for n in range(x)
    ]


def test_a_chunker_reads_the_column_and_not_an_alias_of_the_same_name(engine: Engine) -> None:
    table = engine.create_table("t", numbers(1, 2).rename_columns(["odd name"]))
    output = pa.schema([pa.field("n", pa.int64())])
    function = chunker_function(lambda x: [{"n": x}], output, "odd name")
    view = engine.create_view("v", table, function, columns={"odd name": "`odd name` * 100"})
    succeeded(engine.refresh(view))
    rows = engine.rows(view).to_pylist()
    assert sorted((row["n"], row["odd name"]) for row in rows) == [(1, 100), (2, 200)]


def test_a_geneva_function_is_opened_where_it_runs(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 10))
    engine.declare(table, "y", geneva_column("scaled", pa.float32()), "x")
    succeeded(engine.backfill(table, "y"))
    assert engine.rows(table)["y"].to_pylist() == [x * 0.5 for x in range(10)]


def test_an_expression_is_evaluated_by_the_scan(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 10))
    engine.append(table, numbers(10, 10))
    engine.declare(table, "y", SqlExpression("x * 2"))
    assert succeeded(engine.backfill(table, "y", where="x >= 5"))["rows_computed"] == 15
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 5
    assert sorted(engine.rows(table)["y"].to_pylist()) == [x * 2 for x in range(20)]


def test_a_table_function_runs_once_for_each_partition(engine: Engine) -> None:
    keys = pa.table({"key": [f"k{n % 7}" for n in range(70)]})
    table = engine.create_table("t", keys)
    function = geneva_rows("counts", FunctionKind.TABLE)
    definition = ViewDefinition(
        ViewKind.UDTF, SourceQuery(table.levels), "{}", function.output, function, partition_by="key"
    )
    view = engine.define_view("v", definition)
    assert succeeded(engine.refresh(view))["rows_written"] == 7
    assert {row["key"]: row["rows"] for row in engine.rows(view).to_pylist()} == {
        f"k{n}": 10 for n in range(7)
    }


def test_progress_reaches_the_total(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 30))
    engine.declare(table, "y", column_function(lambda x: x, pa.int64(), "x"))
    progress = engine.backfill(table, "y").progress
    assert (progress.total, progress.done, progress.computed) == (30, 30, 30)


def test_a_cancelled_job_publishes_nothing(engine: Engine) -> None:
    table = engine.create_table("t", numbers(0, 30))
    engine.declare(table, "y", column_function(lambda x: x, pa.int64(), "x"))
    version = engine.open(table).version

    class Stopping:
        """An executor during whose stage somebody cancels the job."""

        def fill_column(self, *_: object) -> object:
            raise JobCancelled("it")

    engine.executor, working = Stopping(), engine.executor  # type: ignore[assignment]  # half a port is enough
    engine.worker = engine.new_worker("first")
    job: Job = engine.backfill(table, "y")
    assert job.state is JobState.CANCELLED
    assert engine.open(table).version == version
    engine.executor = working
    engine.worker = engine.new_worker("first")
    succeeded(engine.backfill(table, "y"))
