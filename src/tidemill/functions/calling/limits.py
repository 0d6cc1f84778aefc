"""Time limits of calls, and the progress by which another process watches them.

A call in the main thread is interrupted by an alarm signal. Native code may not react to it, so the task
also watches the `CallProgress` of a child, and kills the child when a call takes too long.
"""

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
PROGRESS_BYTES: Final = 24


class CurrentCall(NamedTuple):
    """The number of the current call and its rows; `rows` is 0 between calls."""

    call: int
    start: int
    rows: int


class CallProgress:
    """Memory to which a process writes its current call, for the process that shares it."""

    def __init__(self, memory: Any = None) -> None:
        view = memoryview(bytearray(PROGRESS_BYTES) if memory is None else memory)
        self.slots = view[:PROGRESS_BYTES].cast("Q")

    def begin(self, start: int, rows: int) -> None:
        self.slots[CALLS] += 1
        self.slots[START] = start
        self.slots[ROWS] = rows

    def end(self) -> None:
        self.slots[ROWS] = 0

    def read(self) -> CurrentCall:
        return CurrentCall(*self.slots)


def with_timeout(call: Callable[..., Any], seconds: float | None) -> Callable[..., Any]:
    """Wraps a call so that it raises TimeoutError when it takes longer."""
    return call if seconds is None else partial(_call_with_timeout, call, seconds)


def _call_with_timeout(call: Callable[..., Any], seconds: float, *given: Any) -> Any:
    if current_thread() is main_thread():
        return _call_with_alarm(call, seconds, given)
    return _call_in_thread(call, seconds, given)


def _call_with_alarm(call: Callable[..., Any], seconds: float, given: tuple[Any, ...]) -> Any:
    def on_alarm(number: int, frame: FrameType | None) -> None:
        raise timeout_error(seconds)

    before = signal.signal(signal.SIGALRM, on_alarm)
    others = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return call(*given)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *others)
        signal.signal(signal.SIGALRM, before)


def _call_in_thread(call: Callable[..., Any], seconds: float, given: tuple[Any, ...]) -> Any:
    """Only the main thread can be interrupted. This call goes on in its thread; its result is dropped."""
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
        raise timeout_error(seconds)
    return outcome[0]


def timeout_error(seconds: float) -> TimeoutError:
    return TimeoutError(f"the call took longer than {seconds:g} s")
