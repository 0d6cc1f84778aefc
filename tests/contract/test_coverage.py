"""CoverageRepository, on every store."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from pyroaring import BitMap64

from tests.contract.threads import together
from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.ports import JobStore

DIGEST = "sha256:abc"


def put(store: JobStore, subject_id: UUID, coverage: Coverage) -> None:
    with store.transaction() as tx:
        tx.coverage.put(subject_id, coverage)


def found(store: JobStore, subject_id: UUID) -> Coverage:
    with store.transaction() as tx:
        coverage = tx.coverage.find(subject_id, DIGEST)
    assert coverage is not None
    return coverage


def test_nothing_is_covered_at_first(store: JobStore) -> None:
    with store.transaction() as tx:
        assert tx.coverage.find(uuid4(), DIGEST) is None


def test_the_first_coverage_comes_back_as_revision_one(store: JobStore) -> None:
    subject = uuid4()
    rows = BitMap64([0, 5, 2**32, 2**40, 2**64 - 1]) | BitMap64(range(1_000, 9_000))
    outdated = BitMap64([7, 2**40 + 1])
    put(store, subject, Coverage(DIGEST, 7, rows, published=8, outdated=outdated))
    assert found(store, subject) == Coverage(DIGEST, 7, rows, 1, 8, outdated)


def test_an_empty_coverage_can_be_stored(store: JobStore) -> None:
    subject = uuid4()
    put(store, subject, Coverage(DIGEST, 3))
    assert found(store, subject) == Coverage(DIGEST, 3, BitMap64(), 1)


def test_a_coverage_based_on_the_stored_one_replaces_it(store: JobStore) -> None:
    subject = uuid4()
    put(store, subject, Coverage(DIGEST, 1, BitMap64([1])))
    put(store, subject, replace(found(store, subject), watermark=2, rows=BitMap64([2]), published=5))
    assert found(store, subject) == Coverage(DIGEST, 2, BitMap64([2]), 2, 5)


@pytest.mark.parametrize("revision", [0, 1, 3])
def test_a_coverage_based_on_another_revision_is_refused(store: JobStore, revision: int) -> None:
    subject = uuid4()
    put(store, subject, Coverage(DIGEST, 1))
    put(store, subject, Coverage(DIGEST, 2, revision=1))
    with pytest.raises(ConcurrentModification):
        put(store, subject, Coverage(DIGEST, 9, revision=revision))
    assert found(store, subject).watermark == 2


def test_a_coverage_based_on_one_never_stored_is_refused(store: JobStore) -> None:
    with pytest.raises(ConcurrentModification):
        put(store, uuid4(), Coverage(DIGEST, 1, revision=1))


def test_digests_and_subjects_are_covered_apart(store: JobStore) -> None:
    subject = uuid4()
    put(store, subject, Coverage(DIGEST, 1))
    put(store, subject, Coverage("other", 2))
    put(store, uuid4(), Coverage(DIGEST, 3))
    assert found(store, subject).watermark == 1


def test_storing_leaves_the_callers_rows_alone(store: JobStore) -> None:
    rows = BitMap64(range(100))
    before = rows.serialize()
    put(store, uuid4(), Coverage(DIGEST, 1, rows))
    assert rows.serialize() == before


@pytest.mark.parametrize("revision", [0, 1])
def test_of_several_writers_from_one_revision_exactly_one_wins(store: JobStore, revision: int) -> None:
    subject = uuid4()
    if revision:
        put(store, subject, Coverage(DIGEST))
    outcomes = together(
        *(
            lambda number=number: put(store, subject, Coverage(DIGEST, number, revision=revision))
            for number in range(8)
        )
    )
    winners = [number for number, outcome in enumerate(outcomes) if outcome is None]
    assert len(winners) == 1
    assert all(isinstance(outcome, ConcurrentModification) for outcome in outcomes if outcome is not None)
    assert (found(store, subject).watermark, found(store, subject).revision) == (winners[0], revision + 1)


def all_of(store: JobStore, subject_id: UUID) -> list[Coverage]:
    with store.transaction() as tx:
        return list(tx.coverage.list_of(subject_id))


def test_the_coverages_of_a_subject_are_listed_by_digest(store: JobStore) -> None:
    subject = uuid4()
    for digest in ("b", "a", "B"):
        put(store, subject, Coverage(digest, 1, BitMap64([1])))
    put(store, uuid4(), Coverage("c"))
    assert [coverage.digest for coverage in all_of(store, subject)] == ["B", "a", "b"]
    assert all_of(store, uuid4()) == []


def test_withdrawn_rows_stay_with_the_digest_that_made_them(store: JobStore) -> None:
    subject, other = uuid4(), uuid4()
    for digest in ("a", "b", "c"):
        put(store, subject, Coverage(digest, 1, BitMap64([1, 2]), published=2, outdated=BitMap64([3, 2**40])))
    put(store, other, Coverage("b", 1, BitMap64([1])))
    with store.transaction() as tx:
        tx.coverage.withdraw(subject, "a", BitMap64([2, 2**40, 9]))
    assert all_of(store, subject) == [
        Coverage("a", 1, BitMap64([1, 2]), 1, 2, BitMap64([3, 2**40])),
        Coverage("b", 1, BitMap64([1]), 2, 2, BitMap64([3])),
        Coverage("c", 1, BitMap64([1]), 2, 2, BitMap64([3])),
    ]
    assert all_of(store, other) == [Coverage("b", 1, BitMap64([1]), 1)]


def test_marks_of_files_that_a_restore_may_put_back_are_dropped(store: JobStore) -> None:
    subject, marks = uuid4(), BitMap64([7, 8])
    for digest in ("a", "b", "c"):
        put(store, subject, Coverage(digest, 1, BitMap64([1, 2]), files=marks))
    with store.transaction() as tx:
        tx.coverage.withdraw(subject, "a", BitMap64([2]), ("c",))
    assert [coverage.files for coverage in all_of(store, subject)] == [marks, BitMap64(), marks]


def test_a_coverage_without_withdrawn_rows_keeps_its_revision(store: JobStore) -> None:
    subject = uuid4()
    put(store, subject, Coverage("b", 1, BitMap64([1])))
    with store.transaction() as tx:
        tx.coverage.withdraw(subject, "a", BitMap64([2]))
    assert all_of(store, subject) == [Coverage("b", 1, BitMap64([1]), 1)]


def test_a_coverage_read_before_rows_were_withdrawn_is_refused(store: JobStore) -> None:
    subject = uuid4()
    put(store, subject, Coverage(DIGEST, 1, BitMap64([1])))
    before = found(store, subject)
    with store.transaction() as tx:
        tx.coverage.withdraw(subject, "a", BitMap64([1]))
    with pytest.raises(ConcurrentModification):
        put(store, subject, before)


def test_rows_withdrawn_at_the_same_time_are_all_gone(store: JobStore) -> None:
    subject = uuid4()
    put(store, subject, Coverage(DIGEST, 1, BitMap64(range(10))))

    def withdraw(row: int) -> None:
        with store.transaction() as tx:
            tx.coverage.withdraw(subject, "new", BitMap64([row]))

    outcomes = together(*(lambda row=row: withdraw(row) for row in range(8)))
    assert [outcome for outcome in outcomes if outcome is not None] == []
    assert found(store, subject) == Coverage(DIGEST, 1, BitMap64([8, 9]), 9)
