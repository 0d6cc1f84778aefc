"""What counts as reading a column that is to be dropped, by kind of reader; one database is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contract.test_column_dependants import CASCADE, FORCE, ROWS, TWICE, declared, drop, names, twice
from tests.contract.test_dependants import exists
from tests.engine import Engine, chunker_function, column_function, table_function
from tidemill.catalog.errors import HasDependants
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import ColumnOutput
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.service.columns import ColumnDeclaration, SqlExpression
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition


def letters(text: str) -> Iterator[dict[str, str]]:
    yield from ({"letter": letter} for letter in text)


LETTERS = chunker_function(letters, pa.schema([pa.field("letter", pa.string())]), "text")
COUNTED = table_function(lambda batches: batches, pa.schema([pa.field("n", pa.int64())]))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path / "lake")
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    return engine.create_table("t", ROWS)


def query_view(**changes: Any) -> ViewDefinition:
    query = SourceQuery(("t",), **{"columns": {"id": "id"}, **changes.pop("query", {})})
    return ViewDefinition(changes.pop("kind", ViewKind.QUERY), query, "{}", None, **changes)


def sql_view(statement: str) -> ViewDefinition:
    return ViewDefinition(ViewKind.QUERY, SourceQuery(()), statement, None, statement=statement)


@pytest.mark.parametrize(
    "definition",
    [
        query_view(query={"columns": {"n": "X + 1"}}),
        query_view(query={"filter": "x > 1"}),
        query_view(query={"columns": None}),
        query_view(columns=(FunctionColumn("n", 1, TWICE, ("x",)),)),
        query_view(kind=ViewKind.UDTF, function=COUNTED, partition_by="x"),
        sql_view("SELECT sum(x) AS n FROM t"),
        sql_view("SELECT id FROM t WHERE x > 1"),
        sql_view("SELECT * FROM t"),
    ],
    ids=["expression", "filter", "everything", "function", "partition", "sql", "sql-filter", "sql-star"],
)
def test_views_keep_what_they_read(engine: Engine, table: TableIdent, definition: ViewDefinition) -> None:
    view = engine.define_view("v", definition)
    with pytest.raises(HasDependants, match="1 object depends on it: v"):
        drop(engine, table, "x")
    drop(engine, table, "x", policy=CASCADE)
    assert not exists(engine, view)


@pytest.mark.parametrize(
    "definition",
    [query_view(query={"filter": "text <> 'x'"}), sql_view("SELECT id, 'x' AS y FROM t")],
    ids=["literal", "sql-literal"],
)
def test_views_do_not_keep_what_they_only_mention(
    engine: Engine, table: TableIdent, definition: ViewDefinition
) -> None:
    engine.define_view("v", definition)
    drop(engine, table, "x")


def test_a_chunker_keeps_its_input(engine: Engine, table: TableIdent) -> None:
    engine.create_view("v", table, LETTERS, columns={})
    with pytest.raises(HasDependants, match=": v"):
        drop(engine, table, "text")


def test_a_view_of_everything_does_not_keep_columns_that_came_later(
    engine: Engine, table: TableIdent
) -> None:
    engine.define_view("v", sql_view("SELECT * FROM t"))
    engine.create_view("w", table, None)
    engine.open(table).add_columns({"late": "x"})
    drop(engine, table, "late")


def test_a_field_inside_a_column_is_kept_by_those_who_read_it_or_all_of_it(
    engine: Engine, table: TableIdent
) -> None:
    engine.create_view("inside", table, None, columns={"a": "s.a"})
    with pytest.raises(HasDependants, match=": inside"):
        drop(engine, table, "s.a")
    with pytest.raises(HasDependants, match=": inside"):
        drop(engine, table, "s")
    drop(engine, table, "s.b")
    engine.create_view("whole", table, None, columns={"s": "s"})
    with pytest.raises(HasDependants, match="2 objects depend on it: inside, whole"):
        drop(engine, table, "s.a")


def test_a_renamed_input_is_known_by_its_new_name(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", TWICE, "x")
    change: Any = {"path": "x", "name": "renamed"}
    engine.open(table).alter_columns(change)
    with pytest.raises(HasDependants, match="column 'y'"):
        drop(engine, table, "renamed")


def test_a_branch_has_no_dependants(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", TWICE, "x")
    engine.open(table).create_branch("other")
    drop(engine, table, "x", branch="other")
    assert "x" in names(engine, table)
    assert declared(engine, table) == ["y"]


def test_an_input_of_a_computed_column_is_not_dropped_and_the_refusal_names_it(
    engine: Engine, table: TableIdent
) -> None:
    engine.declare(table, "y", TWICE, "x")
    engine.declare(table, "z", SqlExpression("y + 1"))
    with pytest.raises(HasDependants) as refused:
        drop(engine, table, "x")
    said = "Column 'x' of t cannot be dropped: 2 objects depend on it: column 'y', column 'z'. "
    assert str(refused.value).startswith(said)
    with pytest.raises(HasDependants, match=r"Columns 'x', 'text' of t .* depend on them: "):
        drop(engine, table, "x", "text")
    assert names(engine, table) == ["id", "x", "text", "s", "y", "z"]


def test_columns_that_read_each_other_can_be_dropped_together(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", TWICE, "x")
    drop(engine, table, "x", "y")
    assert (names(engine, table), declared(engine, table)) == (["id", "text", "s"], [])


def test_a_column_that_nothing_reads_is_dropped(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", TWICE, "x")
    engine.declare(table, "z", SqlExpression("concat('id ', text)"))
    engine.create_view("v", table, None, columns={"name": "upper(text)"}, filter="text <> 'id'")
    drop(engine, table, "id")
    assert "id" not in names(engine, table)


def test_siblings_go_together_in_a_cascade_and_only_together_by_name(
    engine: Engine, table: TableIdent
) -> None:
    pair = column_function(twice, pa.struct([("a", pa.int64()), ("b", pa.int64())]), "value", digest="2")
    siblings = (ColumnOutput("one", "a"), ColumnOutput("two", "b"))
    declaration = ColumnDeclaration("one", pair, ("x",), siblings)
    engine.operations.columns.declare(LOCAL_CALLER, table, [declaration])
    with pytest.raises(InvalidInput, match="drop them together"):
        drop(engine, table, "two", policy=CASCADE)
    drop(engine, table, "x", policy=CASCADE)
    assert names(engine, table) == ["id", "text", "s"]


def test_a_forced_drop_leaves_dependants_whose_status_says_why(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", TWICE, "x")
    engine.declare(table, "z", SqlExpression("x + 1"))
    view = engine.create_view("v", table, None, columns={"x": "x"})
    engine.backfill(table, "y")
    engine.refresh(view)
    drop(engine, table, "x", policy=FORCE)
    assert declared(engine, table) == ["y", "z"]
    provenance = engine.operations.provenance
    for column in ("y", "z"):
        reason = provenance.status(LOCAL_CALLER, table, column, None).reason
        assert reason is not None
        assert reason.startswith("it cannot be computed: ")
        assert "x" in reason.removeprefix("it cannot be computed: ")
    status = engine.operations.view_status.status(LOCAL_CALLER, view)
    assert not status.is_fresh
    assert "it cannot be refreshed: " in status.reason
    assert "No field named x" in status.reason


def test_the_status_of_a_column_that_can_be_computed_has_no_reason(engine: Engine, table: TableIdent) -> None:
    engine.declare(table, "y", TWICE, "x")
    assert engine.operations.provenance.status(LOCAL_CALLER, table, "y", None).reason is None
