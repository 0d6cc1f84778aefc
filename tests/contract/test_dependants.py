"""Drops of tables that views are made from: refused, cascading or forced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.engine import Engine
from tidemill.catalog.errors import HasDependants, TableNotFound
from tidemill.catalog.model.callers import LOCAL_CALLER, Caller, Permission
from tidemill.catalog.model.identifiers import (
    CreateMode,
    DependantPolicy,
    DropBehavior,
    DropMode,
    NamespacePath,
    TableIdent,
)
from tidemill.catalog.operations.dependants import lock_for_removal
from tidemill.catalog.operations.receipts import Mutation
from tidemill.errors import PermissionDenied

ROWS = pa.table({"x": pa.array(range(3), pa.int64())})
SPACE = NamespacePath(("space",))


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path / "lake", database_url=store_url)
    yield running
    running.close()


@pytest.fixture
def chain(engine: Engine) -> list[TableIdent]:
    """A table, a view of it and a view of that."""
    table = engine.create_table("t", ROWS)
    first = engine.create_view("first", table, None)
    return [table, first, engine.create_view("second", first, None, columns={"x": "x"})]


def exists(engine: Engine, ident: TableIdent) -> bool:
    with engine.lake.store.transaction() as tx:
        return tx.tables.find(ident) is not None


def test_a_table_with_views_is_not_dropped_and_the_refusal_names_them(
    engine: Engine, chain: list[TableIdent]
) -> None:
    with pytest.raises(HasDependants, match="2 objects depend on it: first, second"):
        engine.operations.tables.drop(LOCAL_CALLER, chain[0])
    with pytest.raises(HasDependants, match="1 object depends on it: second"):
        engine.operations.registrations.deregister(LOCAL_CALLER, chain[1])
    assert all(exists(engine, ident) for ident in chain)
    assert engine.rows(chain[0]).num_rows == 3


def test_a_cascading_drop_takes_all_views_along(engine: Engine, chain: list[TableIdent]) -> None:
    engine.operations.tables.drop(LOCAL_CALLER, chain[0], DependantPolicy.CASCADE)
    assert not any(exists(engine, ident) for ident in chain)


def test_a_forced_drop_leaves_the_views(engine: Engine, chain: list[TableIdent]) -> None:
    engine.operations.tables.drop(LOCAL_CALLER, chain[0], DependantPolicy.FORCE)
    assert [exists(engine, ident) for ident in chain] == [False, True, True]
    engine.operations.tables.drop(LOCAL_CALLER, chain[2])
    engine.operations.tables.drop(LOCAL_CALLER, chain[1])


def test_views_inside_a_namespace_go_with_it_and_those_outside_keep_it(engine: Engine) -> None:
    namespaces = engine.operations.namespaces
    namespaces.create(Mutation(LOCAL_CALLER), SPACE, CreateMode.CREATE, {})
    table = TableIdent(SPACE, "t")
    engine.operations.tables.create(LOCAL_CALLER, table, ROWS.to_reader(), CreateMode.CREATE, {})
    outside = engine.create_view("outside", table, None)

    def drop(policy: DependantPolicy = DependantPolicy.RESTRICT) -> None:
        namespaces.drop(Mutation(LOCAL_CALLER), SPACE, DropMode.FAIL, DropBehavior.CASCADE, policy)

    with pytest.raises(HasDependants, match=r"Namespace space cannot be dropped: .*: outside"):
        drop()
    assert exists(engine, table)
    engine.operations.registrations.rename(LOCAL_CALLER, outside, TableIdent(SPACE, "inside"))
    drop()
    assert not exists(engine, table)


class MayNotRead:
    """Everything is allowed except what is named here."""

    def __init__(self, permission: Permission, name: str) -> None:
        self._denied = permission, name

    def require(self, caller: Caller, permission: Permission, resource: object) -> None:
        if (permission, str(resource)) == self._denied:
            raise PermissionDenied(caller.principal, permission.value, str(resource))

    def sees(self, caller: Caller, resource: object) -> bool:
        return str(resource) != self._denied[1]


@pytest.mark.parametrize("policy", [DependantPolicy.RESTRICT, DependantPolicy.CASCADE])
def test_views_that_the_caller_may_not_read_are_only_counted(
    engine: Engine, chain: list[TableIdent], policy: DependantPolicy
) -> None:
    authorizer = MayNotRead(Permission.READ, "second")
    with engine.lake.store.transaction() as tx:
        table = tx.tables.get(chain[0])
        with pytest.raises(HasDependants) as caught:
            lock_for_removal(tx, authorizer, LOCAL_CALLER, "Table t", [table], policy)
    assert "2 objects depend on it: first, 1 other you cannot see" in str(caught.value)
    assert "second" not in str(caught.value)


def test_a_cascade_needs_the_permission_to_drop_each_view(engine: Engine, chain: list[TableIdent]) -> None:
    authorizer = MayNotRead(Permission.MANAGE, "second")
    with engine.lake.store.transaction() as tx:
        table = tx.tables.get(chain[0])
        with pytest.raises(PermissionDenied, match=r"manage.*second"):
            lock_for_removal(tx, authorizer, LOCAL_CALLER, "Table t", [table], DependantPolicy.CASCADE)


def test_a_view_whose_source_is_dropped_while_it_is_created_is_not_created(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = engine.create_table("t", ROWS)
    create = engine.lake.data.create

    def dropped_before(*arguments: object) -> object:
        engine.operations.tables.drop(LOCAL_CALLER, table)
        return create(*arguments)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(engine.lake.data, "create", dropped_before)
    with pytest.raises(TableNotFound):
        engine.create_view("v", table, None)
    assert not exists(engine, TableIdent(NamespacePath(), "v"))


def test_many_dependants_are_counted_beyond_the_first_names(engine: Engine) -> None:
    table = engine.create_table("t", ROWS)
    for _ in range(7):
        engine.create_view(f"v{uuid4().hex[:8]}", table, None)
    with pytest.raises(HasDependants, match=r"7 objects depend on it: .*, 2 more"):
        engine.operations.tables.drop(LOCAL_CALLER, table)
