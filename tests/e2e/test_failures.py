"""A function that fails: the job says why and where, and the table stays as it was."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, by_id, filled, row_ids
from tidemill.catalog.model.functions import Function

POISON = 57


@tidemill.udf
def scalar(id: int) -> int:
    if id == POISON:
        raise ValueError(f"{id} is poison")
    return id


@tidemill.udf(output=pa.int64())
def arrays(id: pa.Array) -> pa.Array:
    if POISON in id.to_pylist():
        raise ValueError(f"{POISON} is poison")
    return id


@tidemill.udf(inputs=["id", "text"], output=pa.int64())
def batch(rows: pa.RecordBatch) -> pa.Array:
    if POISON in rows["id"].to_pylist():
        raise ValueError(f"{POISON} is poison")
    return rows["id"]


@tidemill.udf(output=pa.int64())
def wrong_type(id: int) -> Any:
    return "not a number" if id == POISON else id


@tidemill.udf(output=pa.int64())
def wrong_array_type(id: pa.Array) -> Any:
    return pa.array(["not a number" if value == POISON else str(value) for value in id.to_pylist()])


@tidemill.udf(output=pa.int64())
def no_array(id: pa.Array) -> Any:
    return id.to_pylist()


@tidemill.udf(output=pa.int64())
def too_short(id: pa.Array) -> pa.Array:
    return id.slice(1)


def failure_of(table: tidemill.Table, column: str, **options: Any) -> tidemill.JobFailed:
    with pytest.raises(tidemill.JobFailed) as failed:
        filled(table, column, **options)
    return failed.value


@pytest.mark.parametrize("function", [scalar, arrays, batch], ids=lambda function: function.name)
def test_a_function_that_raises_fails_the_job_with_the_row(function: Any, make: Maker) -> None:
    table = make.numbered(100)
    table.add_column("made", function)
    failed = failure_of(table, "made")
    assert failed.exception == "ValueError"
    assert failed.row_id == row_ids(table)[POISON]
    assert "57 is poison" in str(failed)
    assert failed.traceback is not None
    assert f"in {function.name}" in failed.traceback


def test_a_failed_job_leaves_the_table_as_it_was(make: Maker) -> None:
    table = make.numbered(80)
    table.add_column("made", scalar)
    filled(table, "made", where="id < 50")
    version, values = table.version, by_id(table, "made")
    failure_of(table, "made")
    assert table.version == version
    assert by_id(table, "made") == values


def test_a_failed_job_can_be_read_later(make: Maker) -> None:
    table = make.numbered(60)
    table.add_column("made", scalar)
    failed = failure_of(table, "made")
    job = make.lake.job(failed.job.id)
    assert job.state == "FAILED"
    assert job.failure == failed.job.failure


def test_rows_mended_after_a_failure_are_computed(make: Maker) -> None:
    table = make.numbered(60)
    table.add_column("made", scalar)
    failure_of(table, "made")
    table.to_lance().update({"id": "1000"}, where=f"id = {POISON}")
    filled(table, "made")
    assert by_id(table, "made") == {number: number for number in [*range(57), 58, 59, 1000]}


def test_a_mended_function_works_under_another_name(make: Maker) -> None:
    @tidemill.udf
    def mended(id: int) -> int:
        return id

    table = make.numbered(60)
    table.add_column("made", scalar)
    failure_of(table, "made")
    table.add_column("mended", mended)
    filled(table, "mended")
    assert by_id(table, "mended") == {number: number for number in range(60)}


@pytest.mark.parametrize("function", [wrong_type, wrong_array_type], ids=lambda function: function.name)
def test_a_value_of_another_type_fails_the_job_with_its_row(function: Any, make: Maker) -> None:
    table = make.numbered(60)
    table.add_column("made", function)
    failed = failure_of(table, "made")
    assert failed.row_id == row_ids(table)[POISON]
    assert "not a number" in str(failed)
    assert table.count_rows("made IS NOT NULL") == 0


@pytest.mark.parametrize(
    ("function", "said"), [(no_array, "a pyarrow Array is needed"), (too_short, "values for")]
)
def test_an_answer_that_is_no_column_fails_the_job(function: Any, said: str, make: Maker) -> None:
    table = make.numbered(5)
    table.add_column("made", function)
    assert said in str(failure_of(table, "made"))


def test_a_function_that_calls_exit_fails_the_job_with_the_row(make: Maker) -> None:
    @tidemill.udf
    def leaving(id: int) -> int:
        if id == POISON:
            sys.exit(3)
        return id

    table = make.numbered(80)
    table.add_column("made", leaving)
    failed = failure_of(table, "made")
    assert failed.exception == "SystemExit"
    assert failed.row_id == row_ids(table)[POISON]


def test_data_that_is_gone_fails_the_job_in_a_sentence(make: Maker) -> None:
    table = make.numbered(5)
    table.add_column("made", scalar)
    for file in Path(table.location.removeprefix("file://"), "data").iterdir():
        file.unlink()
    failed = failure_of(table, "made")
    assert "Not found" in str(failed)
    assert "org.apache.spark" not in str(failed)
    assert "\n" not in str(failed)


@pytest.mark.parametrize("way", ["exit", "kill"])
def test_a_function_that_ends_its_process_fails_the_job_and_spares_the_worker(
    way: str, make: Maker, calls: CallLog
) -> None:
    @tidemill.udf
    def suicide(id: int) -> int:
        if id == POISON and way == "exit":
            os._exit(3)
        if id == POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        return id

    table = make.numbered(80)
    table.add_column("made", suicide)
    table.add_column("fine", replaced_by_zero)
    failed = failure_of(table, "made")
    assert "process" in str(failed)
    assert table.count_rows("made IS NOT NULL") == 0
    filled(table, "fine")
    assert by_id(table, "fine") == dict.fromkeys(range(80), 0)


@tidemill.udf
def replaced_by_zero(id: int) -> int:
    return 0


class Unreadable(tidemill.UDF[[int], int]):
    """What a client with another Python or a cut transfer could have sent."""

    @property
    def function(self) -> Function:
        return replace(super().function, payload=b"not a pickle", digest="sha256:" + "5" * 64)


def test_a_function_that_cannot_be_opened_fails_the_job(make: Maker) -> None:
    table = make.numbered(5)
    table.add_column("made", Unreadable(scalar.__wrapped__, scalar.signature))
    failed = failure_of(table, "made")
    assert "scalar cannot be opened" in str(failed)
    assert failed.exception == "UnpicklingError"


def test_a_setup_that_raises_fails_the_job(make: Maker) -> None:
    @tidemill.udf(inputs=["id"])
    class Unprepared:
        def setup(self) -> None:
            raise RuntimeError("there is no model")

        def __call__(self, id: int) -> int:
            return id

    table = make.numbered(5)
    table.add_column("made", Unprepared)
    failed = failure_of(table, "made")
    assert failed.exception == "RuntimeError"
    assert "there is no model" in str(failed)


def test_a_chunker_that_raises_fails_the_refresh_with_the_row(make: Maker) -> None:
    @tidemill.chunker(output=pa.schema([("part", pa.string())]))
    def parts(id: int, text: str) -> Any:
        if id == POISON:
            raise ValueError(f"{id} is poison")
        yield {"part": text}

    table = make.numbered(80)
    view = make.view(table.chunk(parts))
    version = view.version
    with pytest.raises(tidemill.JobFailed) as failed:
        view.refresh().wait(120)
    assert failed.value.row_id == row_ids(table)[POISON]
    assert view.version == version
    assert view.count_rows() == 0


def test_a_chunker_that_yields_something_else_fails_the_refresh(make: Maker) -> None:
    @tidemill.chunker(output=pa.schema([("part", pa.string())]))
    def parts(text: str) -> Any:
        yield text

    view = make.view(make.numbered(3).chunk(parts))
    with pytest.raises(tidemill.JobFailed, match="a NamedTuple, dict or tuple is needed"):
        view.refresh().wait(120)
