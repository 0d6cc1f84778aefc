"""Translates Spark's exceptions into our errors: the only module that reads the text of their messages.

Spark reports everything as one Java exception with a long text: that a Python worker process died, that our
code raised in a task (then the text holds a Python traceback), or that Spark itself refused or failed.
Failures of users' functions do not come this way: tasks report them as files, with the row (see
`tidemill.spark.task_reports`).
"""

from __future__ import annotations

import re
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidemill.catalog.storage_failures import storage_failure
from tidemill.errors import ErrorCode, TidemillError
from tidemill.jobs.model.failures import RowFailure
from tidemill.jobs.stage_errors import RowFailed, TaskProcessLost

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
SHUT_DOWN: Final = ("stopped SparkContext", "SparkContext was shut down")
PROCESS_ENDED: Final = "Python worker exited unexpectedly"
TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\).*?(?=\n+\tat |\Z)", re.DOTALL)
RAISED_LINE: Final = re.compile(r"^(?:\w+\.)*([A-Z]\w*)(?:: (.*))?$", re.MULTILINE)
STACK_OVERFLOW: Final = "java.lang.StackOverflowError"
OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"
MAX_MESSAGE_LENGTH: Final = 500


class StageFailed(TidemillError):
    """Spark failed to finish a stage for a reason other than a failing row."""


class StatementFailed(TidemillError):
    """Spark rejected a view's statement or failed to compute its result."""

    code = ErrorCode.INVALID_INPUT


def stage_failure(error: Exception) -> Exception:
    """The failure of a stage whose tasks run our kernels.

    A Java error without a traceback stays as it is: the worker then checks whether Spark is still alive.
    """
    text = str(error)
    if PROCESS_ENDED in text:
        return TaskProcessLost()
    if (failure := storage_failure(error, "the results of a task")) is not None:
        return failure
    trace = TRACEBACK.search(text)
    if trace is None:
        is_java = isinstance(error, Py4JJavaError)
        return error if is_java else StageFailed(f"Spark could not finish the stage: {text}")
    name, reason = _raised(trace.group())
    # Raised outside the user's function, so no row is at fault.
    return RowFailed(RowFailure(None, name, f"a task failed: {reason}", trace.group()))


def statement_failure(error: Exception) -> TidemillError:
    """The failure of a view's statement on Spark SQL."""
    text = str(error).strip()
    if PROCESS_ENDED in text:
        return TaskProcessLost()
    if (failure := storage_failure(error, "the results of a task")) is not None:
        return failure
    trace = TRACEBACK.search(text)
    if trace is not None:
        return StatementFailed(f"a task failed: {_raised(trace.group())[1]}"[:MAX_MESSAGE_LENGTH])
    if STACK_OVERFLOW in text:
        return StatementFailed("Spark cannot evaluate the view: the statement is nested too deeply for Spark")
    if OUT_OF_MEMORY in text:
        return StatementFailed(
            "Spark ran out of memory: a value, row or group of the view is larger than what Spark has; "
            "make it smaller, or give Spark more with `spark.driver.memory` and `spark.executor.memory`"
        )
    first = text.splitlines()[0] if text else type(error).__name__
    return StatementFailed(f"Spark cannot evaluate the view: {first}"[:MAX_MESSAGE_LENGTH])


def is_shutdown(error: Exception) -> bool:
    """Whether Spark, or the server of Spark Connect, is about to end."""
    message = f"{error} {error.__cause__}"
    return any(text in message for text in SHUT_DOWN)


def _raised(trace: str) -> tuple[str, str]:
    """The name of the exception that ends a traceback, and its last line without the module."""
    lines = list(RAISED_LINE.finditer(trace))
    if not lines:
        return "", "no reason given"
    name, message = lines[-1].groups()
    return name, name if message is None else f"{name}: {message}"
