"""The command line against a running server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.calls import Brake, CallLog
from tests.e2e.command import as_json, printed, tidemill_command
from tests.e2e.tables import Maker, filled, refreshed
from tests.e2e.waiting import eventually

Command = Callable[..., subprocess.CompletedProcess[str]]


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@tidemill.udf
def broken(text: str) -> int:
    raise ValueError(f"no size for {text}")


@pytest.fixture
def command(server: RunningServer) -> Command:
    """The command, told where the server is."""
    return lambda *arguments: tidemill_command(*arguments, environment={"TIDEMILL_URL": server.url})


@pytest.fixture
def docs(make: Maker) -> tidemill.Table:
    table = make.numbered(3)
    table.add_column("size", size)
    return table


@tidemill.udf
def inverse(id: int) -> float:
    return 1 / (id - 2)


@pytest.fixture
def skipping(make: Maker) -> tidemill.Table:
    """A table with a column whose function fails on one row."""
    table = make.numbered(4)
    table.add_column("inverse", inverse)
    return table


class Underway(NamedTuple):
    table: tidemill.Table
    job: tidemill.Job


@pytest.fixture
def underway(make: Maker, calls: CallLog, brake: Brake) -> Underway:
    """A job that goes on until the brake is released."""

    @tidemill.udf
    def slow(text: str) -> int:
        calls.note(text)
        brake.pause()
        return len(text)

    table = make.numbered(2000, 2000)
    table.add_column("slow", slow)
    job = table.backfill("slow", checkpoint_size=20, max_checkpoint_size=20)
    eventually(calls.count, "the function is called")
    return Underway(table, job)


def test_the_version_is_printed() -> None:
    assert printed(tidemill_command("--version")) == f"tidemill {tidemill.__version__}\n"


def test_a_backfill_says_how_it_ended(command: Command, docs: tidemill.Table) -> None:
    said = printed(command("backfill", docs.name, "size"))
    assert "done" in said
    assert "3 computed" in said
    assert docs.count_rows("size = 6") == 3


def test_a_backfill_speaks_json(command: Command, docs: tidemill.Table) -> None:
    said = as_json(command("backfill", docs.name, "size", "--where", "id < 2", "--json"))
    assert (said["state"], said["progress"]["computed"]) == ("DONE", 2)


def test_a_backfill_that_fails_is_one_line_and_exit_code_one(command: Command, make: Maker) -> None:
    table = make.numbered(3)
    table.add_column("broken", broken)
    done = command("backfill", table.name, "broken")
    assert done.returncode == 1
    assert "no size for text" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_backfill_that_fails_is_json_all_the_same(command: Command, make: Maker) -> None:
    table = make.numbered(3)
    table.add_column("broken", broken)
    done = command("backfill", table.name, "broken", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["failure"]["exception"] == "ValueError"


def test_a_backfill_can_be_left_alone(command: Command, docs: tidemill.Table, lake: tidemill.Lake) -> None:
    started = as_json(command("backfill", docs.name, "size", "--no-wait", "--json"))
    assert lake.job(started["job_id"]).wait(120).state == "DONE"


def test_a_backfill_says_that_it_skipped_rows_and_how_to_see_them(
    command: Command, skipping: tidemill.Table
) -> None:
    said = printed(command("backfill", skipping.name, "inverse", "--on-error", "skip", "--max-skipped", "1"))
    assert f"DONE, 1 row skipped; see 'tidemill errors {skipping.name} inverse --job" in said
    seen = printed(command("errors", skipping.name, "inverse", "--traceback"))
    assert "ZeroDivisionError" in seen
    assert "Traceback" in seen


def test_skipped_rows_are_told_to_machines(command: Command, skipping: tidemill.Table) -> None:
    as_json(command("backfill", skipping.name, "inverse", "--on-error", "skip", "--json"))
    [error] = as_json(command("errors", skipping.name, "--json"))
    assert [error["row_id"]] == as_json(
        command("columns", "rows", skipping.name, "inverse", "failed", "--json")
    )
    assert as_json(command("columns", "status", skipping.name, "inverse", "--json"))["failed"] == 1


def test_a_preview_is_shown(command: Command, skipping: tidemill.Table) -> None:
    said = printed(command("preview", skipping.name, "inverse", "--rows", "4"))
    assert "1 failed" in said
    assert "ZeroDivisionError" in said
    assert skipping.count_rows("inverse IS NOT NULL") == 0


def test_a_job_is_paused_and_resumed(command: Command, underway: Underway, brake: Brake) -> None:
    assert underway.job.id in printed(command("jobs", "pause", underway.job.id))
    eventually(lambda: underway.job.reload().state == "PAUSED", "the job is paused")
    brake.release()
    assert as_json(command("jobs", "resume", underway.job.id, "--json"))["state"] == "QUEUED"
    assert "done" in printed(command("jobs", "watch", underway.job.id, "--log"))


def test_jobs_are_listed_by_table(command: Command, docs: tidemill.Table) -> None:
    job = filled(docs, "size")
    said = as_json(command("jobs", "list", "--table", docs.name, "--state", "done", "--json"))
    assert [item["job_id"] for item in said] == [job.id]


def test_manifests_are_stored_listed_and_dropped(command: Command, namespace: str) -> None:
    printed(command("manifests", "put", namespace, "--env", "KEY=secret"))
    listed = {item["name"]: item for item in as_json(command("manifests", "list", "--json"))}
    assert listed[namespace]["env"] == ["KEY"]
    printed(command("manifests", "drop", namespace))
    assert namespace not in printed(command("manifests", "list"))


def test_explain_says_what_a_backfill_would_do(command: Command, docs: tidemill.Table) -> None:
    said = printed(command("explain", "backfill", docs.name, "size"))
    assert said == f"{docs.explain('size')}\n"


def test_explain_of_a_backfill_speaks_json(command: Command, docs: tidemill.Table) -> None:
    said = as_json(command("explain", "backfill", docs.name, "size", "--json"))
    assert (said["rows"], said["commits"]) == (3, 1)


def test_explain_says_what_a_refresh_would_do(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id"))
    assert printed(command("explain", "refresh", view.name)) == f"{view.explain()}\n"


def test_explain_of_a_refresh_speaks_json(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id"))
    assert as_json(command("explain", "refresh", view.name, "--json"))["rows"] == 3


def test_a_refresh_says_how_it_ended(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id"))
    assert "3 computed" in printed(command("refresh", view.name))
    assert view.count_rows() == 3


def test_a_full_refresh_speaks_json(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id"))
    refreshed(view)
    assert as_json(command("refresh", view.name, "--full", "--json"))["result"]["mode"] == "full"


def test_a_view_is_created_from_sql_and_filled(command: Command, docs: tidemill.Table) -> None:
    name = f"{docs.name}_sizes"
    query = f"SELECT length(text) AS size, count(*) AS texts FROM {docs.name} GROUP BY 1"
    said = as_json(command("views", "create", name, "--query", query, "--with-data", "--json"))
    assert said["state"] == "DONE"
    assert name in printed(command("views", "list", docs.levels[0]))
    assert "fresh" in printed(command("views", "status", name))
    assert as_json(command("views", "status", name, "--json"))["policy"] == "auto"


def test_a_view_is_created_from_a_file_and_dropped(
    command: Command, docs: tidemill.Table, tmp_path: Path
) -> None:
    file, name = tmp_path / "ids.sql", f"{docs.name}_ids"
    file.write_text(f"SELECT id FROM {docs.name}")
    assert f"tidemill refresh {name}" in printed(command("views", "create", name, "--file", str(file)))
    printed(command("views", "drop", name))
    assert as_json(command("views", "list", docs.levels[0], "--json")) == []


def test_a_view_is_verified(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id"))
    refreshed(view)
    assert "3 rows checked, all as the definition" in printed(command("verify", view.name))
    view.to_lance().update({"id": "7"}, where="id = 1")
    done = command("verify", view.name)
    assert done.returncode == 1
    assert "1 different" in done.stdout
    assert "Expected" in done.stdout


def test_a_refresh_takes_its_options(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id", size=size))
    options = ["--policy", "full", "--source-task-size", "2", "--on-error", "skip", "--concurrency", "1"]
    assert as_json(command("refresh", view.name, *options, "--json"))["result"]["mode"] == "full"
    assert "nothing to do" in printed(command("explain", "refresh", view.name, "--policy", "auto"))


def test_lineage_is_shown_as_a_tree(command: Command, docs: tidemill.Table, make: Maker) -> None:
    view = make.view(docs.select("id", length=size))
    assert f"{docs.name} (table)" in printed(command("lineage", view.name))
    assert "function size" in printed(command("lineage", view.name, "--column", "length"))
    [found] = as_json(command("lineage", docs.name, "--json"))["downstream"]
    assert (found["object"], found["kind"]) == (view.name, "view")


def test_jobs_are_listed_for_people(command: Command, docs: tidemill.Table) -> None:
    job = filled(docs, "size")
    said = printed(command("jobs", "list", "--limit", "3"))
    (line,) = [line for line in said.splitlines() if job.id in line]
    assert f"backfill {docs.name}.size" in line
    assert "DONE" in line


def test_jobs_are_listed_for_machines(command: Command, docs: tidemill.Table) -> None:
    job = filled(docs, "size")
    said = as_json(command("jobs", "list", "--limit", "1", "--json"))
    assert [item["job_id"] for item in said] == [job.id]


def test_a_failed_job_is_shown_with_its_traceback(command: Command, make: Maker) -> None:
    table = make.numbered(1)
    table.add_column("broken", broken)
    with pytest.raises(tidemill.JobFailed) as failed:
        filled(table, "broken")
    said = printed(command("jobs", "show", failed.value.job.id))
    assert "FAILED" in said
    assert "Traceback" in said
    assert "no size for text 0" in said


def test_a_job_is_shown_for_machines(command: Command, docs: tidemill.Table) -> None:
    job = filled(docs, "size")
    assert as_json(command("jobs", "show", job.id, "--json")) == job.to_dict()


def test_a_job_is_watched_to_its_end(command: Command, underway: Underway, brake: Brake) -> None:
    brake.release()
    assert "4,000 computed" in printed(command("jobs", "watch", underway.job.id))


def test_a_job_is_watched_by_machines(command: Command, docs: tidemill.Table) -> None:
    job = filled(docs, "size")
    assert as_json(command("jobs", "watch", job.id, "--json"))["state"] == "DONE"


def test_a_job_is_cancelled(command: Command, underway: Underway) -> None:
    assert underway.job.id in printed(command("jobs", "cancel", underway.job.id))
    with pytest.raises(tidemill.JobCancelled):
        underway.job.wait(60)


def test_a_job_is_cancelled_by_machines(command: Command, underway: Underway, brake: Brake) -> None:
    other = underway.table
    other.add_column("size", size)
    waiting = other.backfill("size")
    assert as_json(command("jobs", "cancel", waiting.id, "--json"))["state"] == "CANCELLED"
    brake.release()
    underway.job.wait(60)


@pytest.mark.parametrize(
    "arguments",
    [
        ["backfill", "{namespace}.missing", "size"],
        ["backfill", "{namespace}.docs", "missing"],
        ["refresh", "{namespace}.docs"],
        ["jobs", "show", str(uuid4())],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
@pytest.mark.usefixtures("docs")
def test_a_name_that_is_not_there_is_one_line_and_exit_code_one(
    command: Command, namespace: str, arguments: list[str]
) -> None:
    done = command(*(argument.format(namespace=namespace) for argument in arguments))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_an_option_that_is_not_there_is_exit_code_two(command: Command) -> None:
    done = command("jobs", "list", "--nonsense")
    assert done.returncode == 2
    assert "--nonsense" in done.stderr


def test_a_server_is_found_under_its_root(server: RunningServer, docs: tidemill.Table) -> None:
    said = tidemill_command("explain", "backfill", docs.name, "size", "--root", str(server.root))
    assert "3 rows" in printed(said)


def test_without_a_server_the_command_says_how_to_start_one(tmp_path: Path) -> None:
    done = tidemill_command("jobs", "list", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "tidemill serve --root" in done.stderr


def doctor(*arguments: str, **environment: str) -> dict[str, Any]:
    """What the doctor says about each thing, by its name."""
    done = tidemill_command("doctor", "--json", *arguments, environment=environment)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return {check["name"]: check for check in report["checks"]}


def test_the_doctor_finds_a_running_server_in_order(server: RunningServer) -> None:
    said = printed(tidemill_command("doctor", "--root", str(server.root)))
    assert "fault" not in said
    # Another test may have started a second one for the same folder.
    assert "responds at http://127.0.0.1:" in said


def test_the_doctor_sees_that_a_java_home_has_no_java(tmp_path: Path) -> None:
    java = doctor("--root", str(tmp_path), JAVA_HOME=str(tmp_path))["Java"]
    assert not java["is_ok"]
    assert "install Java 17" in java["advice"]


@pytest.mark.skipif((Path(sys.prefix) / "java").exists(), reason="this environment has a Java of its own")
def test_the_doctor_sees_that_there_is_no_java_at_all(tmp_path: Path) -> None:
    java = doctor("--root", str(tmp_path), JAVA_HOME="", PATH=str(tmp_path))["Java"]
    assert not java["is_ok"]
    assert java["detail"] == "none in JAVA_HOME or on PATH"


def test_the_doctor_sees_that_a_root_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    storage = doctor("--root", str(file / "root"))["Storage"]
    assert not storage["is_ok"]
    assert "--root" in storage["advice"]


def test_the_doctor_tells_people_what_to_do(tmp_path: Path) -> None:
    done = tidemill_command("doctor", "--root", str(tmp_path), environment={"JAVA_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "fault Java" in done.stdout
    assert "set JAVA_HOME" in done.stdout


@pytest.mark.deep
def test_the_doctor_tries_spark_when_asked(tmp_path: Path) -> None:
    assert "counted 3 rows" in doctor("--root", str(tmp_path), "--deep")["Spark"]["detail"]
