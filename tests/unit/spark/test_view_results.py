"""Which results of a view's functions are taken from where, in a task."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemill.functions.api import Computed
from tidemill.jobs.model.columns import BatchPolicy
from tidemill.jobs.model.views import CHILD_INDEX, SOURCE_ROW_ID, KeptResults
from tidemill.lance.fingerprints import SetFingerprint, fingerprints
from tidemill.lance.view_writer import HeldRows
from tidemill.spark.reading import RowIds
from tidemill.spark.views.gone_results import HeldValues
from tidemill.spark.views.results import ResultComputer, held_chunks, held_values


class Doubling:
    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def compute(self, inputs: pa.RecordBatch, row_ids: RowIds) -> Computed:
        numbers = inputs.column(0).to_pylist()
        self.calls.append(numbers)
        return Computed(pa.array([number * 2 for number in numbers]))


@pytest.fixture
def function() -> Doubling:
    return Doubling()


@pytest.fixture
def kept(tmp_path: Path) -> KeptResults:
    return KeptResults(str(tmp_path / "segments"), str(tmp_path / "checkpoints"))


def ids(*values: int) -> RowIds:
    return np.array(values, dtype=np.uint64)


def inputs(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values)})


def computer(function: Doubling, kept: KeptResults | None) -> ResultComputer:
    policy = BatchPolicy(initial_rows=2, max_rows=2)
    return ResultComputer(function, pa.int64(), kept, 1, policy, with_failures=False)


def held(*values: int | None) -> HeldValues:
    return HeldValues(pa.array(values, pa.int64()), np.array([value is not None for value in values]))


def test_without_anything_kept_every_row_is_a_call(function: Doubling) -> None:
    results = computer(function, None).results(inputs(1, 2, 3), ids(7, 8, 9), None)
    assert results.values.to_pylist() == [2, 4, 6]
    assert function.calls == [[1, 2], [3]]
    assert results.is_called.all()


def test_a_value_is_right_if_its_fingerprint_is_kept_whatever_row_it_is_in(
    function: Doubling, kept: KeptResults
) -> None:
    first = computer(function, kept)
    first.results(inputs(1, 2, 3), ids(7, 8, 9), None)
    segment = first.write_segment()
    assert segment is not None
    function.calls.clear()
    again = KeptResults(kept.segment_location, kept.checkpoint_location, (segment,))
    # Of another input, of no value, another value, and the right one in another row.
    found = computer(function, again).results(inputs(4, 2, 3, 1), ids(7, 8, 9, 10), held(2, None, 7, 2))
    assert found.values.to_pylist() == [8, 4, 6, 2]
    assert found.is_called.tolist() == [True, True, True, False]
    assert function.calls == [[4, 2], [3]]


def test_results_of_the_same_row_and_inputs_are_found_in_checkpoints(
    function: Doubling, kept: KeptResults
) -> None:
    first = computer(function, kept)
    first.results(inputs(1, 2, 3), ids(7, 8, 9), None)
    first.save()
    function.calls.clear()
    again = computer(function, kept)
    found = again.results(inputs(1, 5, 3, 1), ids(7, 8, 9, 10), None)
    assert found.values.to_pylist() == [2, 10, 6, 2]
    assert function.calls == [[5, 1]]
    # What was found becomes known like what was computed.
    assert again.write_segment() is not None


def test_results_go_to_their_rows_in_whatever_order_the_rows_come(
    function: Doubling, kept: KeptResults
) -> None:
    first = computer(function, kept)
    first.results(inputs(1, 2, 3), ids(7, 8, 9), None)
    first.save()
    found = computer(function, kept).results(inputs(3, 1, 2), ids(9, 7, 8), None)
    assert found.values.to_pylist() == [6, 2, 4]
    assert not found.is_called.any()


def test_what_was_computed_before_an_error_is_saved_and_what_was_lost_in_a_crash_is_not(
    function: Doubling, kept: KeptResults
) -> None:
    for error, calls in ((KeyboardInterrupt, [[1]]), (ValueError, [[1]]), (ValueError, [])):
        function.calls.clear()
        with suppress(error), computer(function, kept) as one:
            one.results(inputs(1), ids(7), None)
            raise error
        assert function.calls == calls


def held_rows(*rows: tuple[int, int, str]) -> HeldRows:
    sources, places, words = zip(*rows, strict=True) if rows else ((), (), ())
    batch = pa.record_batch(
        {
            SOURCE_ROW_ID: pa.array(sources, pa.int64()),
            CHILD_INDEX: pa.array(places, pa.int32()),
            "word": pa.array(words, pa.string()),
        }
    )
    return HeldRows(np.arange(len(rows), dtype=np.uint64), batch)


WORDS = pa.schema([pa.field("word", pa.string())])


def test_the_chunks_of_a_row_are_a_list_in_their_order() -> None:
    rows = held_rows((4, 1, "b"), (2, 0, "x"), (4, 0, "a"), (5, 1, "gap"), (6, 0, "c"), (6, 0, "d"))
    found = held_chunks(rows, ids(6, 4, 3, 5, 2), WORDS)
    lists = [[chunk["word"] for chunk in chunks] for chunks in found.values.to_pylist()]
    assert (lists[1], lists[2], lists[4]) == (["a", "b"], [], ["x"])
    assert found.is_there.tolist() == [False, True, True, False, True]


def test_an_empty_view_holds_no_chunks_for_any_row() -> None:
    found = held_chunks(None, ids(1, 2), WORDS)
    assert (found.values.to_pylist(), found.is_there.tolist()) == ([[], []], [True, True])


def test_a_row_that_the_view_has_twice_has_no_value() -> None:
    found = held_values(held_rows((4, 0, "a"), (2, 0, "x"), (4, 0, "b")), ids(4, 2, 9), "word")
    assert found is not None
    assert found.values.to_pylist() == [None, "x", None]
    assert found.is_there.tolist() == [False, True, False]
    assert held_values(None, ids(1), "word") is None


def test_a_set_of_rows_has_the_same_fingerprint_in_every_order_but_not_if_one_is_there_twice() -> None:
    def of(*batches: list[int]) -> int:
        rows = SetFingerprint()
        for batch in batches:
            rows.add(fingerprints([pa.array(batch, pa.int64())]))
        return int(rows.value[0])

    assert of([1, 2, 3]) == of([3], [2, 1])
    assert len({of(), of([1]), of([1, 1]), of([1, 2]), of([0]), of([0, 0])}) == 6


@pytest.mark.parametrize(
    ("seconds", "size", "rows", "is_worth_it"),
    [(0.001, 1_000, 10, True), (0.001, 10_000_000, 10, False), (1.0, 10_000_000_000, 10, True)],
    ids=["small", "quicker to compute", "slow"],
)
def test_values_are_saved_unless_they_are_quicker_to_compute_than_to_write(
    seconds: float, size: int, rows: int, is_worth_it: bool
) -> None:
    assert BatchPolicy().is_worth_saving(seconds, size, rows) is is_worth_it
