"""`tidemill columns …` and `tidemill errors`."""

from __future__ import annotations

import pytest

from tests.unit.cli.running import CommandLine
from tests.unit.sdk.test_inspection import ERROR, STATUS


def test_the_status_of_a_column_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, status=STATUS)
    said = line.printed("columns", "status", "library.docs", "words", "--branch", "next")
    assert "794 fresh, 150 stale, 50 missing, 6 failed" in said
    assert "sha256:1" in said
    assert line.server.asked() == [("GET", "/api/v1/tables/library$docs/columns/words/status?branch=next")]


def test_versions_whose_values_are_kept_are_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"digest": "sha256:0", "name": "words", "rows": 4, "is_current": False, "is_kept": True}
    line = CommandLine(monkeypatch, status={**STATUS, "functions": [*STATUS["functions"], old]})
    assert "kept" in line.printed("columns", "status", "library.docs", "words")


def test_the_status_of_a_column_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, status=STATUS).json("columns", "status", "library.docs", "words")
    assert said == {"table": "library.docs", **STATUS, "reason": None}


def test_the_status_of_a_column_that_cannot_be_computed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "it cannot be computed: Table docs has no column 'text'"
    line = CommandLine(monkeypatch, status={**STATUS, "reason": reason})
    said = line.printed("columns", "status", "library.docs", "words")
    assert reason in " ".join(said.split())


def test_rows_are_listed_one_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, rows={"row_ids": [3, 17]})
    assert line.printed("columns", "rows", "library.docs", "words", "stale") == "3\n17\n"
    assert line.json("columns", "rows", "library.docs", "words", "failed") == [3, 17]


def test_no_rows_are_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, rows={"row_ids": []})
    assert line.printed("columns", "rows", "library.docs", "words", "missing") == ""


def test_rows_of_another_kind_are_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CommandLine(monkeypatch).run("columns", "rows", "library.docs", "words", "fresh").exit_code == 2


def test_errors_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, errors={"errors": [ERROR]})
    said = line.printed("errors", "library.docs", "words", "--job", "j1")
    assert said.endswith(" words, row 17: ValueError: no (tried 3 times); skipped (job j1)\n")
    assert dict(line.server.requests[0].url.params) == {"column": "words", "job_id": "j1"}


def test_errors_are_listed_with_their_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, errors={"errors": [{**ERROR, "skipped": False}]})
    said = line.printed("errors", "library.docs", "--traceback").splitlines()
    assert said[0].endswith("; ended the job (job j1)")
    assert said[1] == "Traceback: …"


def test_errors_speak_json(monkeypatch: pytest.MonkeyPatch) -> None:
    [said] = CommandLine(monkeypatch, errors={"errors": [ERROR]}).json("errors", "library.docs")
    assert (said["row_id"], said["traceback"], said["is_skipped"]) == (17, "Traceback: …", True)


def test_no_errors_are_good_news(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, errors={"errors": []})
    assert line.printed("errors", "library.docs") == "No function failed on any row\n"
    assert line.json("errors", "library.docs") == []


def test_errors_of_a_view_are_those_of_its_functions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [{"errors": []}, {"errors": [{**ERROR, "column": None}]}]
    line = CommandLine(monkeypatch, list={"views": ["passages"]}, errors=pages)
    assert " row 17: ValueError: no" in line.printed("errors", "library.passages", "--job", "j1")
    assert [path.partition("?")[0] for _, path in line.server.asked()] == [
        "/v1/namespace/library/materialized_view/list",
        "/api/v1/tables/library$passages/errors",
        "/api/v1/views/library$passages/errors",
    ]
