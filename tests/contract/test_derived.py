"""DerivedRepository, on every store."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from tests.contract.samples import a_column, a_version, a_view, an_error, stored_table
from tidemill.catalog.errors import ConcurrentModification, TableNotFound
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.columns import ColumnOutput, subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.views import (
    RefreshPolicy,
    SourceQuery,
    ViewColumn,
    ViewKind,
    ViewSource,
    source_subject,
)
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


def test_a_view_is_listed_with_all_its_sources_under_each_of_them(store: JobStore) -> None:
    first, second = uuid4(), uuid4()
    sources = (ViewSource(first, ("orders",)), ViewSource(second, ("shop", "customers"), ("id", "name")))
    view = a_view(stored_table(store, "shop", "view").table_id, sources=sources)
    with store.transaction() as tx:
        tx.derived.add_view(view)
        for source_id in (first, second):
            assert list(tx.derived.list_views_of(source_id)) == [view]


def test_a_view_in_a_form_that_nobody_reads_has_no_sources(store: JobStore) -> None:
    view = a_view(stored_table(store, "shop", "view").table_id, query=SourceQuery(()))
    with store.transaction() as tx:
        tx.derived.add_view(view)
        assert tx.derived.find_view(view.view_id) == view
        assert list(tx.derived.list_views()) == [view]


def test_the_views_that_refresh_themselves_are_listed(store: JobStore) -> None:
    tables = [stored_table(store, "shop", name) for name in ("a", "b")]
    automatic = a_view(tables[0].table_id, uuid4())
    with store.transaction() as tx:
        assert list(tx.derived.list_auto_views()) == []
        tx.derived.add_view(automatic)
        tx.derived.add_view(a_view(tables[1].table_id, uuid4(), has_auto_refresh=False))
        assert list(tx.derived.list_auto_views()) == [automatic]


def test_a_dropped_view_takes_along_what_is_kept_for_its_sources(store: JobStore) -> None:
    table, sources = stored_table(store, "shop", "view"), (uuid4(), uuid4())
    subjects = [source_subject(table.table_id, source, place) for place, source in enumerate(sources)]
    with store.transaction() as tx:
        tx.derived.add_view(a_view(table.table_id, *sources))
        for subject in subjects:
            tx.coverage.put(subject, Coverage("d"))
        tx.tables.remove(table.table_id)
        assert [list(tx.coverage.list_of(subject)) for subject in subjects] == [[], []]
        assert list(tx.derived.list_views_of(sources[1])) == []


def test_siblings_are_found_by_each_of_their_names(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    siblings = (ColumnOutput("w", "width"), ColumnOutput("h", "height"))
    column = replace(a_column(table.table_id, "w"), siblings=siblings)
    with store.transaction() as tx:
        tx.derived.add_column(column)
        assert tx.derived.find_column(table.table_id, "h") == column
        assert tx.derived.find_column(table.table_id, "w") == column


def test_a_removed_column_takes_its_coverage_along(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    column, other = a_column(table.table_id, "caption"), a_column(table.table_id, "other")
    with store.transaction() as tx:
        for added in (column, other):
            tx.derived.add_column(added)
            tx.coverage.put(added.column_id, Coverage("d"))
        tx.derived.remove_column(table.table_id, "caption")
        tx.derived.remove_column(table.table_id, "caption")
        assert list(tx.derived.list_columns(table.table_id)) == [other]
        assert tx.coverage.find(column.column_id, "d") is None
        assert tx.coverage.find(other.column_id, "d") is not None
        tx.derived.add_column(a_column(table.table_id, "caption"))


def test_a_column_gets_another_function_and_keeps_its_id(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    changed = replace(
        column, function_digest=f"sha256:{'b' * 64}", inputs=("length",), has_auto_backfill=True
    )
    with store.transaction() as tx:
        tx.derived.add_column(column)
        tx.derived.replace_function(changed)
        assert tx.derived.find_column(table.table_id, "caption") == changed


def test_what_the_function_before_covered_stays_recorded(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    with store.transaction() as tx:
        tx.derived.add_column(column)
        tx.coverage.put(column.column_id, Coverage(column.function_digest, 3))
        tx.derived.replace_function(replace(column, function_digest="sha256:new"))
        assert tx.coverage.find(column.column_id, column.function_digest) is not None


def test_versions_whose_values_are_kept_come_back_with_their_column(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    changed = replace(column, function_digest="sha256:new", kept_digests=("sha256:b", "sha256:a"))
    with store.transaction() as tx:
        tx.derived.add_column(column)
        tx.derived.replace_function(changed)
    with store.transaction() as tx:
        assert tx.derived.find_column(table.table_id, "caption") == changed


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "dev"])
def test_rows_that_a_kept_version_skipped_are_not_kept(store: JobStore, branch: str) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    old, subject = column.function_digest, subject_of(column.column_id, branch)
    skipped = replace(an_error(subject, 2), digest=old, is_skipped=True)
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1, branch=branch))
        tx.derived.add_column(column)
        tx.coverage.put(subject, Coverage(old, 3, BitMap64([1, 2])))
        tx.errors.settle(subject, BitMap64(), [skipped])
        tx.derived.replace_function(replace(column, function_digest="sha256:new", kept_digests=(old,)))
        left = tx.coverage.find(subject, old)
    assert left is not None
    assert (left.rows, left.outdated) == (BitMap64([1]), BitMap64())


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "dev"])
def test_values_of_other_inputs_are_outdated(store: JobStore, branch: str) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    subject = subject_of(column.column_id, branch)
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1, branch=branch))
        tx.derived.add_column(column)
        for digest, row in ((column.function_digest, 1), ("sha256:older", 2)):
            tx.coverage.put(subject, Coverage(digest, 3, BitMap64([row])))
        tx.derived.replace_function(replace(column, inputs=("title", "length")))
        found = tx.coverage.list_of(subject)
    assert [(len(item.rows), len(item.outdated)) for item in found] == [(0, 1), (0, 1)]


def test_the_columns_that_fill_themselves_are_those_of_all_tables(store: JobStore) -> None:
    tables = [stored_table(store, "shop", name) for name in ("a", "b")]
    automatic = [replace(a_column(table.table_id, "caption"), has_auto_backfill=True) for table in tables]
    with store.transaction() as tx:
        assert list(tx.derived.list_auto_columns()) == []
        for column in (*automatic, a_column(tables[0].table_id, "other")):
            tx.derived.add_column(column)
        listed = tx.derived.list_auto_columns()
    assert sorted(listed, key=lambda column: column.column_id) == sorted(
        automatic, key=lambda column: column.column_id
    )


def test_a_removed_column_is_forgotten_on_every_branch(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    subjects = [subject_of(column.column_id, branch) for branch in (MAIN_BRANCH, "dev")]
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1, branch="dev"))
        tx.derived.add_column(column)
        for subject in subjects:
            tx.coverage.put(subject, Coverage("d"))
            tx.errors.settle(subject, BitMap64(), [an_error(subject, 1)])
        tx.derived.remove_column(table.table_id, "caption")
        for subject in subjects:
            assert list(tx.coverage.list_of(subject)) == []
            assert list(tx.errors.list_of(subject, None, 9)) == []


def test_a_renamed_column_is_followed_by_what_reads_it(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    siblings = (ColumnOutput("w", "width"), ColumnOutput("h", "height"))
    size = replace(a_column(table.table_id, "w"), siblings=siblings)
    area = replace(a_column(table.table_id, "area"), inputs=("w", "h"))
    with store.transaction() as tx:
        tx.derived.add_column(size)
        tx.derived.add_column(area)
        tx.derived.rename_columns(table.table_id, {"w": "wide"})
        renamed = tx.derived.find_column(table.table_id, "h")
        reader = tx.derived.find_column(table.table_id, "area")
    assert renamed is not None
    assert (renamed.column_id, renamed.name, renamed.names) == (size.column_id, "wide", ("wide", "h"))
    assert reader == replace(area, inputs=("wide", "h"))


def test_all_views_are_listed(store: JobStore) -> None:
    views = [a_view(stored_table(store, "shop", name).table_id, uuid4()) for name in ("a", "b")]
    with store.transaction() as tx:
        for view in views:
            tx.derived.add_view(view)
        listed = tx.derived.list_views()
    assert sorted(listed, key=lambda view: view.view_id) == sorted(views, key=lambda view: view.view_id)


def test_a_view_with_function_columns_comes_back_as_it_was_added(store: JobStore) -> None:
    table = stored_table(store, "shop", "view")
    view = a_view(
        table.table_id,
        uuid4(),
        query=SourceQuery(("orders",), {"a": "b"}, "x > 1", limit=7, offset=2),
        output=pa.schema([pa.field("a", pa.int64(), metadata={"k": "v"})], metadata={"m": "n"}),
        columns=(ViewColumn("y", f"sha256:{'b' * 64}", ("text",)),),
        partition_by="key",
        partition_index="vector",
        statement="SELECT 1",
        policy=RefreshPolicy.INCREMENTAL,
        on_error=ErrorPolicy(ErrorAction.SKIP, 3, 0.5, ("OSError",), 100, 0.25),
        environment=Environment(("numpy",), {"A": "1"}),
    )
    with store.transaction() as tx:
        tx.derived.add_view(view)
        found = tx.derived.find_view(view.view_id)
    assert found == view
    assert found is not None
    assert found.output is not None
    assert found.output.equals(view.output, check_metadata=True)
