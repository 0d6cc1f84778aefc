"""Random lives of a table: what clients can declare over it equals, after each job, what a new look makes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, succeeded
from tests.geneva import geneva_column, geneva_rows
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.derived import SOURCE_ROW_ID, ColumnOutput, SourceQuery, ViewKind
from tidemill.jobs.service.columns import ColumnDeclaration, SqlExpression
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition

STEPS = 10
WINDOW = SourceQuery(("t",), {"x": "x", "twice": "x * 2"}, "x % 3 <> 0", limit=5, offset=2)
SIZE = pa.struct([("width", pa.int64()), ("label", pa.string())])


class Life:
    """A table that something random happens to."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self.table = engine.create_table("t", self._rows())

    def _rows(self) -> pa.Table:
        count = self._random.randint(1, 8)
        keys = [self._random.choice("abc") for _ in range(count)]
        return pa.table({"x": [self._random.randint(0, 20) for _ in keys], "key": keys})

    def step(self) -> None:
        where = f"x % 4 = {self._random.randint(0, 3)}"
        handle = self._engine.open(self.table)
        match self._random.randint(0, 4):
            case 0 | 1:
                self._engine.append(self.table, self._rows())
            case 2:
                handle.update({"x": "x + 1"}, where=where)
            case 3:
                handle.delete(where)
            case _:
                handle.optimize.compact_files(target_rows_per_fragment=64)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


def window_view(engine: Engine) -> TableIdent:
    output = pa.schema(
        [(SOURCE_ROW_ID, pa.int64()), ("x", pa.int64()), ("more", pa.int64()), ("twice", pa.int64())]
    )
    plus = FunctionColumn("more", 1, geneva_column("plus", pa.int64()), ("x",))
    return engine.define_view("v", ViewDefinition(ViewKind.QUERY, WINDOW, "{}", output, columns=(plus,)))


@pytest.mark.parametrize("seed", range(6))
def test_a_window_with_a_function_column(engine: Engine, seed: int) -> None:
    life = Life(engine, seed)
    view = window_view(engine)
    for _ in range(STEPS):
        life.step()
        succeeded(engine.refresh(view))
        expected = (
            engine.open(life.table)
            .scanner(columns=["x"], filter=WINDOW.filter, limit=WINDOW.limit, offset=WINDOW.offset)
            .to_table()["x"]
            .to_pylist()
        )
        found = engine.rows(view).to_pylist()
        assert sorted((row["x"], row["more"], row["twice"]) for row in found) == sorted(
            (x, x + 1, x * 2) for x in expected
        )
        assert succeeded(engine.refresh(view))["mode"] == "no_op"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partition_by", [None, "key"])
def test_a_table_function(engine: Engine, seed: int, partition_by: str | None) -> None:
    life = Life(engine, seed)
    function = geneva_rows("counts", FunctionKind.TABLE)
    definition = ViewDefinition(
        ViewKind.UDTF,
        SourceQuery(("t",), None, "x > 3"),
        "{}",
        function.output,
        function,
        partition_by=partition_by,
    )
    view = engine.define_view("v", definition)
    for _ in range(STEPS):
        life.step()
        succeeded(engine.refresh(view))
        rows = engine.open(life.table).to_table(filter="x > 3")["key"].to_pylist()
        found = {row["key"]: row["rows"] for row in engine.rows(view).to_pylist()}
        assert found == {key: rows.count(key) for key in set(rows)}
        assert succeeded(engine.refresh(view))["mode"] == "no_op"


@pytest.mark.parametrize("seed", range(4))
def test_siblings_and_an_expression(engine: Engine, seed: int) -> None:
    life = Life(engine, seed)
    siblings = (ColumnOutput("w", "width"), ColumnOutput("l", "label"))
    size = ColumnDeclaration("w", geneva_column("size", SIZE), ("x",), siblings)
    expression = ColumnDeclaration("text", SqlExpression("concat(key, cast(x as string))"))
    engine.operations.columns.declare(LOCAL_CALLER, life.table, [size, expression])
    for _ in range(STEPS):
        life.step()
        succeeded(engine.backfill(life.table, "l"))
        succeeded(engine.backfill(life.table, "text"))
        for row in engine.rows(life.table).to_pylist():
            x, key = row["x"], row["key"]
            assert (row["w"], row["l"], row["text"]) == (x * 10, f"n{x}", f"{key}{x}")
        assert succeeded(engine.backfill(life.table, "w"))["rows_computed"] == 0
