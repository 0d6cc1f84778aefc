"""Jobs of a worker whose Spark has not started: Java waits until the test lets it run, or fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import tidemill
from tests.conftest import RunningServer, start_server
from tests.e2e.tables import TIMEOUT, numbered
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.spark
# Spark calls this program for its JVM; `open` and `broken` are files beside it.
JAVA: Final = """#!/bin/sh
while [ ! -e "{home}/open" ] && [ ! -e "{home}/broken" ]; do sleep 0.05; done
if [ -e "{home}/broken" ]; then echo "this Java is broken" >&2; exit 1; fi
export JAVA_HOME="{real}"
exec "{real}/bin/java" "$@"
"""


@tidemill.udf
def twice(id: int) -> int:
    return 2 * id


def real_java_home() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home is not None:
        return Path(home)
    found = shutil.which("java")
    assert found is not None
    return Path(found).resolve().parent.parent


@pytest.fixture
def java(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(JAVA.format(home=home, real=real_java_home()))
    program.chmod(0o755)
    return home


@pytest.fixture
def server(tmp_path: Path, java: Path) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path / "lake",
        JAVA_HOME=str(java),
        TIDEMILL_SPARK_MASTER="local[1]",
        TIDEMILL_JOB_POLL_SECONDS="0.2",
    )
    yield running
    running.stop()
    # A program that still waits has lost its parent and would wait for ever.
    (java / "broken").touch()


@pytest.fixture
def docs(server: RunningServer) -> Iterator[tidemill.Table]:
    with tidemill.connect(server.url) as lake:
        table = lake.create_table("docs", numbered(0, 10))
        table.add_column("twice", twice)
        yield table


def kinds(job: tidemill.Job) -> list[str]:
    return [event.kind for event in job.events()]


def waiting(docs: tidemill.Table) -> tidemill.Job:
    job = docs.backfill("twice")
    eventually(lambda: "starting_spark" in kinds(job), "the job waits for Spark", TIMEOUT)
    return job


def test_jobs_are_planned_ended_and_cancelled_before_spark_has_started(
    docs: tidemill.Table, java: Path
) -> None:
    empty = docs.backfill("twice", where="id > 100").wait(TIMEOUT)
    assert (empty.state, kinds(empty)) == ("DONE", ["submitted", "started", "planned", "done"])
    cancelled = waiting(docs)
    cancelled.cancel()
    eventually(lambda: "cancelled" in kinds(cancelled), "the job is cancelled", TIMEOUT)
    job = waiting(docs)
    (java / "open").touch()
    assert (job.wait(TIMEOUT).result or {})["rows_computed"] == 10
    assert kinds(job) == ["submitted", "started", "planned", "starting_spark", "done"]
    again = docs.backfill("twice", where="id < 3").wait(TIMEOUT)
    assert "starting_spark" not in kinds(again)


def test_a_job_is_given_back_with_the_reason_when_spark_does_not_start(
    docs: tidemill.Table, java: Path
) -> None:
    job = waiting(docs)
    (java / "broken").touch()
    eventually(lambda: "spark_not_started" in kinds(job), "the job is given back", TIMEOUT)
    reason = next(event.data["message"] for event in job.events() if event.kind == "spark_not_started")
    assert reason.startswith("Spark did not start: ")
    assert "Java gateway" in reason
    eventually(lambda: "taken_over" in kinds(job), "another worker takes the job", TIMEOUT)
    job.cancel()
