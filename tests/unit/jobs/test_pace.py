"""How long a job is expected to take, with times as they were measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.jobs.service.pace import PastJob, expected_idle_seconds, expected_seconds

ROWS = st.integers(1, 10**7)
SECONDS = st.floats(0.01, 10_000)
JOBS = st.lists(st.builds(PastJob, st.just(0) | ROWS, SECONDS), max_size=8)


def test_nothing_is_expected_where_nothing_was_computed() -> None:
    assert expected_seconds([], 10) is None
    assert expected_seconds([PastJob(0, 0.3)], 10) is None


def test_a_few_rows_take_as_long_as_a_job_does() -> None:
    """Three thousand rows in 1.6 s are not 0.0005 s for one of them."""
    assert expected_seconds([PastJob(3000, 1.6)], 1) == pytest.approx(1.5, abs=0.01)
    assert expected_seconds([PastJob(3000, 1.6)], 3000) == pytest.approx(1.6)


def test_one_small_job_does_not_make_a_large_one_endless() -> None:
    seconds = expected_seconds([PastJob(2, 1.6)], 1000)
    assert seconds is not None
    assert 1.6 <= seconds < 100


def test_a_large_job_is_scaled_by_its_rows() -> None:
    assert expected_seconds([PastJob(10_000, 101.5)], 20_000) == pytest.approx(201.5)
    assert expected_seconds([PastJob(10_000, 101.5)], 100) == pytest.approx(2.5)


def test_the_price_of_a_job_and_of_a_row_are_told_apart() -> None:
    past = [PastJob(1000, 12.0), PastJob(100, 3.0), PastJob(500, 7.0)]
    assert expected_seconds(past, 2000) == pytest.approx(22.0, abs=0.5)
    assert expected_seconds(past, 10) == pytest.approx(3.0)


def test_a_job_is_not_expected_to_be_quicker_than_the_quickest() -> None:
    assert expected_seconds([PastJob(10, 1.6), PastJob(1000, 3.0)], 1) == 1.6


def test_many_rows_before_say_little_about_a_few() -> None:
    assert expected_seconds([PastJob(2_000_000, 200.0), PastJob(1_000_000, 100.0)], 10) == pytest.approx(1.5)


def test_more_rows_never_take_less_time_because_a_small_job_was_slow() -> None:
    """The first job of a worker waits for Spark."""
    assert expected_seconds([PastJob(1000, 2.0), PastJob(2, 10.0)], 5000) == pytest.approx(6.0)


def test_jobs_with_nothing_to_do_do_not_make_others_cheaper() -> None:
    computing = [PastJob(100, 3.0), PastJob(500, 7.0)]
    assert expected_seconds([PastJob(0, 0.2), *computing], 100) == expected_seconds(computing, 100)


def test_a_job_with_nothing_to_do_costs_what_such_jobs_have_cost() -> None:
    assert expected_idle_seconds([PastJob(0, 0.4), PastJob(0, 0.2), PastJob(100, 3.0)]) == 0.2
    assert expected_idle_seconds([PastJob(100, 3.0)]) == 0.0


@given(JOBS, ROWS, ROWS)
def test_more_rows_never_take_less_time(past: list[PastJob], one: int, other: int) -> None:
    fewer, more = (expected_seconds(past, rows) for rows in sorted((one, other)))
    if fewer is None or more is None:
        assert fewer is more
    else:
        assert 0 < fewer <= more * 1.000001
