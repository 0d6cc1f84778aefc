"""Batches find their size."""

from __future__ import annotations

from datetime import timedelta

from tidemill.jobs.model.columns import BatchPolicy
from tidemill.spark.kernels import BatchSizer


def settled(policy: BatchPolicy, seconds_per_row: float) -> tuple[int, float]:
    """The size after a while, and the longest batch on the way."""
    sizer, longest = BatchSizer(policy), 0.0
    for _ in range(20):
        seconds = sizer.rows * seconds_per_row
        longest = max(longest, seconds)
        sizer.record_batch_time(sizer.rows, seconds)
    return sizer.rows, longest


def test_a_quick_function_gets_the_largest_batches() -> None:
    assert settled(BatchPolicy(), 1e-8)[0] == BatchPolicy().max_rows


def test_a_slow_function_gets_batches_of_the_target_time() -> None:
    rows, longest = settled(BatchPolicy(target=timedelta(seconds=1)), 0.05)
    assert 15 <= rows <= 20
    assert longest < 5


def test_the_bounds_are_kept() -> None:
    assert settled(BatchPolicy(initial_rows=10, min_rows=10, max_rows=10), 1e-8)[0] == 10
    assert settled(BatchPolicy(min_rows=30), 1.0)[0] == 30


def test_a_short_last_batch_says_nothing() -> None:
    sizer = BatchSizer(BatchPolicy(initial_rows=100))
    sizer.record_batch_time(3, 60.0)
    assert sizer.rows == 100
