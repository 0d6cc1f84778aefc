"""What explain counts of views with a filter: the rows that their functions will see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, chunker_function, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition

CALLS: list[int] = []


def noting(x: int) -> int:
    CALLS.append(x)
    return x


def twice(x: int) -> Iterator[dict[str, int]]:
    CALLS.append(x)
    yield {"y": x}
    yield {"y": x}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    """Twenty rows in two fragments, of which three pass the filter."""
    ident = engine.create_table("t", pa.table({"x": range(10)}))
    engine.append(ident, pa.table({"x": range(10, 20)}))
    return ident


@pytest.fixture(params=["query", "chunker"])
def view(engine: Engine, table: TableIdent, request: pytest.FixtureRequest) -> TableIdent:
    CALLS.clear()
    if request.param == "chunker":
        function = chunker_function(twice, pa.schema({"y": pa.int64()}), "x")
        return engine.create_view("v", table, function, columns={"x": "x"}, filter="x >= 17")
    made = column_function(noting, pa.int64(), "x", kind=FunctionKind.SCALAR)
    query = SourceQuery(table.levels, {"x": "x"}, "x >= 17")
    columns = (FunctionColumn("y", 1, made, ("x",)),)
    return engine.define_view("v", ViewDefinition(ViewKind.QUERY, query, "{}", None, columns=columns))


def rows_explained(engine: Engine, view: TableIdent) -> int:
    return engine.operations.explain.refresh(LOCAL_CALLER, view, RefreshRequest()).plan.rows


def rows_seen(engine: Engine, view: TableIdent) -> int:
    CALLS.clear()
    succeeded(engine.refresh(view))
    return len(CALLS)


def test_the_first_refresh_counts_the_rows_that_pass(engine: Engine, view: TableIdent) -> None:
    assert rows_explained(engine, view) == 3
    assert rows_seen(engine, view) == 3


def test_an_incremental_refresh_counts_the_changed_rows_that_pass(
    engine: Engine, table: TableIdent, view: TableIdent
) -> None:
    succeeded(engine.refresh(view))
    engine.append(table, pa.table({"x": [1, 30, 2]}))
    engine.open(table).update({"x": "31"}, where="x = 0")
    engine.open(table).update({"x": "0"}, where="x = 19")
    assert rows_explained(engine, view) == 2
    assert rows_seen(engine, view) == 2


def test_a_refresh_for_rows_that_left_the_filter_calls_nothing(
    engine: Engine, table: TableIdent, view: TableIdent
) -> None:
    succeeded(engine.refresh(view))
    engine.open(table).update({"x": "0"}, where="x = 19")
    assert rows_explained(engine, view) == 0
    assert rows_seen(engine, view) == 0


def test_a_view_without_functions_counts_the_rows_it_reads(engine: Engine, table: TableIdent) -> None:
    plain = engine.create_view("plain", table, None, columns={"x": "x"}, filter="x >= 17")
    assert rows_explained(engine, plain) == 20
