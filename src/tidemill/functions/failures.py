"""Failures of functions as plain text and numbers: an exception never leaves the process that raised it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tidemill.jobs.model.failures import RowFailure

# What a function may raise; sys.exit() in it is a failure like any other.
FUNCTION_ERRORS: Final = (Exception, SystemExit)
CRASHED: Final = "FunctionCrashed"
TIMED_OUT: Final = "TimeoutError"
HOST_FAILED: Final = "HostFailed"
ENVIRONMENT_FAILED: Final = "EnvironmentFailed"
MAX_MESSAGE: Final = 4096
MAX_TRACEBACK: Final = 16384
OUR_FOLDER: Final = str(Path(__file__).parent)


@dataclass(frozen=True)
class Raised:
    """What was raised; `names` has the class and its base classes, for `retry_on`."""

    exception: str
    message: str
    traceback: str
    names: tuple[str, ...]

    def is_one_of(self, wanted: tuple[str, ...]) -> bool:
        return not set(wanted).isdisjoint(self.names)


@dataclass(frozen=True)
class FailedRows:
    """Rows that failed together: a single row, or a batch that was not bisected."""

    start: int
    rows: int
    raised: Raised
    tries: int = 1


class FunctionRaised(Exception):
    """A function failed for good: on a row, or because it could not be opened or run at all."""

    def __init__(self, failure: RowFailure, names: tuple[str, ...] = ()) -> None:
        super().__init__(failure, names)
        self.failure = failure
        self._names = names

    def is_one_of(self, wanted: tuple[str, ...]) -> bool:
        """Whether the function raised an exception of these names; base classes match, too."""
        names = self._names or (describe(self.__cause__).names if self.__cause__ is not None else ())
        return not set(wanted).isdisjoint(names)

    def __str__(self) -> str:
        return self.failure.message


def describe(error: BaseException, prefix: str = "") -> Raised:
    name = type(error).__qualname__
    message = f"{prefix}{name}: {_text(error)}"[:MAX_MESSAGE]
    return Raised(name, message, _trace(error)[-MAX_TRACEBACK:], tuple(_names(type(error))))


def synthetic_error(exception: str, message: str) -> Raised:
    """A failure that the function did not raise itself, such as a crash."""
    names = _names(TimeoutError) if exception == TIMED_OUT else (exception, "Exception")
    return Raised(exception, f"{exception}: {message}", "", tuple(names))


def error_without_row(raised: Raised) -> FunctionRaised:
    return FunctionRaised(RowFailure(None, raised.exception, raised.message, raised.traceback))


def as_function_raised(error: BaseException, prefix: str = "") -> FunctionRaised:
    """A failure without a row. A FunctionRaised from within is passed on unchanged."""
    return error if isinstance(error, FunctionRaised) else error_without_row(describe(error, prefix))


def _names(kind: type[BaseException]) -> Iterator[str]:
    for each in kind.__mro__[:-1]:
        yield from dict.fromkeys((each.__name__, each.__qualname__, f"{each.__module__}.{each.__qualname__}"))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except FUNCTION_ERRORS as other:
        return f"(its text cannot be read: {type(other).__qualname__})"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _without_our_frames(error)))
    except FUNCTION_ERRORS:
        return ""


def _without_our_frames(error: BaseException) -> TracebackType | None:
    """Leaves out our own frames, unless there are no others."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OUR_FOLDER):
        trace = trace.tb_next
    return trace or error.__traceback__
