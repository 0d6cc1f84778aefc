"""DerivedRepository, on every store."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.samples import a_column, a_view, stored_table
from tidemill.catalog.errors import ConcurrentModification, TableNotFound
from tidemill.jobs.model.derived import SourceQuery, ViewKind
from tidemill.jobs.ports import JobStore


def test_a_column_comes_back_as_it_was_added(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    with store.transaction() as tx:
        tx.derived.add_column(column)
        assert tx.derived.find_column(table.table_id, "caption") == column
        assert tx.derived.find_column(table.table_id, "Caption") is None


def test_columns_of_a_table_are_listed_by_name(store: JobStore) -> None:
    table, other = stored_table(store, "shop", "orders"), stored_table(store, "shop", "other")
    with store.transaction() as tx:
        for name in ("b", "a", "B"):
            tx.derived.add_column(a_column(table.table_id, name))
        tx.derived.add_column(a_column(other.table_id, "a"))
        assert [column.name for column in tx.derived.list_columns(table.table_id)] == ["B", "a", "b"]


def test_a_second_function_for_a_column_is_a_conflict(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.derived.add_column(a_column(table.table_id, "caption"))
        with pytest.raises(ConcurrentModification):
            tx.derived.add_column(a_column(table.table_id, "caption"))


def test_a_column_of_a_dropped_table_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(TableNotFound):
        tx.derived.add_column(a_column(uuid4(), "caption"))


def test_a_view_comes_back_as_it_was_added(store: JobStore) -> None:
    table = stored_table(store, "shop", "view")
    view = a_view(table.table_id, uuid4())
    with store.transaction() as tx:
        tx.derived.add_view(view)
        assert tx.derived.find_view(view.view_id) == view


def test_a_view_of_everything_without_a_function_comes_back_as_it_was_added(store: JobStore) -> None:
    table = stored_table(store, "shop", "view")
    view = a_view(
        table.table_id,
        uuid4(),
        kind=ViewKind.QUERY,
        query=SourceQuery(("orders",)),
        function_digest=None,
        inputs=(),
        has_auto_refresh=False,
    )
    with store.transaction() as tx:
        tx.derived.add_view(view)
        assert tx.derived.find_view(view.view_id) == view


def test_the_order_of_a_views_columns_is_kept(store: JobStore) -> None:
    table = stored_table(store, "shop", "view")
    columns = {"z": "1", "a": "2", "m": "3"}
    with store.transaction() as tx:
        tx.derived.add_view(a_view(table.table_id, uuid4(), query=SourceQuery(("orders",), columns)))
        found = tx.derived.find_view(table.table_id)
    assert found is not None
    assert found.query.columns is not None
    assert list(found.query.columns) == ["z", "a", "m"]


def test_a_view_is_defined_once(store: JobStore) -> None:
    table = stored_table(store, "shop", "view")
    with store.transaction() as tx:
        tx.derived.add_view(a_view(table.table_id, uuid4()))
        with pytest.raises(ConcurrentModification):
            tx.derived.add_view(a_view(table.table_id, uuid4()))


def test_a_view_without_its_table_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(TableNotFound):
        tx.derived.add_view(a_view(uuid4(), uuid4()))


def test_finding_a_missing_view_gives_none(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.derived.find_view(uuid4()) is None


def test_the_views_of_a_source_are_listed(store: JobStore) -> None:
    source = uuid4()
    tables = [stored_table(store, "shop", name) for name in ("a", "b", "c")]
    with store.transaction() as tx:
        for table, source_id in zip(tables, (source, source, uuid4()), strict=True):
            tx.derived.add_view(a_view(table.table_id, source_id))
        listed = {view.view_id for view in tx.derived.list_views_of(source)}
    assert listed == {tables[0].table_id, tables[1].table_id}
