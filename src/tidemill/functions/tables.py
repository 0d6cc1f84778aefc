"""Functions that read rows themselves and yield batches, called in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidemill.catalog.model.functions import Function
from tidemill.functions.chunk_calls import as_table
from tidemill.functions.failures import RAISED, failed
from tidemill.functions.opening import open_function


def yielded_batches(function: Function, source: Any, output: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a table function makes of its source, in the view's columns; raises FunctionRaised."""
    try:
        call = open_function(function).call
    except RAISED as error:
        raise failed(error, f"{function.name} cannot be opened: ") from error
    try:
        for answer in call(source):
            yield from as_table(answer, output).to_batches()
    except RAISED as error:
        raise failed(error) from error
