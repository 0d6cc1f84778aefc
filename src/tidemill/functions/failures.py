"""What functions raise, in words: exceptions do not leave the process they were raised in."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tidemill.jobs.model.failures import RowFailure

# What a function may end with; one that calls sys.exit() is at fault like one that raises.
RAISED: Final = (Exception, SystemExit)
CRASHED: Final = "FunctionCrashed"
TIMED_OUT: Final = "TimeoutError"
HOST_FAILED: Final = "HostFailed"
ENVIRONMENT_FAILED: Final = "EnvironmentFailed"
LONGEST_MESSAGE: Final = 4096
LONGEST_TRACEBACK: Final = 16384
OUR_CODE: Final = str(Path(__file__).parent)


@dataclass(frozen=True)
class Raised:
    """An exception; `names` are those of its class and of the classes it derives from."""

    exception: str
    message: str
    traceback: str
    names: tuple[str, ...]

    def is_one_of(self, wanted: tuple[str, ...]) -> bool:
        return not set(wanted).isdisjoint(self.names)


@dataclass(frozen=True)
class FailedRows:
    """Rows that failed together: a single one, or a batch that nobody took apart."""

    start: int
    rows: int
    raised: Raised
    tries: int = 1


class FunctionRaised(Exception):
    """A function failed for good: on a row, or because it could not be opened."""

    def __init__(self, failure: RowFailure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.message


def described(error: BaseException, prefix: str = "") -> Raised:
    name = type(error).__qualname__
    message = f"{prefix}{name}: {_text(error)}"[:LONGEST_MESSAGE]
    return Raised(name, message, _trace(error)[-LONGEST_TRACEBACK:], tuple(_names(type(error))))


def in_words(exception: str, message: str) -> Raised:
    """A failure that no exception of the function stands for."""
    names = _names(TimeoutError) if exception == TIMED_OUT else (exception, "Exception")
    return Raised(exception, f"{exception}: {message}", "", tuple(names))


def without_row(raised: Raised) -> FunctionRaised:
    return FunctionRaised(RowFailure(None, raised.exception, raised.message, raised.traceback))


def failed(error: BaseException, prefix: str = "") -> FunctionRaised:
    """What a function raised outside of any row; what comes from a function inside, as it is."""
    return error if isinstance(error, FunctionRaised) else without_row(described(error, prefix))


def _names(kind: type[BaseException]) -> Iterator[str]:
    for each in kind.__mro__[:-1]:
        yield from dict.fromkeys((each.__name__, each.__qualname__, f"{each.__module__}.{each.__qualname__}"))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except RAISED as other:
        return f"(its text cannot be read: {type(other).__qualname__})"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _below_our_code(error)))
    except RAISED:
        return ""


def _below_our_code(error: BaseException) -> TracebackType | None:
    """Users know their own lines; where nothing else is, ours have to do."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OUR_CODE):
        trace = trace.tb_next
    return trace or error.__traceback__
