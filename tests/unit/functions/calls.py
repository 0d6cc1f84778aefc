"""Small functions given as text, and how the tests call them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from textwrap import dedent
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidemill.catalog.model.functions import Environment, FunctionKind, source_function
from tidemill.functions.api import CallSettings, ColumnFunction, Computed
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.model.columns import FunctionCall
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy

HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
FIRST_ROW_ID: Final = 1000
SKIP: Final = ErrorPolicy(ErrorAction.SKIP)


def text_call(
    text: str,
    *,
    kind: FunctionKind = FunctionKind.SCALAR,
    value_type: pa.DataType | None = None,
    timeout: float | None = None,
    requirements: Sequence[str] = (),
) -> FunctionCall:
    """A call of the function `f` that the text defines, with the column x."""
    function = source_function(
        "f",
        dedent(text),
        ["x"],
        value_type or pa.int64(),
        name="f",
        python=HERE,
        kind=kind,
        requirements=requirements,
    )
    return FunctionCall(replace(function, timeout_seconds=timeout), ("x",))


def settings(
    isolation: Isolation = Isolation.PROCESS,
    on_error: ErrorPolicy | None = None,
    *,
    threads: int = 1,
    root: str = "",
    memory_bytes: int | None = None,
    environment: Environment | None = None,
) -> CallSettings:
    host = FunctionHost(isolation, root, memory_bytes, is_strict=True)
    return CallSettings(host, on_error or ErrorPolicy(), threads, environment or Environment())


def computed(
    call: FunctionCall,
    values: Sequence[Any],
    how: CallSettings,
    sleep: Callable[[float], None] | None = None,
) -> Computed:
    given = pa.record_batch([pa.array(values)], names=["x"])
    row_ids = np.arange(FIRST_ROW_ID, FIRST_ROW_ID + len(values), dtype=np.uint64)
    with ColumnFunction(call, call.function.value_type, how, sleep=sleep or no_sleep) as function:
        return function.compute(given, row_ids)


def no_sleep(seconds: float) -> None:
    pass


def failed_rows(result: Computed) -> list[int]:
    """The positions of the rows that were skipped."""
    return [(failure.row_id or 0) - FIRST_ROW_ID for failure in result.failures]
