"""The commands that start jobs, and `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.cli.running import CommandLine
from tests.unit.sdk.noting import JOB
from tests.unit.sdk.test_computed import PREVIEW

STARTED: dict[str, Any] = {"backfill_column": {"job_id": "j1"}, "refresh": {"job_id": "j1"}, "j1": JOB}
CLEAN = {**JOB, "progress": {"total": 4, "done": 4, "computed": 4}}
EVERY_OPTION = {
    "--where": ("where", "id > 1"),
    "--only": ("only", "stale"),
    "--branch": ("branch", "next"),
    "--read-version": ("read_version", 3),
    "--num-frags": ("num_frags", 2),
    "--cluster": ("cluster", "gpu"),
    "--manifest": ("manifest", "small"),
    "--concurrency": ("concurrency", 4),
    "--intra-applier-concurrency": ("intra_applier_concurrency", 8),
    "--task-size": ("task_size", 100),
    "--commit-granularity": ("commit_granularity", 5),
    "--checkpoint-size": ("checkpoint_size", 10),
    "--min-checkpoint-size": ("min_checkpoint_size", 1),
    "--max-checkpoint-size": ("max_checkpoint_size", 20),
    "--flush-interval": ("batch_checkpoint_flush_interval_seconds", 2.5),
}
EVERY_REFRESH_OPTION = {
    "--policy": ("policy", "incremental"),
    "--src-version": ("src_version", 3),
    "--output-limit": ("output_limit", 9),
    "--cluster": ("cluster", "gpu"),
    "--manifest": ("manifest", "small"),
    "--concurrency": ("concurrency", 4),
    "--intra-applier-concurrency": ("intra_applier_concurrency", 8),
    "--source-task-size": ("source_task_size", 100),
    "--max-rows-per-fragment": ("max_rows_per_fragment", 1000),
}
REFRESH_PLAN = {
    "mode": "incremental",
    "source_version": 9,
    "rows": 45,
    "rows_replaced": 5,
    "rows_removed": 3,
    "rows_reused": 10,
    "reason": "rows changed",
    "sources": [
        {"source": ["a"], "from_version": 8, "version": 9, "inserted": 40, "updated": 5, "deleted": 3}
    ],
}
PLAN = {"read_version": 3, "rows": 8, "rows_reused": 0, "fragments": 1, "commits": 1, "reason": "new"}


def given(options: Mapping[str, tuple[str, Any]] = EVERY_OPTION) -> list[str]:
    return [text for option, (_, value) in options.items() for text in (option, str(value))]


def test_a_backfill_takes_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, **STARTED)
    line.printed("backfill", "library.docs", "words", *given(), "--retry-failed", "--on-error", "skip")
    body = line.server.sent()
    assert body.pop("on_error")["action"] == "skip"
    assert body == {"column": "words", "retry_failed": True, **dict(EVERY_OPTION.values())}


def test_a_backfill_says_nothing_that_was_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, **STARTED)
    line.printed("backfill", "library.docs", "words")
    assert line.server.sent() == {"column": "words"}


def test_a_backfill_that_skipped_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, **STARTED).printed("backfill", "library.docs", "words")
    assert said.splitlines() == [
        "Job j1 done: 4 computed, 6 skipped",
        "DONE, 6 rows skipped; see 'tidemill errors library.docs words --job j1'",
    ]


def test_a_backfill_without_skipped_rows_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, **{**STARTED, "j1": CLEAN}).printed("backfill", "library.docs", "words")
    assert said == "Job j1 done: 4 computed\n"


def test_a_backfill_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, **{**STARTED, "j1": {**JOB, "state": "QUEUED"}})
    said = line.printed("backfill", "library.docs", "words", "--no-wait")
    assert said == "Job j1 is QUEUED; watch it with 'tidemill jobs watch j1'\n"


@pytest.mark.parametrize(
    "arguments", [["--only", "fresh"], ["--max-skipped", "3"], ["--attempts", "0"], ["--task-size", "x"]]
)
def test_options_that_make_no_sense_are_wrong_usage(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = CommandLine(monkeypatch, **STARTED)
    assert line.run("backfill", "library.docs", "words", *arguments).exit_code == 2
    assert line.server.requests == []


def test_explain_takes_the_options_of_a_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, explain={**PLAN, "conflicts": ["job j2 fills it"]})
    said = line.printed("explain", "backfill", "library.docs", "words", *given())
    assert line.server.sent() == {"column": "words", **dict(EVERY_OPTION.values())}
    assert said.endswith("(new)\nConflict: job j2 fills it\n")


def test_explain_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, explain={**PLAN, "tasks": 4, "expected_seconds": 2.0})
    said = line.json("explain", "backfill", "library.docs", "words")
    assert (said["tasks"], said["expected_seconds"], said["conflicts"]) == (4, 2.0, [])


def test_a_refresh_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, **STARTED)
    assert line.json("refresh", "library.passages", "--full")["job_id"] == "j1"
    assert line.server.sent() == {"full": True}


def test_a_refresh_takes_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, **STARTED)
    line.printed("refresh", "library.passages", *given(EVERY_REFRESH_OPTION), "--on-error", "skip")
    body = line.server.sent()
    assert body.pop("on_error")["action"] == "skip"
    assert body == dict(EVERY_REFRESH_OPTION.values())


def test_a_refresh_says_nothing_that_was_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, **STARTED)
    line.printed("refresh", "library.passages")
    assert line.server.sent() == {}


def test_explain_takes_the_options_of_a_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, explain=REFRESH_PLAN)
    said = line.printed("explain", "refresh", "library.passages", *given(EVERY_REFRESH_OPTION))
    assert line.server.sent() == dict(EVERY_REFRESH_OPTION.values())
    assert said.endswith("Source: a, version 8 to 9: 40 inserted, 5 updated, 3 deleted\n")
    assert line.json("explain", "refresh", "library.passages")["sources"][0]["inserted"] == 40


def test_a_preview_shows_rows_and_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"row_id": 7, "exception": "ValueError", "message": "no", "traceback": "…", "attempts": 1}
    result = {**PREVIEW, "errors": [failed]}
    line = CommandLine(monkeypatch, preview={"job_id": "j1"}, j1={**JOB, "result": result})
    said = line.printed("preview", "library.docs", "words", "--rows", "1", "--where", "id > 1")
    assert line.server.sent() == {"column": "words", "rows": 1, "where": "id > 1"}
    assert "Preview of library.docs.words at version 3: 1 row, 8 rows/s, 1 failed" in said
    assert "a tide" in said
    assert said.endswith("! words, row 7: ValueError: no\n")


def test_a_preview_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, preview={"job_id": "j1"}, j1={**JOB, "result": PREVIEW})
    said = line.json("preview", "library.docs", "words")
    assert said["rows"] == [{"_rowid": 0, "text": "a tide", "words": 2}]
    assert (said["source_version"], said["truncated"], said["errors"]) == (3, False, [])
