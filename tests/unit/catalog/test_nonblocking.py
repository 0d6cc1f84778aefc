"""Trying an operation where nothing may wait."""

from __future__ import annotations

import threading

import pytest

from tidemill.catalog.nonblocking import WouldBlock, may_block, nonblocking


def test_a_thread_may_usually_block() -> None:
    may_block()


def test_a_nonblocking_thread_may_not_block_until_the_end_of_the_block() -> None:
    with pytest.raises(WouldBlock), nonblocking():
        may_block()
    may_block()


def test_one_threads_mark_does_not_concern_another() -> None:
    failures: list[Exception] = []

    def work() -> None:
        try:
            may_block()
        except WouldBlock as error:
            failures.append(error)

    with nonblocking():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert failures == []
