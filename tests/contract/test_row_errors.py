"""RowErrorLedger, on every store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID, uuid4

from pyroaring import BitMap64

from tests.contract.samples import an_error
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.ports import JobStore

NOBODY = BitMap64()


def note(store: JobStore, subject_id: UUID, row_ids: Iterable[int], **changes: object) -> None:
    with store.transaction() as tx:
        tx.errors.settle(subject_id, NOBODY, [an_error(subject_id, row, **changes) for row in row_ids])


def noted(store: JobStore, subject_id: UUID) -> list[RowError]:
    with store.transaction() as tx:
        return list(tx.errors.list_of(subject_id, None, 1_000_000))


def noted_rows(store: JobStore, subject_id: UUID) -> list[int | None]:
    return [error.failure.row_id for error in noted(store, subject_id)]


def test_an_error_comes_back_as_it_was_noted_with_its_time(store: JobStore) -> None:
    subject = uuid4()
    error = an_error(subject, 2**40, is_skipped=False)
    with store.transaction() as tx:
        before = tx.now()
        tx.errors.settle(subject, NOBODY, [error])
        after = tx.now()
    (found,) = noted(store, subject)
    assert found.at is not None
    assert before <= found.at <= after
    assert replace(found, at=None) == error


def test_a_row_is_noted_once_with_its_latest_error(store: JobStore) -> None:
    subject = uuid4()
    note(store, subject, [1, 2], digest="old")
    twice = [an_error(subject, 2, digest="new", job_id=job_id) for job_id in ("job-2", "job-3")]
    with store.transaction() as tx:
        tx.errors.settle(subject, NOBODY, twice)
    assert [(error.digest, error.job_id) for error in noted(store, subject)] == [
        ("old", "job-1"),
        ("new", "job-3"),
    ]


def test_rows_that_are_done_are_no_longer_noted(store: JobStore) -> None:
    subject, other = uuid4(), uuid4()
    note(store, subject, range(2_000))
    note(store, other, [5])
    with store.transaction() as tx:
        tx.errors.settle(subject, BitMap64(range(1, 5_000_000)), [])
    assert noted_rows(store, subject) == [0]
    assert noted_rows(store, other) == [5]


def test_everything_can_be_done_at_once(store: JobStore) -> None:
    subject, other = uuid4(), uuid4()
    note(store, subject, [1, 2**63 + 5])
    note(store, other, [5])
    with store.transaction() as tx:
        tx.errors.settle(subject, None, [an_error(subject, 7)])
    assert noted_rows(store, subject) == [7]
    assert noted_rows(store, other) == [5]


def test_a_row_done_and_failed_at_once_has_failed(store: JobStore) -> None:
    subject = uuid4()
    note(store, subject, [1, 2])
    with store.transaction() as tx:
        tx.errors.settle(subject, BitMap64([1, 2]), [an_error(subject, 2, digest="new")])
    assert [(error.failure.row_id, error.digest) for error in noted(store, subject)] == [(2, "new")]


def test_a_failure_on_no_row_in_particular_is_not_noted(store: JobStore) -> None:
    subject = uuid4()
    with store.transaction() as tx:
        tx.errors.settle(subject, NOBODY, [an_error(subject, None)])
    assert noted(store, subject) == []


def test_the_rows_of_a_digest_are_its_skipped_ones(store: JobStore) -> None:
    subject = uuid4()
    note(store, subject, [1, 2**63 - 1, 2**63, 2**64 - 1])
    note(store, subject, [3], is_skipped=False)
    note(store, subject, [4], digest="other")
    with store.transaction() as tx:
        assert tx.errors.rows_of(subject, "d") == BitMap64([1, 2**63 - 1, 2**63, 2**64 - 1])
        assert tx.errors.rows_of(subject, "other") == BitMap64([4])
        assert tx.errors.rows_of(uuid4(), "d") == BitMap64()


def test_errors_are_listed_by_row_in_pages(store: JobStore) -> None:
    subject = uuid4()
    note(store, subject, [10, 9, 2**40, 0, 1])
    with store.transaction() as tx:
        first = [error.failure.row_id for error in tx.errors.list_of(subject, None, 2)]
        second = [error.failure.row_id for error in tx.errors.list_of(subject, first[-1], 9)]
    assert (first, second) == ([0, 1], [9, 10, 2**40])


def test_pages_come_to_the_largest_ids_as_well(store: JobStore) -> None:
    subject = uuid4()
    rows = {0, 7, 2**63 - 1, 2**63, 2**64 - 1}
    note(store, subject, rows)
    seen: list[int | None] = []
    while len(seen) < len(rows):
        with store.transaction() as tx:
            (error,) = tx.errors.list_of(subject, seen[-1] if seen else None, 1)
        seen.append(error.failure.row_id)
    assert set(seen) == rows


def test_the_errors_of_one_job_are_listed(store: JobStore) -> None:
    subject = uuid4()
    note(store, subject, [1, 3], job_id="job-1")
    note(store, subject, [2, 4], job_id="job-2")
    with store.transaction() as tx:
        found = tx.errors.list_of(subject, 2, 9, "job-2")
    assert [error.failure.row_id for error in found] == [4]


def test_whatever_text_a_function_raises_can_be_noted(store: JobStore) -> None:
    subject = uuid4()
    failure = RowFailure(1, "ValueError", "a\x00b\ud800c \u00e4", "line\x00", 1)
    with store.transaction() as tx:
        tx.errors.settle(subject, NOBODY, [replace(an_error(subject, 1), failure=failure)])
    (found,) = noted(store, subject)
    assert found.failure == replace(failure, message="a\ufffdb?c \u00e4", traceback="line\ufffd")
