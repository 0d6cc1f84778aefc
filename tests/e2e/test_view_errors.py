"""Functions of views that fail: the policy is kept, and old rows stay where new ones cannot be made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidemill
from tests.e2e.tables import Maker, refreshed, row_ids
from tests.e2e.view_kinds import Total, Word, created, rows_of, texts, verified

TEXTS = texts("a tide", "the mill", "neap", "ebb and flow")
POISON = "poison"


@dataclass(frozen=True)
class Patience:
    """How often a text is refused before it is let through; for good, if it is poison."""

    folder: str
    failures: int

    def try_out(self, text: str) -> None:
        if text == POISON:
            raise ValueError(f"{text} is not to be read")
        if not text.startswith("flaky"):
            return
        file = Path(self.folder, text)
        tried = len(file.read_text()) if file.exists() else 0
        file.write_text("." * (tried + 1))
        if tried < self.failures:
            raise ConnectionError(f"{text} was tried {tried + 1} times")


def louder(patience: Patience) -> Any:
    @tidemill.udf
    def loud(text: str) -> str:
        patience.try_out(text)
        return text.upper()

    return loud


def splitter(patience: Patience) -> Any:
    @tidemill.chunker
    def words(text: str) -> Iterator[Word]:
        patience.try_out(text)
        for word in text.split():
            yield Word(word)

    return words


def adder(patience: Patience) -> Any:
    @tidemill.udtf
    def totals(source: Any) -> Iterator[Total]:
        rows = source.to_list()
        yield Total(rows[0]["place"], len(rows), sum(len(row["text"]) for row in rows))
        for row in rows:
            patience.try_out(row["text"])

    return totals


class Failing(NamedTuple):
    """A view that is up to date, of a source in which texts can be poisoned."""

    source: tidemill.Table
    view: tidemill.View

    def poison(self, *ids: int, text: str = POISON) -> None:
        for number in ids:
            self.source.to_lance().update({"text": f"'{text}'"}, where=f"id = {number}")

    def failure(self, **options: Any) -> tidemill.JobFailed:
        """How a refresh fails, which leaves the view as it was."""
        before = self.view.version
        with pytest.raises(tidemill.JobFailed) as failed:
            refreshed(self.view, **options)
        assert self.view.version == before
        return failed.value

    def skipped(self) -> list[int | None]:
        return [error.row_id for error in self.view.errors() if error.is_skipped]


@pytest.fixture
def patience(tmp_path: Path) -> Patience:
    folder = tmp_path / "patience"
    folder.mkdir()
    return Patience(str(folder), 1)


@pytest.fixture
def chunked(make: Maker, patience: Patience) -> Failing:
    source = make.table(TEXTS)
    view = created(make, source.select("id").chunk(splitter(patience)))
    refreshed(view)
    return Failing(source, view)


@pytest.fixture
def loud(make: Maker, patience: Patience) -> Failing:
    source = make.table(TEXTS)
    view = created(make, source.select("id", loud=louder(patience)))
    refreshed(view)
    return Failing(source, view)


@pytest.fixture
def parted(make: Maker, patience: Patience) -> Failing:
    source = make.table(TEXTS)
    view = created(make, adder(patience).over(source, partition_by="place"))
    refreshed(view)
    return Failing(source, view)


def words_of(failing: Failing) -> list[tuple[int, str]]:
    return [(number, word) for number, _, word in rows_of(failing.view, "id", "__child_index", "word")]


def test_a_failing_row_of_a_chunker_ends_the_refresh_and_is_noted(chunked: Failing) -> None:
    chunked.poison(1)
    failed = chunked.failure(on_error=tidemill.fail())
    assert (failed.exception, failed.row_id) == ("ValueError", row_ids(chunked.source)[1])
    [error] = chunked.view.errors()
    assert (error.row_id, error.is_skipped) == (failed.row_id, False)


def test_a_skipped_row_of_a_chunker_keeps_its_old_rows(chunked: Failing) -> None:
    chunked.poison(1)
    chunked.poison(3, text="low water")
    job = refreshed(chunked.view, on_error=tidemill.skip(limit=1))
    assert job.progress.skipped == 1
    assert words_of(chunked) == [
        (0, "a"),
        (0, "tide"),
        (1, "the"),
        (1, "mill"),
        (2, "neap"),
        (3, "low"),
        (3, "water"),
    ]
    assert chunked.skipped() == [row_ids(chunked.source)[1]]


def test_a_skipped_row_is_not_tried_again_until_it_changes(chunked: Failing) -> None:
    chunked.poison(1)
    refreshed(chunked.view, on_error="skip")
    assert refreshed(chunked.view).progress.commits == 0
    chunked.poison(1, text="the wheel")
    refreshed(chunked.view)
    assert [word for number, word in words_of(chunked) if number == 1] == ["the", "wheel"]
    assert chunked.view.errors() == []


def test_a_skipped_row_that_is_deleted_takes_its_old_rows_and_its_error_along(chunked: Failing) -> None:
    chunked.poison(1)
    refreshed(chunked.view, on_error="skip")
    chunked.source.to_lance().delete("id = 1")
    refreshed(chunked.view)
    assert {number for number, _ in words_of(chunked)} == {0, 2, 3}
    assert chunked.view.errors() == []


def test_more_rows_than_may_be_skipped_end_the_refresh(chunked: Failing) -> None:
    chunked.poison(1, 3)
    before = words_of(chunked)
    chunked.failure(on_error=tidemill.skip(limit=1))
    assert words_of(chunked) == before
    assert chunked.skipped() == []


def test_a_skipped_row_keeps_its_old_rows_when_all_are_made_anew(chunked: Failing) -> None:
    chunked.poison(1)
    refreshed(chunked.view, full=True, on_error="skip")
    assert [word for number, word in words_of(chunked) if number == 1] == ["the", "mill"]
    assert chunked.skipped() == [row_ids(chunked.source)[1]]


def test_a_skipped_row_counts_against_the_rows_that_may_be_shown(chunked: Failing) -> None:
    chunked.poison(1)
    refreshed(chunked.view, on_error="skip", output_limit=3)
    assert chunked.view.count_rows() <= 3


def test_a_view_with_skipped_rows_can_be_verified(make: Maker, patience: Patience) -> None:
    source = make.table(TEXTS)
    view = created(make, source.chunk(splitter(patience)), on_error="skip")
    refreshed(view)
    source.to_lance().update({"text": f"'{POISON}'"}, where="id = 1")
    refreshed(view)
    assert verified(view).is_same
    view.to_lance().update({"word": "'wrong'"}, where="word = 'neap'")
    assert not verified(view).is_same


def test_a_view_with_skipped_partitions_can_be_verified(parted: Failing) -> None:
    parted.poison(1)
    refreshed(parted.view, on_error="skip")
    assert verified(parted.view).is_same
    parted.view.to_lance().update({"letters": "99"}, where="place = 'north'")
    assert not verified(parted.view).is_same


def test_a_row_of_a_chunker_is_tried_again_where_that_is_asked_for(chunked: Failing) -> None:
    chunked.poison(1, text="flaky mill")
    assert chunked.failure().exception == "ConnectionError"
    chunked.poison(1, text="flaky wheel")
    refreshed(chunked.view, on_error=tidemill.retry(attempts=2, backoff=0, on=(OSError,)))
    assert (1, "wheel") in words_of(chunked)
    chunked.poison(1)
    failed = chunked.failure(on_error=tidemill.retry(attempts=2, backoff=0))
    assert failed.row_id == row_ids(chunked.source)[1]
    assert [error.attempts for error in chunked.view.errors()] == [2]


def test_a_failing_row_of_a_function_column_ends_the_refresh(loud: Failing) -> None:
    loud.poison(1)
    assert loud.failure().row_id == row_ids(loud.source)[1]


def test_a_skipped_value_of_a_function_column_is_null(loud: Failing) -> None:
    loud.poison(1)
    loud.failure(on_error=tidemill.skip(limit=0))
    refreshed(loud.view, on_error=tidemill.skip(limit=1))
    assert rows_of(loud.view, "id", "loud")[:2] == [(0, "A TIDE"), (1, None)]
    assert loud.skipped() == [row_ids(loud.source)[1]]
    loud.poison(1, text="the wheel")
    refreshed(loud.view)
    assert rows_of(loud.view, "id", "loud")[1] == (1, "THE WHEEL")
    assert loud.view.errors() == []


def test_a_value_of_a_function_column_is_tried_again_where_that_is_asked_for(loud: Failing) -> None:
    loud.poison(1, text="flaky mill")
    refreshed(loud.view, on_error=tidemill.retry(attempts=2, backoff=0, on=(ConnectionError,)))
    assert rows_of(loud.view, "id", "loud")[1] == (1, "FLAKY MILL")


def test_a_failing_partition_ends_the_refresh_and_leaves_all_others_as_they_were(parted: Failing) -> None:
    before = rows_of(parted.view, "place", "texts", "letters")
    parted.poison(1)
    parted.poison(0, text="high water")
    assert parted.failure().exception == "ValueError"
    assert rows_of(parted.view, "place", "texts", "letters") == before


def test_a_skipped_partition_keeps_its_old_rows(parted: Failing) -> None:
    parted.poison(1)
    parted.poison(0, text="high water")
    job = refreshed(parted.view, on_error=tidemill.skip(limit=1))
    assert job.progress.skipped == 1
    assert rows_of(parted.view, "place", "texts", "letters") == [("north", 2, 14), ("south", 2, 20)]
    [error] = parted.view.errors()
    assert (error.exception, error.is_skipped, "south" in error.message) == ("ValueError", True, True)
    assert refreshed(parted.view).progress.commits == 0
    parted.poison(1, text="mill")
    refreshed(parted.view)
    assert rows_of(parted.view, "place", "texts", "letters") == [("north", 2, 14), ("south", 2, 16)]
    assert parted.view.errors() == []


def test_a_skipped_partition_keeps_its_old_rows_when_all_are_made_anew(parted: Failing) -> None:
    parted.poison(1)
    refreshed(parted.view, full=True, on_error="skip")
    assert rows_of(parted.view, "place", "texts", "letters") == [("north", 2, 10), ("south", 2, 20)]
    assert len(parted.skipped()) == 1
    parted.poison(1, text="the mill")
    refreshed(parted.view, full=True)
    assert parted.view.errors() == []


def test_a_function_that_takes_the_source_as_a_whole_keeps_all_rows_when_it_is_skipped(
    make: Maker, patience: Patience
) -> None:
    source = make.table(TEXTS)
    view = created(make, adder(patience).over(source.where("place = 'south'")))
    refreshed(view)
    failing = Failing(source, view)
    failing.poison(1)
    assert refreshed(view, on_error="skip").progress.skipped == 1
    assert rows_of(view, "place", "texts", "letters") == [("south", 2, 20)]
    failing.poison(1, text="mill")
    refreshed(view)
    assert rows_of(view, "place", "texts", "letters") == [("south", 2, 16)]
    assert view.errors() == []


def test_more_partitions_than_may_be_skipped_end_the_refresh(parted: Failing) -> None:
    parted.poison(0, 1)
    parted.failure(on_error=tidemill.skip(limit=1))
    assert parted.skipped() == []


def test_a_partition_is_tried_again_where_that_is_asked_for(parted: Failing) -> None:
    parted.poison(1, text="flaky mill")
    refreshed(parted.view, on_error=tidemill.retry(attempts=2, backoff=0))
    assert rows_of(parted.view, "place", "texts", "letters") == [("north", 2, 10), ("south", 2, 22)]


def test_a_partition_is_tried_again_for_what_is_worth_it(parted: Failing) -> None:
    parted.poison(1, text="flaky mill")
    parted.failure(on_error=tidemill.retry(attempts=2, backoff=0, on=(ValueError,)))
    parted.poison(1, text="flaky wheel")
    refreshed(parted.view, on_error=tidemill.retry(attempts=2, backoff=0, on=(OSError,)))
    assert rows_of(parted.view, "place", "texts", "letters")[1] == ("south", 2, 23)


@pytest.mark.parametrize("has_partitions", [True, False])
def test_a_table_function_that_takes_too_long_has_failed(make: Maker, *, has_partitions: bool) -> None:
    @tidemill.udtf(timeout=0.5)
    def slow(source: Any) -> Iterator[Word]:
        import time

        for row in source.to_list():
            time.sleep(0.4)
            yield Word(row["text"])

    rows = make.table(TEXTS)
    view = created(make, slow.over(rows, partition_by="place" if has_partitions else None))
    with pytest.raises(tidemill.JobFailed, match=r"longer than 0\.5 s") as failed:
        refreshed(view)
    assert failed.value.exception == "TimeoutError"
    assert view.count_rows() == 0
