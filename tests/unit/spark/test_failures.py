from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tidemill.jobs.stage_errors import RowFailed, TaskProcessLost
from tidemill.spark.failures import StageFailed, StatementFailed, stage_failure, statement_failure

IN_A_TASK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "kernels.py", line 7, in run
pyarrow.lib.ArrowInvalid: 1.5 would lose data

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Caused by: java.lang.RuntimeException: not this one
"""
IN_THE_JVM = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\nSELECT 1/0"
LOST = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


def test_a_task_of_ours_that_raises_is_told_by_its_last_line() -> None:
    failure = stage_failure(PySparkException(IN_A_TASK))
    assert isinstance(failure, RowFailed)
    assert failure.failure.row_id is None
    assert failure.failure.exception == "ArrowInvalid"
    assert failure.failure.message == "a task failed: ArrowInvalid: 1.5 would lose data"
    assert "not this one" not in (failure.failure.traceback or "")


def test_a_statement_is_told_what_a_task_of_it_raised() -> None:
    failure = statement_failure(PySparkException(IN_A_TASK))
    assert isinstance(failure, StatementFailed)
    assert str(failure) == "a task failed: ArrowInvalid: 1.5 would lose data"


def test_what_spark_refuses_is_told_in_its_first_line() -> None:
    assert str(statement_failure(PySparkException(IN_THE_JVM))) == (
        "Spark cannot evaluate the view: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
    )
    assert isinstance(stage_failure(PySparkException(IN_THE_JVM)), StageFailed)


@pytest.mark.parametrize("translate", [stage_failure, statement_failure])
def test_a_lost_process_is_recognized_everywhere(translate: object) -> None:
    assert callable(translate)
    assert isinstance(translate(PySparkException(LOST)), TaskProcessLost)


def test_a_statement_that_needs_too_much_memory_is_told_what_to_do() -> None:
    error = PySparkException("An error occurred.\n: java.lang.OutOfMemoryError: Java heap space\n\tat x.y")
    assert "spark.driver.memory" in str(statement_failure(error))
