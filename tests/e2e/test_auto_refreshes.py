"""Views that refresh themselves: after so many changed rows, not too often, and one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pytest

import tidemill
from tests.conftest import start_server
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, numbered
from tests.e2e.waiting import eventually, settled

ROWS: Final = 3
COOLDOWN_SECONDS: Final = 1.0
# Several looks, and more than a rest.
QUIET_SECONDS: Final = 3.0
SETTINGS: Final = {
    "TIDEMILL_AUTO_REFRESH_POLL_SECONDS": "0.5",
    "TIDEMILL_AUTO_REFRESH_COOLDOWN_SECONDS": str(COOLDOWN_SECONDS),
    "TIDEMILL_AUTO_REFRESH_ROWS": str(ROWS),
    "TIDEMILL_SPARK_MASTER": "local[1]",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Word(NamedTuple):
    word: str


def splitter(calls: CallLog) -> Any:
    """Makes a row of every word, and notes the texts it is called with."""

    @tidemill.chunker
    def words(text: str) -> Iterator[Word]:
        calls.note(text)
        for word in text.split():
            yield Word(word)

    return words


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Lake]:
    """That of a server that looks often."""
    running = start_server(tmp_path_factory.mktemp("auto"), **SETTINGS)
    with tidemill.connect(running.url) as connected:
        yield connected
    running.stop()


@dataclass(frozen=True)
class Words:
    """A table, the view of its words, and the refreshes of that."""

    source: tidemill.Table
    view: tidemill.View
    lake: tidemill.Lake

    def jobs(self) -> list[tidemill.Job]:
        """Newest first."""
        return self.lake.jobs(table=self.view.name)

    def count_jobs(self) -> int:
        """Once their number has stayed the same for a while."""
        return settled(lambda: len(self.jobs()), "the number of jobs", QUIET_SECONDS)

    def wait_until_fresh(self) -> None:
        wait_until_fresh(self.view, self.lake)


def wait_until_fresh(view: tidemill.View, lake: tidemill.Lake) -> None:
    eventually(lambda: view.status().is_fresh, f"{view.name} is fresh", 120)
    eventually(lambda: all(job.state.is_final for job in lake.jobs(table=view.name)), "its jobs have ended")


def make_view(make: Maker, name: str, definition: Any) -> tidemill.View:
    return make.lake.create_materialized_view(f"{make.namespace}.{name}", definition, auto_refresh=True)


@pytest.fixture
def words(make: Maker, calls: CallLog) -> Words:
    """Four texts of two words each, and a view of their words that has filled itself."""
    source = make.numbered(4)
    words = Words(source, make_view(make, "words", source.chunk(splitter(calls))), make.lake)
    words.wait_until_fresh()
    calls.take()
    return words


def test_a_view_is_filled_once_it_is_declared(words: Words) -> None:
    assert words.view.count_rows() == 8
    assert [job.state for job in words.jobs()] == ["DONE"]


def test_rows_that_are_added_are_followed_and_only_those(words: Words, calls: CallLog) -> None:
    words.source.add(numbered(4, ROWS))
    words.wait_until_fresh()
    assert calls.take() == ["text 4", "text 5", "text 6"]
    assert words.view.count_rows() == 14


def test_added_updated_and_deleted_rows_are_counted_together(words: Words, calls: CallLog) -> None:
    words.source.add(numbered(4, 1))
    words.source.to_lance().update({"text": "'changed'"}, where="id = 0")
    assert words.count_jobs() == 1
    assert calls.count() == 0
    words.source.to_lance().delete("id = 1")
    words.wait_until_fresh()
    assert calls.take() == ["changed", "text 4"]
    assert words.view.count_rows() == 7


def test_too_few_rows_wait_and_the_status_tells_of_them(words: Words) -> None:
    words.source.add(numbered(4, ROWS - 1))
    assert words.count_jobs() == 1
    status = words.view.status()
    assert not status.is_fresh
    assert [source.inserted for source in status.sources] == [ROWS - 1]


def test_a_view_rests_between_two_refreshes(words: Words) -> None:
    for first in (4, 7):
        words.source.add(numbered(first, ROWS))
        words.wait_until_fresh()
    jobs = words.jobs()[::-1]
    ends = [job.finished_at for job in jobs]
    starts = [job.created_at for job in jobs]
    rests = [
        (start - end).total_seconds()
        for end, start in zip(ends, starts[1:], strict=False)
        if end is not None and start is not None
    ]
    assert len(rests) == 2
    assert min(rests) >= COOLDOWN_SECONDS


def test_a_chain_of_views_follows_one_after_the_other(words: Words, make: Maker) -> None:
    counted = make.lake.sql(f"SELECT word, count(*) AS n FROM {words.view.name} GROUP BY word")
    counts = make_view(make, "counts", counted)
    wait_until_fresh(counts, make.lake)
    words.source.add(numbered(4, ROWS))
    eventually(
        lambda: counts.query(filter="word = 'text'")["n"].to_pylist() == [7], "the second follows", 120
    )
    first, second = words.jobs()[0], make.lake.jobs(table=counts.name)[0]
    assert first.finished_at is not None
    assert second.created_at is not None
    assert first.finished_at <= second.created_at
    assert [len(words.jobs()), len(make.lake.jobs(table=counts.name))] == [2, 2]


@pytest.fixture
def failing(make: Maker, calls: CallLog) -> Words:
    """A view whose chunker raises, after it was tried."""

    @tidemill.chunker
    def words(text: str) -> Iterator[Word]:
        calls.note(text)
        raise ValueError("never")

    source = make.numbered(4)
    made = Words(source, make_view(make, "words", source.chunk(words)), make.lake)
    eventually(lambda: [job.state for job in made.jobs()] == ["FAILED"], "it has failed", 120)
    return made


def test_a_refresh_that_failed_is_not_tried_again_as_long_as_nothing_changes(failing: Words) -> None:
    assert failing.count_jobs() == 1


def test_a_refresh_that_failed_is_tried_again_when_the_source_has_changed(failing: Words) -> None:
    failing.source.add(numbered(4, 1))
    eventually(lambda: len(failing.jobs()) == 2, "it is tried again")


def test_a_view_that_is_not_declared_so_is_left_alone(make: Maker, calls: CallLog) -> None:
    source = make.numbered(4)
    view = make.lake.create_materialized_view(
        f"{make.namespace}.words", source.chunk(splitter(calls)), auto_refresh=False
    )
    assert Words(source, view, make.lake).count_jobs() == 0
    assert calls.count() == 0
