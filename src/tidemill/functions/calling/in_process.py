"""Calls in this process: the executor of rows, and table functions.

Both run in a task that trusts the function, and inside every child process. Table functions read their source
and yield batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.functions.calling.batches import BoundFunction, Part, Rows
from tidemill.functions.calling.chunks import ChunkCalls, as_table
from tidemill.functions.calling.limits import CallProgress, timeout_error, with_timeout
from tidemill.functions.calling.retries import Attempt, Executor
from tidemill.functions.calling.scalar import ScalarCalls, VectorizedCalls
from tidemill.functions.encodings import open_function
from tidemill.functions.failures import FUNCTION_ERRORS, as_function_raised


def open_executor(bound: BoundFunction, progress: CallProgress) -> Executor:
    """Loads the function's code, which may run it; raises FunctionRaised if that fails."""
    try:
        function = open_function(bound.function)
        if bound.function.kind is FunctionKind.CHUNKER:
            return ChunkCalls(bound, function, progress)
        if function.kind is FunctionKind.SCALAR:
            return ScalarCalls(bound, function, progress)
        return VectorizedCalls(bound, function, progress)
    except FUNCTION_ERRORS as error:
        raise as_function_raised(error, f"{bound.function.name} cannot be opened: ") from error


class InProcessExecutor:
    """Calls a function in this process. Several threads may share one."""

    def __init__(self, bound: BoundFunction) -> None:
        self._bound = bound

    def run(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        calls = open_executor(self._bound, CallProgress())
        try:
            yield from calls.run(rows, attempt)
        except FUNCTION_ERRORS as error:
            raise as_function_raised(error) from error

    def close(self) -> None:
        """Keeps the function open for the next task of this process."""


NO_MORE: Final = object()
# A timer of zero seconds would be switched off.
MIN_SECONDS: Final = 0.001


def yielded_batches(function: Function, source: Any, output: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the result of a table function in the columns of `output`; raises FunctionRaised."""
    try:
        call = open_function(function).call
    except FUNCTION_ERRORS as error:
        raise as_function_raised(error, f"{function.name} cannot be opened: ") from error
    try:
        for answer in _timed(with_timeout(call, function.timeout_seconds)(source), function.timeout_seconds):
            yield from as_table(answer, output).to_batches()
    except FUNCTION_ERRORS as error:
        raise as_function_raised(error) from error


def _timed(generator: Iterable[Any], seconds: float | None) -> Iterator[Any]:
    """Limits the time a generator spends on its own work; the time of its consumer does not count."""
    results, spent = iter(generator), 0.0
    while True:
        began_at = time.monotonic()
        try:
            left = None if seconds is None else max(seconds - spent, MIN_SECONDS)
            answer = with_timeout(next, left)(results, NO_MORE)
        finally:
            spent += time.monotonic() - began_at
            if seconds is not None and spent > seconds:
                raise timeout_error(seconds)
        if answer is NO_MORE:
            return
        yield answer
