"""`tidemill views …` and `tidemill verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.running import CommandLine
from tests.unit.sdk.noting import JOB
from tests.unit.sdk.test_view import RESULT, STATUS, VERIFIED

QUERY = "SELECT id FROM library.docs"


def test_a_view_is_created_from_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch)
    said = line.printed(
        "views", "create", "library.ids", "--query", QUERY, "--auto-refresh", "--policy", "full"
    )
    assert said == "Created library.ids; fill it with 'tidemill refresh library.ids'\n"
    body = line.server.sent()
    assert (body["source_query"], body["auto_refresh"], body["policy"]) == (QUERY, True, "full")
    assert body["with_no_data"] is True


def test_a_view_is_created_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "ids.sql"
    file.write_text(QUERY)
    line = CommandLine(monkeypatch)
    assert line.json("views", "create", "library.ids", "--file", str(file)) == {"view": "library.ids"}
    assert line.server.sent()["source_query"] == QUERY


def test_a_view_is_filled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done = {**JOB, "progress": {"computed": 4}}
    line = CommandLine(monkeypatch, create={"job_id": "j1"}, j1=done)
    said = line.printed("views", "create", "library.ids", "--query", QUERY, "--with-data")
    assert line.server.sent()["with_no_data"] is False
    assert said == "Job j1 done: 4 computed\n"


def test_the_first_refresh_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, create={"job_id": "j1"}, j1={**JOB, "state": "QUEUED"})
    said = line.printed("views", "create", "library.ids", "--query", QUERY, "--with-data", "--no-wait")
    assert "Job j1 is QUEUED" in said


@pytest.mark.parametrize(
    "arguments",
    [[], ["--query", " "], ["--query", QUERY, "--file", __file__], ["--file", "nowhere.sql"]],
    ids=["none", "empty", "both", "missing"],
)
def test_a_view_needs_one_query(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch)
    assert line.run("views", "create", "library.ids", *arguments).exit_code == 2
    assert line.server.requests == []


def test_views_are_listed_with_their_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, list={"views": ["ids", "words"]})
    assert line.printed("views", "list", "library") == "library.ids\nlibrary.words\n"
    assert line.json("views", "list") == ["ids", "words"]


def test_no_views_are_said_to_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, list={"views": []})
    assert line.printed("views", "list", "library") == "No views here\n"
    assert line.json("views", "list", "library") == []


def test_the_status_of_a_view_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, status=STATUS)
    said = line.printed("views", "status", "a.v")
    assert "out of date (45 rows changed)" in said
    assert "Source: a.docs: version 7, 2 versions behind: 40 inserted, 5 updated" in said


def test_the_status_of_a_view_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, status=STATUS).json("views", "status", "a.v")
    assert (said["is_fresh"], said["sources"][0]["versions_behind"]) == (False, 2)
    assert said["last_refresh"]["mode"] == "full"


def test_a_view_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch)
    assert line.printed("views", "drop", "a.v") == "Dropped a.v\n"
    assert line.json("views", "drop", "a.v") == {"view": "a.v"}
    assert line.server.last()[0] == "/v1/materialized_view/a$v/drop"


@pytest.mark.parametrize("flag", ["cascade", "force"])
def test_a_view_is_dropped_with_a_word_about_views_made_from_it(
    monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    line = CommandLine(monkeypatch)
    line.printed("views", "drop", "a.v", f"--{flag}")
    assert dict(line.server.requests[-1].url.params) == {flag: "true"}


def test_a_view_is_not_dropped_with_two_words_about_views_made_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = CommandLine(monkeypatch).run("views", "drop", "a.v", "--cascade", "--force")
    assert done.exit_code == 2
    assert "give either --cascade or --force" in done.output


def test_a_verification_that_finds_nothing_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {**VERIFIED, "result": {**RESULT, "is_same": True, "differences": []}}
    line = CommandLine(monkeypatch, verify={"job_id": "j1"}, j1=same)
    said = line.printed("verify", "a.v", "--rows", "10", "--seed", "3", "--cluster", "gpu")
    assert said == "a.v: 10 rows checked, all as the definition has them\n"
    assert line.server.sent() == {"rows": 10, "seed": 3, "cluster": "gpu"}


def test_differences_are_a_table_and_exit_code_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CommandLine(monkeypatch, verify={"job_id": "j1"}, j1=VERIFIED).run("verify", "a.v")
    assert done.exit_code == 1
    summary, heading, different, missing = done.output.splitlines()
    assert "1 different" in summary
    assert heading.split() == ["What", "Key", "Columns", "Expected", "Found"]
    assert different.split() == ["different", "3", "words", "{'words':", "2}", "{'words':", "1}"]
    assert missing.split() == ["missing", "4", "{'words':", "2}"]


def test_differences_are_told_to_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CommandLine(monkeypatch, verify={"job_id": "j1"}, j1=VERIFIED).run("verify", "a.v", "--json")
    assert done.exit_code == 1
    assert '"kind": "different"' in done.output
