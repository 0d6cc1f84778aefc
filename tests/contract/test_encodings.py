"""Functions in every encoding a client can send, from the declaration to the rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, succeeded
from tests.geneva import geneva_column, geneva_rows
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind, source_function
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.derived import (
    CHILD_INDEX,
    IS_SET,
    SOURCE_ROW_ID,
    ColumnOutput,
    SourceQuery,
    ViewKind,
)
from tidemill.jobs.model.jobs import Failure
from tidemill.jobs.model.state import JobState
from tidemill.jobs.service.columns import ColumnDeclaration, SqlExpression
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
SIZE = pa.struct([("width", pa.int64()), ("label", pa.string())])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    rows = pa.table(
        {
            "x": pa.array(range(6), pa.int64()),
            "key": ["a", "b", "a", "c", None, "a"],
            "text": ["one", "two words", "", "it's three words", "four", "five"],
            "vector": pa.array([[3.0, 4.0]] * 6, pa.list_(pa.float32(), 2)),
        }
    )
    return engine.create_table("t", rows)


def filled(engine: Engine, table: TableIdent, column: str) -> list[object]:
    succeeded(engine.backfill(table, column))
    return list(engine.rows(table)[column].to_pylist())


def failure(engine: Engine, table: TableIdent, column: str) -> Failure:
    job = engine.backfill(table, column)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    return job.failure


@pytest.mark.parametrize(
    ("name", "value_type", "inputs", "expected"),
    [
        ("plus", pa.int64(), ("x",), [1, 2, 3, 4, 5, 6]),
        ("doubled", pa.int64(), ("x",), [0, 2, 4, 6, 8, 10]),
        ("scaled", pa.float32(), ("x",), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]),
        ("named", pa.string(), ("key", "x"), [f"['key', 'x']:{x}" for x in range(6)]),
        ("named", pa.string(), (), [f"['x', 'key', 'text', 'vector']:{x}" for x in range(6)]),
    ],
)
def test_a_geneva_function_is_called_as_its_hints_say(
    engine: Engine,
    table: TableIdent,
    name: str,
    value_type: pa.DataType,
    inputs: tuple[str, ...],
    expected: list[object],
) -> None:
    engine.declare(table, "y", geneva_column(name, value_type), *inputs)
    assert filled(engine, table, "y") == expected


def test_lists_are_given_as_numpy_arrays_where_the_hints_say_so(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", geneva_column("normed", pa.list_(pa.float32(), 2)), "vector")
    assert filled(engine, table, "y")[0] == pytest.approx([0.6, 0.8])


def test_a_geneva_function_of_one_parameter_may_be_bound_to_any_column(
    engine: Engine, table: TableIdent
) -> None:
    engine.declare(table, "z", SqlExpression("x * 10"))
    succeeded(engine.backfill(table, "z"))
    engine.declare(table, "y", geneva_column("plus", pa.int64()), "z")
    assert filled(engine, table, "y") == [1, 11, 21, 31, 41, 51]


def test_functions_and_views_get_the_bytes_of_blobs(engine: Engine) -> None:
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table({"b": [b"a" * size for size in range(100)]}, schema=pa.schema([field]))
    table = engine.create_table("blobs", rows)
    text = "def size(b): return len(b)"
    engine.declare(table, "n", source_function("size", text, ["b"], pa.int64(), name="size", python=HERE))
    assert filled(engine, table, "n") == list(range(100))
    output = pa.schema([pa.field(SOURCE_ROW_ID, pa.int64()), field])
    query = SourceQuery(table.levels, {"b": "b"}, "n = 5")
    view = engine.define_view("v", ViewDefinition(ViewKind.QUERY, query, "{}", output))
    succeeded(engine.refresh(view))
    found = engine.open(view).scanner(columns=["b"], blob_handling="all_binary").to_table()
    assert found["b"].to_pylist() == [b"aaaaa"]


def test_a_computed_column_cannot_be_a_blob(engine: Engine, table: TableIdent) -> None:
    function = source_function("f", "def f(x): return b''", ["x"], pa.large_binary(), name="f", python=HERE)
    declaration = ColumnDeclaration("b", function, metadata={"b": {"lance-encoding:blob": "true"}})
    with pytest.raises(Unsupported, match="blob"):
        engine.operations.columns.declare(LOCAL_CALLER, table, [declaration])


def test_a_function_with_an_error_policy_is_opened_without_geneva(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", geneva_column("careful", pa.int64()), "x")
    assert succeeded(engine.backfill(table, "y", where="x <> 3"))["rows_computed"] == 5


def test_several_columns_are_filled_by_one_function_together(engine: Engine, table: TableIdent) -> None:
    siblings = (ColumnOutput("w", "width"), ColumnOutput("l", "label"))
    declaration = ColumnDeclaration("w", geneva_column("size", SIZE), ("x",), siblings)
    engine.operations.columns.declare(LOCAL_CALLER, table, [declaration])
    assert succeeded(engine.backfill(table, "l", where="x < 2"))["rows_computed"] == 2
    assert succeeded(engine.backfill(table, "w"))["rows_computed"] == 4
    assert succeeded(engine.backfill(table, "l"))["rows_computed"] == 0
    rows = engine.rows(table, ("w", "l")).to_pylist()
    assert rows == [{"w": x * 10, "l": f"n{x}"} for x in range(6)]


def test_siblings_are_dropped_together_and_can_be_declared_again(engine: Engine, table: TableIdent) -> None:
    siblings = (ColumnOutput("w", "width"), ColumnOutput("l", "label"))
    declaration = ColumnDeclaration("w", geneva_column("size", SIZE), ("x",), siblings)
    columns = engine.operations.columns
    columns.declare(LOCAL_CALLER, table, [declaration])
    with engine.lake.store.transaction() as tx:
        known = tx.tables.get(table)
    with pytest.raises(InvalidInput, match="together"):
        columns.forgetting(known, ["l"])
    columns.forgetting(known, ["l", "w"])
    engine.open(table).drop_columns(["w", "l"])
    columns.declare(LOCAL_CALLER, table, [declaration])
    assert filled(engine, table, "w") == [0, 10, 20, 30, 40, 50]


def test_an_expression_gets_its_type_from_the_table_and_follows_its_inputs(
    engine: Engine, table: TableIdent
) -> None:
    engine.declare(table, "u", SqlExpression("upper(text)"))
    engine.declare(table, "half", SqlExpression("cast(x as double) / 2"))
    assert filled(engine, table, "u")[:2] == ["ONE", "TWO WORDS"]
    assert filled(engine, table, "half")[:3] == [0.0, 0.5, 1.0]
    engine.open(table).update({"text": "'changed'"}, where="x = 1")
    assert succeeded(engine.backfill(table, "u"))["rows_computed"] == 1
    assert succeeded(engine.backfill(table, "u"))["rows_computed"] == 0
    rows = {row["x"]: row["u"] for row in engine.rows(table).to_pylist()}
    assert rows[1] == "CHANGED"


def test_an_expression_that_makes_no_sense_is_refused_at_once(engine: Engine, table: TableIdent) -> None:
    with pytest.raises(InvalidInput, match="computed"):
        engine.declare(table, "u", SqlExpression("upper(missing)"))


def test_an_expression_whose_column_is_gone_fails_with_its_name(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "u", SqlExpression("x + 1"))
    engine.open(table).drop_columns(["x"])
    assert "x" in failure(engine, table, "u").message


def test_a_function_given_as_text_is_run(engine: Engine, table: TableIdent) -> None:
    text = "import math\n\ndef root(x: float) -> float:\n    return math.sqrt(x)\n"
    function = source_function("root", text, ["x"], pa.float64(), name="root", python=HERE)
    engine.declare(table, "y", function)
    assert filled(engine, table, "y")[:2] == [0.0, 1.0]


def test_a_class_given_as_text_is_made_with_its_arguments(engine: Engine, table: TableIdent) -> None:
    text = (
        "class Add:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __call__(self, x):\n        return x + self.n\n"
    )
    function = source_function("Add", text, ["x"], pa.int64(), name="add", python=HERE, arguments={"n": 100})
    engine.declare(table, "y", function)
    assert filled(engine, table, "y")[:2] == [100, 101]


@pytest.mark.parametrize(
    ("python", "requirements", "words"),
    [
        ("3.7", (), "it asks for Python 3.7"),
        (HERE, ("no-such-package>=1",), "it needs no-such-package>=1"),
        (HERE, ("numpy>=99",), "it needs numpy>=99"),
    ],
)
def test_a_function_that_the_worker_cannot_serve_fails_with_the_reason(
    engine: Engine, table: TableIdent, python: str, requirements: tuple[str, ...], words: str
) -> None:
    function = source_function(
        "f", "def f(x): return x", ["x"], pa.int64(), name="f", python=python, requirements=requirements
    )
    engine.declare(table, "y", function)
    assert words in failure(engine, table, "y").message


def test_a_query_view_has_function_columns_in_their_places(engine: Engine, table: TableIdent) -> None:
    output = pa.schema(
        [
            pa.field(SOURCE_ROW_ID, pa.int64()),
            pa.field(IS_SET, pa.bool_()),
            pa.field("x", pa.int64()),
            pa.field("y", pa.int64(), metadata={"owner": "me"}),
            pa.field("shout", pa.string()),
        ],
        metadata={"geneva::view::version": "2"},
    )
    view = engine.define_view(
        "v",
        ViewDefinition(
            ViewKind.QUERY,
            SourceQuery(("t",), {"x": "x", "shout": "upper(text)"}, "x > 1"),
            "{}",
            output,
            columns=(FunctionColumn("y", 1, geneva_column("plus", pa.int64()), ("x",)),),
        ),
    )
    assert succeeded(engine.refresh(view))["rows_written"] == 4
    found = engine.rows(view)
    assert found.schema.equals(output, check_metadata=True)
    assert found.to_pylist()[0] == {
        SOURCE_ROW_ID: 2,
        IS_SET: True,
        "x": 2,
        "y": 3,
        "shout": "",
    }
    engine.open(table).update({"x": "50"}, where="x = 3")
    assert succeeded(engine.refresh(view))["rows_computed"] == 1
    assert sorted(engine.rows(view)["y"].to_pylist()) == [3, 5, 6, 51]


@pytest.mark.parametrize("name", ["words", "words_at_once"])
def test_a_geneva_chunker_makes_children_of_each_row(engine: Engine, table: TableIdent, name: str) -> None:
    function = geneva_rows(name, FunctionKind.CHUNKER)
    output = pa.schema(
        [
            pa.field(SOURCE_ROW_ID, pa.int64()),
            pa.field(CHILD_INDEX, pa.int32()),
            pa.field("key", pa.string()),
            *function.output,
        ]
    )
    query = SourceQuery(("t",), {"key": "key"})
    view = engine.define_view("v", ViewDefinition(ViewKind.CHUNKER, query, "{}", output, function, ("text",)))
    assert succeeded(engine.refresh(view))["rows_written"] == 8
    rows = engine.rows(view).to_pylist()
    assert [(row[SOURCE_ROW_ID], row[CHILD_INDEX], row["key"], row["word"]) for row in rows][:4] == [
        (0, 0, "a", "one"),
        (1, 0, "b", "two"),
        (1, 1, "b", "words"),
        (3, 0, "c", "it's"),
    ]


def test_a_chunker_that_takes_arrays_is_traced_to_the_row_at_fault(engine: Engine) -> None:
    table = engine.create_table("texts", pa.table({"text": ["a b", "c", "d", None, "e", "f"]}))
    function = geneva_rows("words_at_once", FunctionKind.CHUNKER)
    hidden = [pa.field(SOURCE_ROW_ID, pa.int64()), pa.field(CHILD_INDEX, pa.int32())]
    definition = ViewDefinition(
        ViewKind.CHUNKER,
        SourceQuery(table.levels),
        "{}",
        pa.schema([*hidden, *function.output]),
        function,
        ("text",),
    )
    view = engine.define_view("v", definition)
    job = engine.refresh(view)
    assert job.failure is not None
    assert (job.failure.exception, job.failure.row_id) == ("AttributeError", 3)


def table_view(engine: Engine, name: str, query: SourceQuery, partition_by: str | None) -> TableIdent:
    function = geneva_rows(name, FunctionKind.TABLE)
    return engine.define_view(
        "v",
        ViewDefinition(ViewKind.UDTF, query, "{}", function.output, function, partition_by=partition_by),
    )


def test_a_table_function_replaces_the_whole_view_when_the_source_changed(
    engine: Engine, table: TableIdent
) -> None:
    view = table_view(engine, "counts", SourceQuery(("t",), None, "x < 100"), None)
    assert succeeded(engine.refresh(view))["mode"] == "full"
    assert engine.rows(view).to_pylist() == [
        {"key": "a", "rows": 3},
        {"key": "b", "rows": 1},
        {"key": "c", "rows": 1},
        {"key": None, "rows": 1},
    ]
    assert succeeded(engine.refresh(view))["mode"] == "no_op"
    engine.open(table).delete("key = 'a'")
    version = engine.open(view).version
    assert succeeded(engine.refresh(view))["mode"] == "full"
    assert engine.open(view).version == version + 1
    assert [row["key"] for row in engine.rows(view).to_pylist()] == ["b", "c", None]


def test_a_table_function_is_called_for_each_partition(engine: Engine, table: TableIdent) -> None:
    view = table_view(engine, "one_row", SourceQuery(("t",), {"key": "key"}, "key IS NOT NULL"), "key")
    succeeded(engine.refresh(view))
    rows = engine.rows(view).to_pylist()
    assert sorted((row["key"], row["rows"]) for row in rows) == [("a", 3), ("b", 1), ("c", 1)]


def test_a_table_function_may_make_rows_of_an_empty_source(engine: Engine, table: TableIdent) -> None:
    view = table_view(engine, "one_row", SourceQuery(("t",), {"key": "key"}, "x > 1000"), None)
    assert succeeded(engine.refresh(view))["rows_written"] == 1
    assert succeeded(engine.refresh(view))["mode"] == "no_op"


def test_a_window_of_the_source_moves_with_its_rows(engine: Engine, table: TableIdent) -> None:
    view = engine.create_view("v", table, None, columns={"x": "x"}, filter="x > 0", limit=2, offset=1)
    assert succeeded(engine.refresh(view))["rows_written"] == 2
    assert engine.rows(view)["x"].to_pylist() == [2, 3]
    engine.open(table).delete("x = 2")
    assert succeeded(engine.refresh(view))["rows_computed"] == 1
    assert sorted(engine.rows(view)["x"].to_pylist()) == [3, 4]


def test_another_function_recomputes_a_column_once(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", geneva_column("plus", pa.int64()), "x")
    succeeded(engine.backfill(table, "y"))
    columns = engine.operations.columns
    columns.alter(LOCAL_CALLER, table, ColumnDeclaration("y", geneva_column("doubled", pa.int64()), ("x",)))
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 6
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 0
    assert engine.rows(table)["y"].to_pylist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(InvalidInput, match="float"):
        columns.alter(
            LOCAL_CALLER, table, ColumnDeclaration("y", geneva_column("scaled", pa.float32()), ("x",))
        )


def test_a_function_that_comes_back_fills_the_column_again(engine: Engine, table: TableIdent) -> None:
    columns = engine.operations.columns
    engine.declare(table, "y", geneva_column("plus", pa.int64()), "x")
    succeeded(engine.backfill(table, "y"))
    for name, expected in (("doubled", [0, 2, 4, 6, 8, 10]), ("plus", [1, 2, 3, 4, 5, 6])):
        columns.alter(LOCAL_CALLER, table, ColumnDeclaration("y", geneva_column(name, pa.int64()), ("x",)))
        assert filled(engine, table, "y") == expected


def test_a_job_whose_column_got_another_function_publishes_nothing(engine: Engine, table: TableIdent) -> None:
    columns = engine.operations.columns
    engine.declare(table, "y", geneva_column("plus", pa.int64()), "x")
    other = ColumnDeclaration("y", geneva_column("doubled", pa.int64()), ("x",))
    engine.publisher.before_next = lambda: columns.alter(LOCAL_CALLER, table, other)
    assert "declared anew" in failure(engine, table, "y").message
    assert engine.rows(table)["y"].null_count == 6
    assert filled(engine, table, "y") == [0, 2, 4, 6, 8, 10]


def test_a_plain_column_can_be_given_a_function(engine: Engine, table: TableIdent) -> None:
    engine.open(table).add_columns(pa.field("y", pa.int64()))
    declaration = ColumnDeclaration("y", geneva_column("plus", pa.int64()), ("x",))
    engine.operations.columns.alter(LOCAL_CALLER, table, declaration)
    assert filled(engine, table, "y") == [1, 2, 3, 4, 5, 6]


def test_a_field_inside_a_column_is_read_by_its_path(engine: Engine) -> None:
    inner = pa.array([{"x": 1}, {"x": 5}], pa.struct([("x", pa.int64())]))
    table = engine.create_table("nested", pa.table({"s": inner}))
    engine.declare(table, "y", geneva_column("plus", pa.int64()), "s.x")
    assert filled(engine, table, "y") == [2, 6]
    engine.open(table).update({"s": "named_struct('x', 7)"}, where="s.x = 5")
    assert succeeded(engine.backfill(table, "y"))["rows_computed"] == 1


def test_a_dropped_column_can_be_declared_again(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", geneva_column("plus", pa.int64()), "x")
    succeeded(engine.backfill(table, "y"))
    engine.open(table).drop_columns(["y"])
    engine.declare(table, "y", SqlExpression("x + 7"))
    assert filled(engine, table, "y") == [7, 8, 9, 10, 11, 12]


def test_files_and_metadata_of_a_declaration_are_written(engine: Engine, table: TableIdent) -> None:
    declaration = ColumnDeclaration(
        "y",
        geneva_column("plus", pa.int64()),
        ("x",),
        metadata={"y": {"virtual_column": "true"}},
        files={"_udfs/abc": b"envelope"},
    )
    engine.operations.columns.declare(LOCAL_CALLER, table, [declaration])
    dataset = engine.open(table)
    assert dataset.schema.field("y").metadata == {b"virtual_column": b"true"}
    assert Path(dataset.uri.removeprefix("file://"), "_udfs/abc").read_bytes() == b"envelope"
