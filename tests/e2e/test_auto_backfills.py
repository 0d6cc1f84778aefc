"""Columns that fill themselves: after so many new rows, not too often, and not again and again in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

import tidemill
from tests.conftest import start_server
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, by_id, numbered
from tests.e2e.waiting import eventually, settled
from tidemill.catalog.model.callers import BACKFILL_CALLER

ROWS: Final = 3
COOLDOWN_SECONDS: Final = 1.0
# Several looks, and more than a rest.
QUIET_SECONDS: Final = 3.0
SETTINGS: Final = {
    "TIDEMILL_AUTO_BACKFILL_POLL_SECONDS": "0.5",
    "TIDEMILL_AUTO_BACKFILL_COOLDOWN_SECONDS": str(COOLDOWN_SECONDS),
    "TIDEMILL_AUTO_BACKFILL_ROWS": str(ROWS),
    "TIDEMILL_SPARK_MASTER": "local[1]",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Lake]:
    """That of a server that looks often."""
    running = start_server(tmp_path_factory.mktemp("auto"), **SETTINGS)
    with tidemill.connect(running.url) as connected:
        yield connected
    running.stop()


@dataclass(frozen=True)
class Docs:
    """A table and the jobs on it."""

    table: tidemill.Table
    lake: tidemill.Lake

    def jobs(self) -> list[tidemill.Job]:
        """Newest first."""
        return self.lake.jobs(table=self.table.name)

    def count_jobs(self) -> int:
        """Once their number has stayed the same for a while."""
        return settled(lambda: len(self.jobs()), "the number of jobs", QUIET_SECONDS)

    def wait_until_filled(self) -> None:
        eventually(lambda: self.table.count_rows("size IS NULL") == 0, "the column is filled", 120)
        eventually(lambda: all(job.state.is_final for job in self.jobs()), "its jobs have ended")


@pytest.fixture
def docs(make: Maker, calls: CallLog) -> Docs:
    """Four rows with a column that has filled itself."""

    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        return len(text)

    table = make.numbered(4)
    table.add_column("size", size, auto_backfill=True)
    docs = Docs(table, make.lake)
    docs.wait_until_filled()
    calls.take()
    return docs


def test_a_column_is_filled_once_it_is_declared(docs: Docs) -> None:
    assert by_id(docs.table, "size") == dict.fromkeys(range(4), 6)
    [job] = docs.jobs()
    assert job.state == "DONE"
    published, submitted = docs.lake.audit(job_id=job.id)
    assert (submitted.operation, submitted.protocol) == ("submit backfill", "server")
    assert (published.operation, published.protocol) == ("publish backfill", "worker")
    assert submitted.principal == published.principal == BACKFILL_CALLER.principal


def test_rows_that_are_added_are_filled_and_only_those(docs: Docs, calls: CallLog) -> None:
    docs.table.add(numbered(4, ROWS))
    docs.wait_until_filled()
    assert calls.take() == ["text 4", "text 5", "text 6"]


def test_too_few_rows_wait_for_more(docs: Docs, calls: CallLog) -> None:
    docs.table.add(numbered(4, ROWS - 1))
    assert docs.count_jobs() == 1
    assert calls.count() == 0
    docs.table.add(numbered(6, 1))
    docs.wait_until_filled()
    assert calls.count() == ROWS


def test_rows_whose_inputs_were_updated_are_filled_again(docs: Docs, calls: CallLog) -> None:
    docs.table.to_lance().update({"text": "'changed'"}, where="id < 3")
    eventually(lambda: docs.table.count_rows("size = 7") == 3, "the column follows")
    assert calls.take() == ["changed"] * 3


def test_a_column_rests_between_two_jobs(docs: Docs) -> None:
    for first in (4, 7):
        docs.table.add(numbered(first, ROWS))
        docs.wait_until_filled()
    jobs = docs.jobs()[::-1]
    ends = [job.finished_at for job in jobs]
    starts = [job.created_at for job in jobs]
    rests = [
        (start - end).total_seconds()
        for end, start in zip(ends, starts[1:], strict=False)
        if end is not None and start is not None
    ]
    assert len(rests) == 2
    assert min(rests) >= COOLDOWN_SECONDS


@pytest.fixture
def failing(make: Maker, calls: CallLog) -> Docs:
    """Four rows with a column whose function raises, after it was tried."""

    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        raise ValueError("never")

    table = make.numbered(4)
    table.add_column("size", size, auto_backfill=True)
    docs = Docs(table, make.lake)
    eventually(lambda: [job.state for job in docs.jobs()] == ["FAILED"], "it has failed", 120)
    return docs


def test_a_function_that_failed_is_not_tried_again_as_long_as_nothing_changes(
    failing: Docs,
) -> None:
    assert failing.count_jobs() == 1


def test_a_function_that_failed_is_tried_again_when_the_table_has_changed(failing: Docs) -> None:
    failing.table.add(numbered(4, 1))
    eventually(lambda: len(failing.jobs()) == 2, "it is tried again")


def test_a_column_that_is_not_declared_so_is_left_alone(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def size(text: str) -> int:
        calls.note(text)
        return len(text)

    table = make.numbered(4)
    table.add_column("size", size)
    assert Docs(table, make.lake).count_jobs() == 0
    assert calls.count() == 0
