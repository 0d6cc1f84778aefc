"""Jobs as lancedb's remote client follows, pauses and ends them."""

from __future__ import annotations

import time

import httpx
import pyarrow as pa
import pytest
from lancedb import col, udf
from lancedb.exceptions import JobCancelledError
from lancedb.remote.db import RemoteDBConnection
from lancedb.remote.errors import HttpError
from lancedb.remote.table import RemoteTable

from tests.e2e.waiting import eventually
from tests.protocol.remote import PATIENCE, database, docs, fill, new_name, numbers, values, wait_for_event
from tests.protocol.wire import check_refusal

__all__ = ["database", "docs"]

ROWS = 400


def patient(x: float) -> float:

    time.sleep(0.05)
    return x + 1


@pytest.fixture
def slow(database: RemoteDBConnection, docs: RemoteTable) -> RemoteTable:
    """A table with a column whose filling takes twenty seconds of one core."""
    docs.add(numbers(4, ROWS - 3))
    made = database.create_function(udf(name=new_name("slow"))(patient))
    docs.add_columns({"y": made(x=col("x"))})
    return docs


def test_a_job_is_paused_and_goes_on(database: RemoteDBConnection, slow: RemoteTable) -> None:
    job = slow.refresh_column_async("y")
    assert job.id is not None
    assert database.pause_job(job.id) == "pausing"
    wait_for_event(database, job.id, "pause_requested")
    assert job.status() == "running"
    job_id = job.id
    eventually(lambda: database.pause_job(job_id) == "already_paused", "the job has stopped", 120)
    assert database.resume_job(job.id) == "resumed"
    assert database.resume_job(job.id) == "not_paused"
    assert job.wait(PATIENCE).rows_assigned == ROWS
    assert values(slow, "y")[:3] == [2.0, 3.0, 4.0]
    with pytest.raises(HttpError, match="409"):
        database.pause_job(job.id)
    with pytest.raises(HttpError, match="409"):
        database.resume_job(job.id)


def test_a_cancelled_job_says_so(database: RemoteDBConnection, slow: RemoteTable) -> None:
    job = slow.refresh_column_async("y")
    assert job.id is not None
    assert database.cancel_job(job.id) is True
    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)
    assert (job.status(), database.cancel_job(job.id)) == ("cancelled", True)
    assert database.cancel_job("nobody") is False


def test_jobs_are_listed_and_opened_again(database: RemoteDBConnection, docs: RemoteTable) -> None:
    docs.add_columns(computed={"y": "x + 1"})
    job = docs.refresh_column_async("y")
    job.wait(PATIENCE)
    assert job.id is not None
    (listed,) = [info for info in database.list_jobs() if info.job_id == job.id]
    assert (listed.table, listed.job_type, listed.state) == (docs.name, "backfill", "finished")
    opened = database.open_job(job.id)
    opened.refresh()
    assert (opened.state, opened.spec) == ("finished", {"table": docs.name, "column": "y"})
    assert opened.result is not None
    assert opened.result["rows_assigned"] == 3


def test_events_are_read_and_filtered(database: RemoteDBConnection, docs: RemoteTable) -> None:
    docs.add_columns(computed={"y": "x + 1"})
    job = docs.refresh_column_async("y")
    job.wait(PATIENCE)
    events = job.events()
    kinds = events["state"].to_pylist()
    assert (kinds[0], kinds[-1]) == ("submitted", "done")
    assert job.events(limit=1)["state"].to_pylist() == ["submitted"]
    for condition, expected in [
        ("state = 'done'", ["done"]),
        ("state IN ('submitted', 'done') AND NOT state = 'done'", ["submitted"]),
        ("updated_by IS NULL AND state LIKE 'do%'", ["done"]),
        ("sequence <= 1 OR state = 'done'", ["submitted", "done"]),
        ("claim_entity = 'x'", []),
    ]:
        assert job.events(filter=condition)["state"].to_pylist() == expected, condition


@pytest.mark.parametrize(
    "condition", ["nowhere = 1", "state", "upper(state) = 'X'", "state = (SELECT 1)", "state = ", "state = 1"]
)
def test_a_condition_on_events_that_cannot_be_is_refused(
    http: httpx.Client, docs: RemoteTable, condition: str
) -> None:
    docs.add_columns(computed={"y": "x + 1"})
    job = docs.refresh_column_async("y")
    job.wait(PATIENCE)
    answer = http.post("/v1/jobs/query_events", json={"job_id": job.id, "filter": condition})
    check_refusal(answer, 400, 13, "filter")


@pytest.mark.operation("ListTableTags", "CreateTableTag", "DeleteTableTag", client="remote")
def test_a_filled_version_is_tagged(docs: RemoteTable) -> None:
    docs.add_columns(computed={"y": "x + 1"})
    before = docs.version
    fill(docs, "y")
    docs.tags.create("empty", before)
    assert docs.tags.list()["empty"]["version"] == before
    assert docs.tags.get_version("empty") == before
    docs.checkout("empty")
    assert values(docs, "y") == [None, None, None]
    docs.checkout_latest()
    assert values(docs, "y") == [2.0, 3.0, 4.0]
    docs.tags.delete("empty")
    assert docs.tags.list() == {}


@pytest.mark.operation("ListTableBranches", "CreateTableBranch", "DeleteTableBranch", client="remote")
def test_a_branch_goes_its_own_way(docs: RemoteTable) -> None:
    branch = docs.branches.create("work")
    branch.add(pa.table({"id": [9], "x": [9.0], "name": ["n9"]}))
    assert (branch.count_rows(), docs.count_rows()) == (4, 3)
    assert "work" in docs.branches.list()
    docs.branches.delete("work")
    assert "work" not in docs.branches.list()
