"""Drops of columns that computed columns, views or stored queries read: refused, cascading or forced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.contract.test_dependants import MayNotRead, exists
from tests.engine import Engine, column_function
from tidemill.catalog.errors import HasDependants, TableColumnNotFound
from tidemill.catalog.model.callers import LOCAL_CALLER, Permission
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import DependantPolicy, NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.tables import MAIN_BRANCH, StoredQuery, Table, TableKind
from tidemill.errors import PermissionDenied, TidemillError
from tidemill.jobs.model.views import SourceQuery
from tidemill.jobs.service.column_drops import ColumnDrops
from tidemill.jobs.service.columns import ColumnDeclaration
from tidemill.jobs.service.unchanged_columns import retry_changed

INNER = pa.array([{"a": 1, "b": 2}] * 3, pa.struct([("a", pa.int64()), ("b", pa.int64())]))
ROWS = pa.table(
    {
        "id": pa.array(range(3), pa.int64()),
        "x": pa.array(range(3), pa.int64()),
        "text": ["a", "b", "c"],
        "s": INNER,
    }
)
CASCADE, FORCE = DependantPolicy.CASCADE, DependantPolicy.FORCE


def twice(value: int) -> int:
    return 2 * value


TWICE = column_function(twice, pa.int64(), "value", kind=FunctionKind.SCALAR)


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path / "lake", database_url=store_url)
    yield running
    running.close()


@pytest.fixture
def table(engine: Engine) -> TableIdent:
    return engine.create_table("t", ROWS)


def drop(
    engine: Engine,
    table: TableIdent,
    *columns: str,
    policy: DependantPolicy = DependantPolicy.RESTRICT,
    branch: str = MAIN_BRANCH,
) -> None:
    engine.operations.schemas.drop_columns(LOCAL_CALLER, table, branch, columns, policy)


def names(engine: Engine, table: TableIdent) -> list[str]:
    return list(engine.open(table).schema.names)


def declared(engine: Engine, table: TableIdent) -> list[str]:
    return [item.column.name for item in engine.operations.columns.list_declared(LOCAL_CALLER, table)]


def store_query(engine: Engine, name: str, source: TableIdent, **columns: str) -> TableIdent:
    ident = TableIdent(NamespacePath(), name)

    def create() -> None:
        query = SourceQuery(source.levels, columns)
        projected, version = engine.operations.views.project(LOCAL_CALLER, query, "query")
        table = Table(uuid4(), ident, "", TableKind.QUERY)
        stored = StoredQuery(table, "SELECT", source, columns, None, None, projected)
        engine.operations.stored_queries.create(LOCAL_CALLER, stored, version)

    retry_changed(create)
    return ident


def test_a_cascade_takes_computed_columns_and_views_along_in_one_version(
    engine: Engine, table: TableIdent
) -> None:
    engine.declare(table, "y", TWICE, "x")
    engine.declare(table, "z", TWICE, "y")
    engine.declare(table, "other", TWICE, "id")
    first = engine.create_view("first", table, None, columns={"z": "z"})
    second = engine.create_view("second", first, None, columns={"z": "z"})
    stored = store_query(engine, "q", table, one="y + 1")
    kept = engine.create_view("kept", table, None, columns={"id": "id"})
    with engine.lake.store.transaction() as tx:
        location = Path(tx.tables.get(first).location)
    version = engine.open(table).version
    drop(engine, table, "x", policy=CASCADE)
    assert engine.open(table).version == version + 1
    assert (names(engine, table), declared(engine, table)) == (["id", "text", "s", "other"], ["other"])
    assert not any(exists(engine, ident) for ident in (first, second, stored))
    assert exists(engine, kept)
    assert not location.exists()


def test_a_stored_query_keeps_its_columns_and_its_table(engine: Engine, table: TableIdent) -> None:
    stored = store_query(engine, "q", table, one="x + 1")
    with pytest.raises(HasDependants, match=": q"):
        drop(engine, table, "x")
    drop(engine, table, "text")
    with pytest.raises(HasDependants, match="1 object depends on it: q"):
        engine.operations.tables.drop(LOCAL_CALLER, table)
    engine.operations.tables.drop(LOCAL_CALLER, table, CASCADE)
    assert not exists(engine, stored)


def planned(engine: Engine, authorizer: MayNotRead, policy: DependantPolicy) -> None:
    lake = engine.lake
    drops = ColumnDrops(lake.store, authorizer, lake.files, lake.sources)
    with lake.store.transaction() as tx:
        table = tx.tables.get(table_ident(("t",)))
    drops.plan(LOCAL_CALLER, table, [("x",)], policy)


@pytest.mark.parametrize("policy", [DependantPolicy.RESTRICT, CASCADE])
def test_views_that_the_caller_may_not_read_are_only_counted(
    engine: Engine, table: TableIdent, policy: DependantPolicy
) -> None:
    engine.declare(table, "y", TWICE, "x")
    engine.create_view("secret", table, None, columns={"x": "x"})
    with pytest.raises(HasDependants) as refused:
        planned(engine, MayNotRead(Permission.READ, "secret"), policy)
    assert "2 objects depend on it: column 'y', 1 other you cannot see" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_computed_columns_of_a_table_that_the_caller_may_not_read_are_only_counted(
    engine: Engine, table: TableIdent
) -> None:
    engine.declare(table, "y", TWICE, "x")
    with pytest.raises(HasDependants, match="1 object depends on it: 1 object you cannot see"):
        planned(engine, MayNotRead(Permission.READ, "t"), DependantPolicy.RESTRICT)


def test_a_cascade_needs_the_permission_to_drop_each_view(engine: Engine, table: TableIdent) -> None:
    engine.create_view("v", table, None, columns={"x": "x"})
    with pytest.raises(PermissionDenied, match=r"manage.*v"):
        planned(engine, MayNotRead(Permission.MANAGE, "v"), CASCADE)


def before(
    monkeypatch: pytest.MonkeyPatch, target: Any, method: str, interrupt: Callable[[], object]
) -> None:
    """Has something happen before the first call of a method."""
    called = getattr(target, method)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(target, method, called)
        interrupt()
        return called(*arguments, **named)

    monkeypatch.setattr(target, method, interrupted)


DEPENDANTS: Sequence[tuple[str, Callable[[Engine, TableIdent], object]]] = [
    ("column 'y'", lambda engine, table: engine.declare(table, "y", TWICE, "x")),
    ("v", lambda engine, table: engine.create_view("v", table, None, columns={"x": "x"})),
    ("q", lambda engine, table: store_query(engine, "q", table, x="x")),
]


@pytest.mark.parametrize(("name", "create"), DEPENDANTS)
def test_a_drop_sees_what_comes_to_read_the_column_before_it_commits(
    engine: Engine,
    table: TableIdent,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    create: Callable[[Engine, TableIdent], object],
) -> None:
    before(monkeypatch, engine.lake.versions, "commit", lambda: create(engine, table))
    with pytest.raises(HasDependants, match=f"1 object depends on it: {name}"):
        drop(engine, table, "x")
    assert "x" in names(engine, table)


@pytest.mark.parametrize(("name", "create"), DEPENDANTS)
def test_a_cascade_takes_what_comes_to_read_the_column_before_it_commits(
    engine: Engine,
    table: TableIdent,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    create: Callable[[Engine, TableIdent], object],
) -> None:
    before(monkeypatch, engine.lake.versions, "commit", lambda: create(engine, table))
    drop(engine, table, "x", policy=CASCADE)
    assert names(engine, table) == ["id", "text", "s"]
    assert not exists(engine, table_ident((name,)))


def altered(engine: Engine, table: TableIdent) -> None:
    engine.operations.columns.alter(LOCAL_CALLER, table, ColumnDeclaration("known", TWICE, ("x",)))


@pytest.mark.parametrize(
    ("place", "method", "create"),
    [
        ("data", "add_empty_columns", DEPENDANTS[0][1]),
        ("data", "create", DEPENDANTS[1][1]),
        ("files", "location_of", DEPENDANTS[2][1]),
    ],
    ids=["column", "view", "query"],
)
def test_what_reads_a_column_that_is_dropped_meanwhile_is_not_created(
    engine: Engine,
    table: TableIdent,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    method: str,
    create: Callable[[Engine, TableIdent], object],
) -> None:
    before(monkeypatch, getattr(engine.lake, place), method, lambda: drop(engine, table, "x"))
    with pytest.raises(TidemillError, match="x"):
        create(engine, table)
    assert names(engine, table) == ["id", "text", "s"]
    assert declared(engine, table) == []
    assert not any(exists(engine, table_ident((name,))) for name in ("v", "q"))


def test_a_function_that_reads_a_column_which_is_dropped_meanwhile_is_not_bound(
    engine: Engine, table: TableIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.declare(table, "known", TWICE, "id")
    operations: Any = engine.operations.columns
    before(monkeypatch, operations, "_write_files", lambda: drop(engine, table, "x"))
    with pytest.raises(TableColumnNotFound, match="'x'"):
        altered(engine, table)
    (column,) = operations.list_declared(LOCAL_CALLER, table)
    assert column.column.inputs == ("id",)


def test_a_view_is_created_beside_a_writer(
    engine: Engine, table: TableIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, engine.lake.data, "create", lambda: engine.append(table, ROWS))
    assert exists(engine, engine.create_view("v", table, None, columns={"x": "x"}))
