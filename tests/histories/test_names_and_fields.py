"""Clients rename, swap, drop and retype fields through commits of their own; functions follow the fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from tests.engine import Crash, Engine, Moment, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.errors import ColumnNotComputed
from tidemill.jobs.model.columns import ColumnStatus
from tidemill.jobs.model.coverage import Watched
from tidemill.jobs.model.options import BackfillRequest
from tidemill.lance.checkpoint_files import write_checkpoint

CALLS: list[int] = []


def tripled(x: int) -> int:
    CALLS.append(x)
    return 3 * x


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    CALLS.clear()
    opened = Engine(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    ident = engine.create_table("t", pa.table({"id": [1, 2, 3], "x": [1, 2, 3], "clean": [10, 20, 30]}))
    function = column_function(tripled, pa.int64(), "x", kind=FunctionKind.SCALAR)
    engine.declare(ident, "y", function, "x")
    return ident


def past_the_catalog(engine: Engine, ident: TableIdent) -> lance.LanceDataset:
    return lance.dataset(engine.open(ident).uri)


def status(engine: Engine, ident: TableIdent, column: str = "y") -> ColumnStatus:
    return engine.operations.provenance.status(LOCAL_CALLER, ident, column, None)


def rename(dataset: lance.LanceDataset, **names: str) -> None:
    """All in one commit."""
    changes = [{"path": old, "name": new} for old, new in names.items()]
    dataset.alter_columns(*changes)  # type: ignore[arg-type]  # pylance's hint is of the whole tuple


Opened: TypeAlias = Callable[[Engine, TableIdent], lance.LanceDataset]
OPENED = pytest.mark.parametrize("opened", [Engine.open, past_the_catalog], ids=["catalog", "location"])


@OPENED
def test_an_input_that_is_renamed_is_still_the_input(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    succeeded(engine.backfill(table, "y"))
    CALLS.clear()
    rename(opened(engine, table), x="raw", clean="x")
    assert status(engine, table).fresh == 3
    engine.open(table).update({"raw": "7"}, where="id = 1")
    assert status(engine, table).stale == 1
    succeeded(engine.backfill(table, "y"))
    assert CALLS == [7]
    assert sorted(engine.rows(table)["y"].to_pylist()) == [6, 9, 21]


@OPENED
def test_an_input_that_is_renamed_before_the_first_backfill_is_found(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    rename(opened(engine, table), x="raw")
    rename(opened(engine, table), clean="x")
    succeeded(engine.backfill(table, "y"))
    assert engine.rows(table)["y"].to_pylist() == [3, 6, 9]


@OPENED
def test_a_computed_column_that_is_renamed_keeps_its_function(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    succeeded(engine.backfill(table, "y"))
    CALLS.clear()
    rename(opened(engine, table), y="old", clean="y")
    with pytest.raises(ColumnNotComputed):
        status(engine, table)
    assert status(engine, table, "old").fresh == 3
    engine.append(table, pa.table({"id": [4], "x": [4], "y": [40]}))
    succeeded(engine.backfill(table, "old"))
    assert CALLS == [4]
    assert sorted(engine.rows(table)["old"].to_pylist()) == [3, 6, 9, 12]
    assert [one.column.name for one in engine.operations.columns.list_declared(LOCAL_CALLER, table)] == [
        "old"
    ]


@OPENED
def test_a_job_fills_the_column_it_was_submitted_for(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    request = BackfillRequest("y")
    job = engine.operations.jobs.submit_backfill(LOCAL_CALLER, table, request, None)
    rename(opened(engine, table), y="later", clean="y")
    succeeded(engine.run(job))
    assert engine.rows(table)["later"].to_pylist() == [3, 6, 9]
    assert engine.rows(table)["y"].to_pylist() == [10, 20, 30]


@OPENED
@pytest.mark.parametrize("moment", Moment)
def test_a_job_that_died_goes_on_under_other_names(
    engine: Engine, table: TableIdent, opened: Opened, moment: Moment
) -> None:
    request = BackfillRequest("y", flush_interval_seconds=0.0)
    job = engine.operations.jobs.submit_backfill(LOCAL_CALLER, table, request, None)
    claimed = engine.worker.claim()
    assert claimed is not None
    engine.publisher.dies = moment
    with suppress(Crash):
        engine.worker.run(claimed)
    engine.publisher.dies = None
    engine.worker.release(claimed)
    rename(opened(engine, table), x="raw", clean="x", y="later")
    succeeded(engine.run(job))
    assert sorted(engine.rows(table)["later"].to_pylist()) == [3, 6, 9]
    assert sorted(CALLS) == [1, 2, 3]


@OPENED
def test_a_checkpoint_of_a_later_version_is_judged_by_fields(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    """The name of an input stands for another field there, whose values have not changed."""
    before = engine.open(table)
    rename(opened(engine, table), x="raw", clean="x")
    engine.open(table).update({"raw": "raw + 100"}, where="id = 2")
    later = engine.open(table)
    rows = later.scanner(columns={"raw": "raw"}, with_row_id=True).to_table()
    location = engine.checkpoints.location(uuid4(), "sha256:1", "shared")
    write_checkpoint(location, later.version, rows["_rowid"].to_numpy(), rows["raw"].combine_chunks())
    with engine.lake.store.transaction() as tx:
        stored = tx.tables.get(table)
    [usable] = engine.checkpoints.find_usable(location, stored, before.version, Watched(("x",)))
    assert usable.rows == BitMap64([0, 2])


@OPENED
def test_a_name_that_stands_for_another_field_makes_values_stale(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    succeeded(engine.backfill(table, "y"))
    CALLS.clear()
    opened(engine, table).drop_columns(["x"])
    rename(opened(engine, table), clean="x")
    assert status(engine, table).stale == 3
    succeeded(engine.backfill(table, "y"))
    assert engine.rows(table)["y"].to_pylist() == [30, 60, 90]


def test_a_new_field_with_the_id_of_a_dropped_one_is_not_taken_for_it(engine: Engine) -> None:
    ident = engine.create_table("t", pa.table({"id": [1, 2]}))
    engine.open(ident).add_columns({"x": "id * 10"})
    engine.declare(ident, "y", column_function(tripled, pa.int64(), "x", kind=FunctionKind.SCALAR), "x")
    succeeded(engine.backfill(ident, "y"))
    engine.open(ident).drop_columns(["x", "y"])
    engine.open(ident).add_columns({"other": "id * 20"})
    assert engine.open(ident).lance_schema.field_case_insensitive("other") is not None
    assert engine.operations.columns.list_declared(LOCAL_CALLER, ident)[0].column.inputs == ("x",)


def test_another_type_of_an_input_makes_values_stale(engine: Engine, table: TableIdent) -> None:
    succeeded(engine.backfill(table, "y"))
    change: Any = {"path": "x", "data_type": pa.int32()}
    engine.open(table).alter_columns(change)
    assert status(engine, table).stale == 3
    succeeded(engine.backfill(table, "y"))
    assert status(engine, table).fresh == 3


def test_a_dropped_input_is_named(engine: Engine, table: TableIdent) -> None:
    engine.open(table).drop_columns(["x"])
    job = engine.backfill(table, "y")
    assert job.failure is not None
    assert "'x'" in job.failure.message


@OPENED
def test_a_query_view_reads_what_its_names_stand_for(
    engine: Engine, table: TableIdent, opened: Opened
) -> None:
    view = engine.create_view("v", table, None, columns={"id": "id", "x": "x"})
    succeeded(engine.refresh(view))
    rename(opened(engine, table), x="raw", clean="x")
    assert not engine.operations.view_status.status(LOCAL_CALLER, view).is_fresh
    succeeded(engine.refresh(view))
    assert sorted(engine.rows(view)["x"].to_pylist()) == [10, 20, 30]


def test_segments_that_nobody_uses_are_removed(engine: Engine, table: TableIdent) -> None:
    succeeded(engine.backfill(table, "y"))
    folder = Path(engine.settings.job_files) / "fingerprints"
    (used,) = folder.rglob("*.fingerprints")
    left = used.with_name(f"left-{used.name}")
    left.write_bytes(used.read_bytes())
    with engine.lake.store.reading() as tx:
        paths = tx.coverage.segments_in_use()
    assert {Path(path).name for path in paths} == {used.name}
    engine.checkpoints.sweep_segments(timedelta(days=1), paths)
    assert left.exists()
    engine.checkpoints.sweep_segments(timedelta(seconds=-1), paths)
    assert list(folder.rglob("*.fingerprints")) == [used]


@pytest.mark.parametrize("is_past", [False, True], ids=["through the catalog", "past the catalog"])
def test_a_rename_is_followed_though_nobody_looks_before_its_trace_is_gone(
    engine: Engine, table: TableIdent, is_past: bool
) -> None:
    """An overwrite gives all fields new ids, and a clean-up removes the versions that tell of the rename."""
    succeeded(engine.backfill(table, "y"))
    rename(past_the_catalog(engine, table) if is_past else engine.open(table), y="z", x="raw")
    handle = engine.open(table)
    handle.insert(handle.to_table(), mode="overwrite")
    engine.open(table).cleanup_old_versions(timedelta(0))
    assert status(engine, table, "z").fresh == 3
    CALLS.clear()
    engine.append(table, pa.table({"id": [4], "raw": [4], "clean": [40]}))
    succeeded(engine.backfill(table, "z"))
    assert CALLS == [4]
