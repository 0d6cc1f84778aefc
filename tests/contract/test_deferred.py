"""Writes that wait for a version's manifest, on every store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pyroaring import BitMap64

from tests.contract.samples import a_column, a_part, a_version, an_error, stored_table, submitted
from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.jobs.model.columns import ColumnOutput, ComputedColumn
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.ports import JobStore

DIGEST = "sha256:function"
BIG = (1 << 64) - 2
COVERED = Coverage(DIGEST, watermark=3, rows=BitMap64([1, 2, BIG]), published=4, outdated=BitMap64([9]))


@pytest.fixture
def table(store: JobStore) -> Table:
    return stored_table(store, "shop", "orders")


def deferred(store: JobStore, write: Callable[[Any], None]) -> bytes:
    """What a transaction takes down that writes only what is deferred."""
    with store.transaction() as tx:
        deferring = tx.deferring()
        write(deferring.transaction)
        packed = deferring.packed()
    assert packed is not None
    return packed


def apply(store: JobStore, packed: bytes) -> None:
    with store.transaction() as tx:
        tx.apply(packed)


def column_of(table: Table) -> ComputedColumn:
    outputs = (ColumnOutput("caption", "text"), ColumnOutput("caption_length", "length"))
    column = a_column(table.table_id, "caption")
    return replace(column, siblings=outputs, has_auto_backfill=True, kept_digests=("sha256:old",))


def test_nothing_is_taken_down_where_nothing_is_written(store: JobStore, table: Table) -> None:
    with store.transaction() as tx:
        deferring = tx.deferring()
        assert deferring.transaction.tables.get(table.ident) == table
        assert deferring.packed() is None


def test_properties_wait(store: JobStore, table: Table) -> None:
    packed = deferred(store, lambda tx: tx.tables.set_properties(table.table_id, {"a": "ü"}))
    with store.transaction() as tx:
        assert tx.tables.get(table.ident).properties == {}
    apply(store, packed)
    with store.transaction() as tx:
        assert tx.tables.get(table.ident).properties == {"a": "ü"}


def test_a_part_waits(store: JobStore) -> None:
    part = a_part(submitted(store).job_id, "p0", epoch=3)
    packed = deferred(store, lambda tx: tx.parts.add(part))
    with store.transaction() as tx:
        assert tx.parts.list_of(part.job_id) == []
    apply(store, packed)
    with store.transaction() as tx:
        assert tx.parts.list_of(part.job_id) == [part]


def test_a_part_that_was_applied_is_refused_before_it_waits(store: JobStore) -> None:
    part = a_part(submitted(store).job_id, "p0")
    with store.transaction() as tx:
        tx.parts.add(part)
    with pytest.raises(ConcurrentModification), store.transaction() as tx:
        tx.deferring().transaction.parts.add(part)


def test_coverage_waits(store: JobStore) -> None:
    subject = UUID(int=7)
    packed = deferred(store, lambda tx: tx.coverage.put(subject, COVERED))
    with store.transaction() as tx:
        assert tx.coverage.find(subject, DIGEST) is None
    apply(store, packed)
    with store.transaction() as tx:
        assert tx.coverage.find(subject, DIGEST) == replace(COVERED, revision=1)


def test_coverage_of_another_revision_is_refused_before_it_waits(store: JobStore) -> None:
    with pytest.raises(ConcurrentModification), store.transaction() as tx:
        tx.deferring().transaction.coverage.put(UUID(int=7), replace(COVERED, revision=2))


def test_coverage_that_changed_meanwhile_stays_as_it_is(store: JobStore, table: Table) -> None:
    subject = UUID(int=7)

    def write(tx: Any) -> None:
        tx.coverage.put(subject, COVERED)
        tx.tables.set_properties(table.table_id, {"a": "1"})

    packed = deferred(store, write)
    other = replace(COVERED, rows=BitMap64([5]))
    with store.transaction() as tx:
        tx.coverage.put(subject, other)
    apply(store, packed)
    with store.transaction() as tx:
        assert tx.coverage.find(subject, DIGEST) == replace(other, revision=1)
        assert tx.tables.get(table.ident).properties == {"a": "1"}


def test_a_withdrawal_waits(store: JobStore) -> None:
    subject = UUID(int=7)
    with store.transaction() as tx:
        tx.coverage.put(subject, COVERED)
    packed = deferred(store, lambda tx: tx.coverage.withdraw(subject, "another", BitMap64([2, 9])))
    apply(store, packed)
    with store.transaction() as tx:
        left = tx.coverage.find(subject, DIGEST)
    assert left is not None
    assert (left.rows, left.outdated) == (BitMap64([1, BIG]), BitMap64())


@pytest.mark.parametrize("done", [BitMap64([1, 2]), None])
def test_errors_wait(store: JobStore, done: BitMap64 | None) -> None:
    subject = UUID(int=7)
    with store.transaction() as tx:
        tx.errors.settle(subject, BitMap64(), [an_error(subject, 1)])
    failure = an_error(subject, BIG)
    odd = replace(failure, failure=replace(failure.failure, message="\udc80 \x00"))
    packed = deferred(store, lambda tx: tx.errors.settle(subject, done, [odd]))
    apply(store, packed)
    with store.transaction() as tx:
        assert [error.failure.row_id for error in tx.errors.list_of(subject, None, 10)] == [BIG]


def test_columns_wait(store: JobStore, table: Table) -> None:
    column = column_of(table)
    packed = deferred(store, lambda tx: tx.derived.add_column(column))
    with store.transaction() as tx:
        assert tx.derived.list_columns(table.table_id) == []
    apply(store, packed)
    with store.transaction() as tx:
        assert tx.derived.list_columns(table.table_id) == [column]
    apply(store, deferred(store, lambda tx: tx.derived.rename_columns(table.table_id, {"text": "body"})))
    with store.transaction() as tx:
        assert tx.derived.list_columns(table.table_id)[0].inputs == ("body", "length")
    apply(store, deferred(store, lambda tx: tx.derived.remove_column(table.table_id, "caption")))
    with store.transaction() as tx:
        assert tx.derived.list_columns(table.table_id) == []


def test_a_column_that_waits_since_before_values_could_be_kept_is_added(
    store: JobStore, table: Table
) -> None:
    column = column_of(table)
    packed = deferred(store, lambda tx: tx.derived.add_column(column))
    apply(store, packed.replace(b',"kept_digests":["sha256:old"]', b""))
    with store.transaction() as tx:
        assert tx.derived.list_columns(table.table_id) == [replace(column, kept_digests=())]


def test_what_waits_for_a_version_is_settled_once(store: JobStore, table: Table) -> None:
    version = a_version(table.table_id, 1, digest="d" * 64, deferred=b"[]")
    with store.transaction() as tx:
        tx.versions.add(version)
    with store.transaction() as tx:
        assert tx.versions.lock(version) == version
        assert not tx.versions.settle(replace(version, staged_path="another"))
        assert tx.versions.settle(version)
        assert not tx.versions.settle(version)
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 1) == replace(version, deferred=None)


def test_a_deleted_version_is_known_until_its_row_is_removed(store: JobStore, table: Table) -> None:
    versions = [a_version(table.table_id, number) for number in (1, 2, 3)]
    with store.transaction() as tx:
        for version in versions:
            tx.versions.add(version)
        tx.versions.mark_deleted(versions[0])
    with store.transaction() as tx:
        assert tx.versions.list_all(table.table_id, MAIN_BRANCH) == versions[1:]
        assert tx.versions.find(table.table_id, MAIN_BRANCH, 1) is None
        page = tx.versions.list_page(table.table_id, MAIN_BRANCH, None, None, is_descending=False)
        assert page == versions[1:]
        assert tx.versions.list_deleted(table.table_id, MAIN_BRANCH) == versions[:1]
        tx.versions.remove(table.table_id, MAIN_BRANCH, 1)
        assert tx.versions.list_deleted(table.table_id, MAIN_BRANCH) == []
