"""Threads that start at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from tidemill.errors import TidemillError

ResultT = TypeVar("ResultT")


def together(*works: Callable[[], ResultT]) -> Sequence[ResultT | TidemillError]:
    """What each of them returned or refused with, in their order."""
    barrier = Barrier(len(works))

    def run(work: Callable[[], ResultT]) -> ResultT | TidemillError:
        barrier.wait()
        try:
            return work()
        except TidemillError as refusal:
            return refusal

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))
