"""The in-process executor. It runs in a task that trusts the function, and inside every child process."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.calling.batches import BoundFunction, Part, Rows
from tidemill.functions.calling.chunks import ChunkCalls
from tidemill.functions.calling.limits import CallProgress
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
