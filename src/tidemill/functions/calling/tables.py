"""Functions that read rows themselves and yield batches, called in this process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tidemill.catalog.model.functions import Function
from tidemill.functions.calling.chunks import as_table
from tidemill.functions.calling.limits import limited, too_long
from tidemill.functions.encodings import open_function
from tidemill.functions.failures import RAISED, failed

NO_MORE: Final = object()
# A limit of no time at all would be none.
SHORTEST: Final = 0.001


def yielded_batches(function: Function, source: Any, output: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a table function makes of its source, in the view's columns; raises FunctionRaised."""
    try:
        call = open_function(function).call
    except RAISED as error:
        raise failed(error, f"{function.name} cannot be opened: ") from error
    try:
        for answer in _within(limited(call, function.timeout_seconds)(source), function.timeout_seconds):
            yield from as_table(answer, output).to_batches()
    except RAISED as error:
        raise failed(error) from error


def _within(answers: Iterable[Any], seconds: float | None) -> Iterator[Any]:
    """A generator does its work while it is read; what becomes of its answers meanwhile does not count."""
    rest, spent = iter(answers), 0.0
    while True:
        began_at = time.monotonic()
        try:
            answer = limited(next, None if seconds is None else max(seconds - spent, SHORTEST))(rest, NO_MORE)
        finally:
            spent += time.monotonic() - began_at
            if seconds is not None and spent > seconds:
                raise too_long(seconds)
        if answer is NO_MORE:
            return
        yield answer
