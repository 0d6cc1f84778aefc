"""Functions called in this process: that of a task which trusts them, or a child made for them."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.catalog.model.functions import FunctionKind
from tidemill.functions.calling.batches import Definition, Part, Rows
from tidemill.functions.calling.chunks import ChunkCalls
from tidemill.functions.calling.limits import Marks
from tidemill.functions.calling.retries import Attempt, Sweeper
from tidemill.functions.calling.scalar import ScalarCalls
from tidemill.functions.calling.vectorized import VectorizedCalls
from tidemill.functions.encodings import open_function
from tidemill.functions.failures import RAISED, failed


def opened(definition: Definition, marks: Marks) -> Sweeper:
    """Runs the function's code for the first time; raises FunctionRaised if that fails."""
    try:
        function = open_function(definition.function)
        if definition.function.kind is FunctionKind.CHUNKER:
            return ChunkCalls(definition, function, marks)
        if function.kind is FunctionKind.SCALAR:
            return ScalarCalls(definition, function, marks)
        return VectorizedCalls(definition, function, marks)
    except RAISED as error:
        raise failed(error, f"{definition.function.name} cannot be opened: ") from error


class InsideSweeper:
    """Opens a function in this process at its first use; several threads may use it at once."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    def sweep(self, rows: Rows, attempt: Attempt) -> Iterator[Part]:
        calls = opened(self._definition, Marks())
        try:
            yield from calls.sweep(rows, attempt)
        except RAISED as error:
            raise failed(error) from error

    def close(self) -> None:
        """An open function stays so, for the next task of the process."""
