"""Functions of every shape on a real server: several columns, inner fields, blobs, state, limits, SQL."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.calls import CallLog
from tests.e2e.tables import TIMEOUT, Maker, by_id, filled, numbered

MEGABYTE: Final = 1 << 20
BLOBS: Final = 24
BLOB_BYTES: Final = 8 * MEGABYTE
HEAD_BYTES: Final = 16


class Counts(NamedTuple):
    words: int
    letters: int


def counts_of(number: int) -> tuple[int, int]:
    text = f"text {number}"
    return len(text.split()), len(text)


def counting(calls: CallLog) -> Any:
    @tidemill.udf(inputs=["text"])
    def counts(text: str) -> Counts:
        calls.note(text)
        return Counts(len(text.split()), len(text))

    return counts


def pairs(table: tidemill.Table) -> dict[int, tuple[int, int]]:
    rows = table.query(columns=["id", "n_words", "n_letters"]).to_pylist()
    return {row["id"]: (row["n_words"], row["n_letters"]) for row in rows}


@pytest.fixture
def counted(make: Maker, calls: CallLog) -> tidemill.Table:
    """Two fragments, and two columns whose names are not those of the function's fields."""
    table = make.numbered(20, 12)
    table.add_columns({"n_letters": "letters", "n_words": "words"}, counting(calls))
    return table


@pytest.mark.parametrize("asked", ["n_words", "n_letters"])
def test_siblings_are_filled_together_by_one_call_per_row(
    counted: tidemill.Table, calls: CallLog, asked: str
) -> None:
    filled(counted, asked)
    assert pairs(counted) == {number: counts_of(number) for number in range(32)}
    assert calls.take() == sorted(f"text {number}" for number in range(32))
    assert filled(counted, "n_words").progress.computed == 0
    assert calls.count() == 0


def test_an_updated_input_is_computed_again_for_all_siblings(counted: tidemill.Table, calls: CallLog) -> None:
    filled(counted, "n_words")
    calls.take()
    counted.to_lance().update({"text": "'a b c'"}, where="id IN (3, 25)")
    filled(counted, "n_letters")
    assert calls.take() == ["a b c", "a b c"]
    assert {number: pairs(counted)[number] for number in (3, 4, 25)} == {
        3: (3, 5),
        4: counts_of(4),
        25: (3, 5),
    }


def test_siblings_are_computed_in_pieces(counted: tidemill.Table, calls: CallLog) -> None:
    assert filled(counted, "n_words", where="id % 4 = 1", task_size=3).progress.computed == 8
    assert filled(counted, "n_letters", task_size=5).progress.computed == 24
    assert calls.count() == 32
    assert pairs(counted) == {number: counts_of(number) for number in range(32)}
    filled(counted, "n_letters", where="1 = 1", task_size=7)
    assert calls.count() == 64
    assert pairs(counted) == {number: counts_of(number) for number in range(32)}


def test_a_preview_of_siblings_is_used_by_the_backfill(counted: tidemill.Table, calls: CallLog) -> None:
    counted.preview("n_words", rows=6, timeout=TIMEOUT)
    assert calls.count() == 6
    filled(counted, "n_letters", task_size=10)
    assert calls.count() == 32
    assert pairs(counted) == {number: counts_of(number) for number in range(32)}


def test_inner_fields_are_inputs(make: Maker) -> None:
    @tidemill.udf(inputs=["meta.title", "meta.inner.year"])
    def label(title: str | None, year: int | None) -> str:
        return f"{title} {year}"

    rows: list[dict[str, Any]] = [
        {"id": 0, "meta": {"title": "tide", "inner": {"year": 1}}},
        {"id": 1, "meta": {"title": None, "inner": {"year": 2}}},
        {"id": 2, "meta": {"title": "mill", "inner": None}},
        {"id": 3, "meta": None},
    ]
    table = make.table(rows)
    table.add_column("label", label)
    filled(table, "label", where="id < 2", task_size=1)
    filled(table, "label")
    assert by_id(table, "label") == {0: "tide 1", 1: "None 2", 2: "mill None", 3: "None None"}


@pytest.fixture
def films(lake: tidemill.Lake, namespace: str) -> tidemill.Table:
    """Rows with a large blob each; it begins with the number of its row."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        ]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(BLOBS):
            film = f"{number:0{HEAD_BYTES}d}".encode().ljust(BLOB_BYTES, b".")
            yield pa.record_batch([[number], [film]], schema=schema)

    rows = pa.RecordBatchReader.from_batches(schema, batches())
    return lake.create_table(f"{namespace}.films", rows)


def test_of_a_blob_only_what_is_read_is_fetched(films: tidemill.Table, server: RunningServer) -> None:
    @tidemill.udf
    def head(film: tidemill.Blob) -> str:
        film.seek(0)
        return film.read(HEAD_BYTES).decode()

    films.add_column("head", head)
    before = bytes_read(server.process.pid)
    filled(films, "head")
    fetched = bytes_read(server.process.pid) - before
    assert by_id(films, "head") == {number: f"{number:0{HEAD_BYTES}d}" for number in range(BLOBS)}
    assert fetched < BLOBS * BLOB_BYTES / 4


def test_bytes_of_a_blob_come_whole(films: tidemill.Table, server: RunningServer) -> None:
    @tidemill.udf
    def size(film: bytes) -> int:
        return len(film)

    films.add_column("size", size)
    before = bytes_read(server.process.pid)
    filled(films, "size", where="id < 8")
    assert bytes_read(server.process.pid) - before >= 8 * BLOB_BYTES
    assert by_id(films, "size") == {number: BLOB_BYTES if number < 8 else None for number in range(BLOBS)}


def test_a_blob_that_is_missing_is_none(lake: tidemill.Lake, namespace: str) -> None:
    field = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), field])
    rows = pa.table([[0, 1, 2], [b"tide", None, b""]], schema=schema)
    table = lake.create_table(f"{namespace}.films", rows)

    @tidemill.udf
    def size(film: tidemill.Blob | None) -> int:
        return -1 if film is None else film.size()

    table.add_column("size", size)
    filled(table, "size")
    assert by_id(table, "size") == {0: 4, 1: -1, 2: 0}


def test_setup_is_called_once_per_process_and_job(make: Maker, calls: CallLog) -> None:
    @tidemill.udf(inputs=["id"])
    class Counting:
        def setup(self) -> None:
            self.process = os.getpid()
            calls.note(f"setup {self.process}")

        def __call__(self, number: int) -> int:
            return self.process

    table = make.numbered(10, 10, 10)
    table.add_column("process", Counting)
    filled(table, "process", task_size=4)
    processes = set(by_id(table, "process").values())
    assert calls.take() == sorted(f"setup {process}" for process in processes)


def test_a_call_that_takes_too_long_is_a_failure_of_its_row(make: Maker) -> None:
    @tidemill.udf(inputs=["id"], timeout=3)
    def slow(number: int) -> int:
        if number == 7:
            time.sleep(300)
        return number

    table = make.table(numbered(0, 12))
    table.add_column("slow", slow)
    began_at = time.monotonic()
    job = filled(table, "slow", on_error="skip")
    assert time.monotonic() - began_at < 120
    assert job.progress.skipped == 1
    assert by_id(table, "slow") == {number: None if number == 7 else number for number in range(12)}
    [error] = table.errors("slow")
    assert "Timeout" in str(error.exception)


def test_a_computed_column_follows_its_expression(make: Maker, server: RunningServer, namespace: str) -> None:
    table = make.numbered(10, 10)
    entry = {"name": "shout", "computed": "upper(text)"}
    answer = httpx.post(
        f"{server.url}/v1/table/{namespace}$docs/add_columns", json={"new_columns": [entry]}, timeout=30
    )
    assert answer.status_code == 200, answer.text
    assert filled(table, "shout", where="id < 5", task_size=2).progress.computed == 5
    assert filled(table, "shout").progress.computed == 15
    table.to_lance().update({"text": "'tide'"}, where="id = 12")
    assert filled(table, "shout").progress.computed == 1
    assert by_id(table, "shout") == {
        number: "TIDE" if number == 12 else f"TEXT {number}" for number in range(20)
    }


def bytes_read(ancestor: int) -> int:
    """What a process and those below it have read so far, from wherever."""
    parents = {int(path.name): parent_of(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    family = {ancestor}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(read_by(process) for process in family)


def parent_of(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def read_by(process: int) -> int:
    try:
        notes = Path(f"/proc/{process}/io").read_text()
    except OSError:
        return 0
    return int(notes.split("rchar:")[1].split()[0])
