"""PartLedger, on every store."""

from __future__ import annotations

import pytest

from tests.contract.samples import a_part, submitted
from tidemill.catalog.errors import ConcurrentModification
from tidemill.jobs.ports import JobStore


def test_parts_are_listed_as_they_were_added_in_the_order_they_were_applied(store: JobStore) -> None:
    job = submitted(store)
    parts = [a_part(job.job_id, name, version=7) for name in ("b", "c", "a")]
    with store.transaction() as tx:
        for part in parts:
            tx.parts.add(part)
        assert list(tx.parts.list_of(job.job_id)) == parts


def test_a_part_is_applied_only_once(store: JobStore) -> None:
    job = submitted(store)
    part = a_part(job.job_id, "0")
    with store.transaction() as tx:
        tx.parts.add(part)
    with store.transaction() as tx:
        with pytest.raises(ConcurrentModification):
            tx.parts.add(a_part(job.job_id, "0", epoch=2))
        assert list(tx.parts.list_of(job.job_id)) == [part]


def test_jobs_have_their_own_parts(store: JobStore) -> None:
    first, second = submitted(store), submitted(store)
    with store.transaction() as tx:
        tx.parts.add(a_part(first.job_id, "0"))
        tx.parts.add(a_part(second.job_id, "0"))
        assert len(tx.parts.list_of(first.job_id)) == 1


def test_a_job_without_parts_has_an_empty_ledger(store: JobStore) -> None:
    with store.transaction() as tx:
        assert list(tx.parts.list_of("nobody")) == []
