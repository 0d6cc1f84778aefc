"""Trying an operation where nothing may wait."""

from __future__ import annotations

import threading

import pytest

from tidemill.catalog.nonblocking import TakesTime, in_haste, may_take_time


def test_without_haste_everything_may_take_time() -> None:
    may_take_time()


def test_in_haste_nothing_may_and_afterwards_everything_may_again() -> None:
    with pytest.raises(TakesTime), in_haste():
        may_take_time()
    may_take_time()


def test_haste_is_the_threads_own() -> None:
    failures: list[Exception] = []

    def work() -> None:
        try:
            may_take_time()
        except TakesTime as error:
            failures.append(error)

    with in_haste():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert failures == []
