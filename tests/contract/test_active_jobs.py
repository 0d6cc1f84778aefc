"""The listing of a table's active jobs and requests for indexes, on every store."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.samples import claimed, submitted
from tidemill.jobs.errors import JobAlreadyActive
from tidemill.jobs.model.jobs import JobKind
from tidemill.jobs.model.options import IndexRequest
from tidemill.jobs.ports import JobStore

REQUEST = IndexRequest(
    "dev", "near", "s.`a.b`", "IVF_PQ", {"num_bits": 8, "distance_type": "l2"}, is_replacement=True
)


def test_a_request_for_an_index_is_read_as_it_was_written(store: JobStore) -> None:
    job = submitted(store, kind=JobKind.INDEX, request=REQUEST)
    with store.transaction() as tx:
        found = tx.jobs.get(job.job_id)
    assert (found.kind, found.request, found.column) == (JobKind.INDEX, REQUEST, "s.`a.b`")


def test_active_jobs_are_those_of_the_table_that_are_not_over(store: JobStore) -> None:
    table_id = uuid4()
    running, cancelled, queued = (submitted(store, table_id=table_id) for _ in range(3))
    submitted(store)
    assert claimed(store).job_id == running.job_id
    with store.transaction() as tx:
        tx.jobs.request_cancel(cancelled.job_id)
        active = [job.job_id for job in tx.jobs.list_active(table_id)]
    assert active == [running.job_id, queued.job_id]


def test_a_second_job_for_the_same_index_names_it(store: JobStore) -> None:
    first = submitted(store, kind=JobKind.INDEX, request=REQUEST)
    with pytest.raises(JobAlreadyActive, match="index 'near'"):
        submitted(store, kind=JobKind.INDEX, request=REQUEST, subject_id=first.subject_id)
