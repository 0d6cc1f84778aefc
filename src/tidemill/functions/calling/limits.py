"""Time limits of calls, and the marks by which they are watched from outside."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any, Final, NamedTuple

CALLS: Final = 0
START: Final = 1
ROWS: Final = 2
MARKS_BYTES: Final = 24


class Mark(NamedTuple):
    """Which call it is, and its rows; no rows while no call is under way."""

    call: int
    start: int
    rows: int


class Marks:
    """Memory in which a process says what it is at; another one that shares it can read that at any time."""

    def __init__(self, memory: Any = None) -> None:
        self.slots = memoryview(bytearray(MARKS_BYTES) if memory is None else memory)[:MARKS_BYTES].cast("Q")

    def begin(self, start: int, rows: int) -> None:
        self.slots[CALLS] += 1
        self.slots[START] = start
        self.slots[ROWS] = rows

    def end(self) -> None:
        self.slots[ROWS] = 0

    def read(self) -> Mark:
        return Mark(*self.slots)


def limited(call: Callable[..., Any], seconds: float | None) -> Callable[..., Any]:
    """The call; it raises TimeoutError when it takes longer."""
    return call if seconds is None else partial(_limited, call, seconds)


def _limited(call: Callable[..., Any], seconds: float, *given: Any) -> Any:
    if current_thread() is main_thread():
        return _with_alarm(call, seconds, given)
    return _with_patience(call, seconds, given)


def _with_alarm(call: Callable[..., Any], seconds: float, given: tuple[Any, ...]) -> Any:
    def ring(number: int, frame: FrameType | None) -> None:
        raise too_long(seconds)

    before = signal.signal(signal.SIGALRM, ring)
    others = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call(*given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *others)
        signal.signal(signal.SIGALRM, before)


def _with_patience(call: Callable[..., Any], seconds: float, given: tuple[Any, ...]) -> Any:
    """Only the main thread can be interrupted: the call goes on, but nobody waits for it any more."""
    outcome: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call(*given))
        except BaseException as error:  # noqa: BLE001  # raised again by the thread that waits
            raised.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not outcome:
        raise too_long(seconds)
    return outcome[0]


def too_long(seconds: float) -> TimeoutError:
    return TimeoutError(f"the call took longer than {seconds:g} s")
