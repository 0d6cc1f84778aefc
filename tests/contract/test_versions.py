"""VersionRepository, on every store."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from pyroaring import BitMap64

from tests.contract.samples import a_column, a_version, a_view, an_error, stored_table
from tidemill.catalog.errors import TableNotFound, TableVersionAlreadyExists
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.views import source_subject
from tidemill.jobs.ports import JobStore


def test_a_version_comes_back_as_it_was_added(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    version = a_version(table.table_id, 3, e_tag='"abc"', metadata={"job": "j", "part": "0"})
    with store.transaction() as tx:
        tx.versions.add(version)
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 3) == version


def test_the_same_version_twice_is_refused_naming_the_table(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 3))
        with pytest.raises(TableVersionAlreadyExists) as refused:
            tx.versions.add(a_version(table.table_id, 3))
    assert (refused.value.table, refused.value.version) == (table.ident, 3)


def test_branches_and_tables_count_their_versions_apart(store: JobStore) -> None:
    first, second = stored_table(store, "shop", "a"), stored_table(store, "shop", "b")
    with store.transaction() as tx:
        tx.versions.add(a_version(first.table_id, 1))
        tx.versions.add(a_version(first.table_id, 1, branch="dev"))
        tx.versions.add(a_version(first.table_id, 1, branch="Dev"))
        tx.versions.add(a_version(second.table_id, 1))
        assert len(tx.versions.list_all(first.table_id, "dev")) == 1


def test_a_version_of_a_dropped_table_is_refused(store: JobStore) -> None:
    with store.transaction() as tx, pytest.raises(TableNotFound):
        tx.versions.add(a_version(uuid4(), 1))


def test_a_version_no_database_can_hold_is_refused_and_not_found(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 2**63 - 1))
        with pytest.raises(InvalidInput):
            tx.versions.add(a_version(table.table_id, 2**63))
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 2**64) is None
        tx.versions.remove(table.table_id, MAIN_BRANCH, 2**64)


def test_finding_a_missing_version_gives_none(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        tx.versions.add(a_version(table.table_id, 1))
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 2) is None
        assert tx.versions.find(table.table_id, "dev", 1) is None
        assert tx.versions.find(uuid4(), MAIN_BRANCH, 1) is None


def test_the_latest_version_is_the_highest_whatever_came_last(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        assert tx.versions.find_latest(table.table_id, MAIN_BRANCH) is None
        for number in (2, 10, 9):
            tx.versions.add(a_version(table.table_id, number))
        latest = tx.versions.find_latest(table.table_id, MAIN_BRANCH)
    assert latest is not None
    assert latest.version == 10


def test_all_versions_are_listed_ascending(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        for number in (2, 10, 9):
            tx.versions.add(a_version(table.table_id, number))
        listed = tx.versions.list_all(table.table_id, MAIN_BRANCH)
    assert [version.version for version in listed] == [2, 9, 10]


def test_a_removed_version_is_gone_and_others_stay(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    with store.transaction() as tx:
        for number in (1, 2):
            tx.versions.add(a_version(table.table_id, number))
        tx.versions.remove(table.table_id, MAIN_BRANCH, 1)
        assert [v.version for v in tx.versions.list_all(table.table_id, MAIN_BRANCH)] == [2]


def test_removing_a_missing_version_is_fine(store: JobStore) -> None:
    with store.transaction() as tx:
        tx.versions.remove(uuid4(), MAIN_BRANCH, 1)


def test_a_text_no_database_can_hold_is_refused_or_comes_back_whole(store: JobStore) -> None:
    table = stored_table(store, "shop", "orders")
    try:
        with store.transaction() as tx:
            tx.versions.add(a_version(table.table_id, 1, manifest_path="a\x00b"))
    except InvalidInput:
        return
    with store.transaction() as tx:
        found = tx.versions.find(table.table_id, MAIN_BRANCH, 1)
    assert found is not None
    assert found.manifest_path == "a\x00b"


def a_stored_column(store: JobStore) -> tuple[UUID, UUID]:
    """The ids of a table and of a column that is computed in it."""
    table = stored_table(store, "shop", "orders")
    column = a_column(table.table_id, "caption")
    with store.transaction() as tx:
        tx.derived.add_column(column)
    return table.table_id, column.column_id


def digests(store: JobStore, subject_id: UUID) -> list[str]:
    with store.transaction() as tx:
        return [coverage.digest for coverage in tx.coverage.list_of(subject_id)]


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "dev"])
def test_results_from_or_in_lost_versions_are_forgotten_on_their_branch(store: JobStore, branch: str) -> None:
    table_id, column_id = a_stored_column(store)
    subjects = {name: subject_of(column_id, name) for name in (MAIN_BRANCH, "dev")}
    with store.transaction() as tx:
        for subject in subjects.values():
            tx.coverage.put(subject, Coverage("early", 4, published=4))
            tx.coverage.put(subject, Coverage("held", 4, published=5))
            tx.coverage.put(subject, Coverage("read", 5))
        tx.versions.forget_results(table_id, branch, 5)
    kept = subjects.pop(branch)
    (other,) = subjects.values()
    assert digests(store, kept) == ["early"]
    assert digests(store, other) == ["early", "held", "read"]


def test_errors_are_forgotten_with_the_coverage_they_belong_to(store: JobStore) -> None:
    table_id, column_id = a_stored_column(store)
    with store.transaction() as tx:
        for row_id, (digest, watermark) in enumerate({"early": 4, "late": 5}.items()):
            tx.coverage.put(column_id, Coverage(digest, watermark))
            tx.errors.settle(column_id, BitMap64(), [an_error(column_id, row_id, digest=digest)])
        tx.versions.forget_results(table_id, MAIN_BRANCH, 5)
        assert [error.digest for error in tx.errors.list_of(column_id, None, 9)] == ["early"]


def test_views_are_made_from_main_and_judged_by_what_they_read(store: JobStore) -> None:
    view, source = stored_table(store, "shop", "view"), stored_table(store, "shop", "source")
    with store.transaction() as tx:
        tx.derived.add_view(a_view(view.table_id, source.table_id))
        tx.coverage.put(view.table_id, Coverage("early", 4, published=9))
        tx.coverage.put(view.table_id, Coverage("late", 5))
        tx.versions.forget_results(source.table_id, "dev", 5)
    assert digests(store, view.table_id) == ["early", "late"]
    with store.transaction() as tx:
        tx.versions.forget_results(source.table_id, MAIN_BRANCH, 5)
    assert digests(store, view.table_id) == ["early"]


def test_each_source_of_a_view_is_forgotten_by_itself(store: JobStore) -> None:
    view, first, second = (stored_table(store, "shop", name) for name in ("view", "first", "second"))
    subject = source_subject(view.table_id, second.table_id, 1)
    with store.transaction() as tx:
        tx.derived.add_view(a_view(view.table_id, first.table_id, second.table_id))
        tx.coverage.put(view.table_id, Coverage("d", 7))
        tx.coverage.put(subject, Coverage("early", 4))
        tx.coverage.put(subject, Coverage("late", 5))
        tx.versions.forget_results(second.table_id, MAIN_BRANCH, 5)
    assert (digests(store, view.table_id), digests(store, subject)) == (["d"], ["early"])


def test_a_view_that_lost_versions_no_longer_holds_what_they_held(store: JobStore) -> None:
    view, first, second = (stored_table(store, "shop", name) for name in ("view", "first", "second"))
    subjects = [view.table_id, source_subject(view.table_id, second.table_id, 1)]
    with store.transaction() as tx:
        tx.derived.add_view(a_view(view.table_id, first.table_id, second.table_id))
        for subject in subjects:
            tx.coverage.put(subject, Coverage("kept", 9, published=4))
            tx.coverage.put(subject, Coverage("lost", 1, published=5))
        tx.versions.forget_results(view.table_id, "dev", 5)
    assert [digests(store, subject) for subject in subjects] == [["kept", "lost"]] * 2
    with store.transaction() as tx:
        tx.versions.forget_results(view.table_id, MAIN_BRANCH, 5)
    assert [digests(store, subject) for subject in subjects] == [["kept"]] * 2


def test_a_removed_branch_takes_along_what_its_columns_hold(store: JobStore) -> None:
    table_id, column_id = a_stored_column(store)
    on_branch = subject_of(column_id, "dev")
    with store.transaction() as tx:
        tx.versions.add(a_version(table_id, 1))
        tx.versions.add(a_version(table_id, 1, branch="dev"))
        for subject in (column_id, on_branch):
            tx.coverage.put(subject, Coverage("d", 1))
            tx.errors.settle(subject, BitMap64(), [an_error(subject, 1)])
        tx.versions.remove_branch(table_id, "dev")
        assert tx.versions.find_latest(table_id, "dev") is None
        assert tx.versions.find_latest(table_id, MAIN_BRANCH) is not None
        assert list(tx.errors.list_of(on_branch, None, 9)) == []
        assert len(tx.errors.list_of(column_id, None, 9)) == 1
    assert digests(store, on_branch) == []
    assert digests(store, column_id) == ["d"]
