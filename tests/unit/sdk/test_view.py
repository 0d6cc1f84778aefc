"""What a view sends and what it makes of the answers, against a server that only notes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.sdk.noting import JOB, NotingServer
from tests.unit.sdk.test_inspection import ERROR
from tidemill.sdk.options import skip

STATUS: dict[str, Any] = {
    "view": ["a", "v"],
    "kind": "query",
    "policy": "auto",
    "auto_refresh": True,
    "version": 4,
    "is_fresh": False,
    "reason": "45 rows changed",
    "sources": [
        {
            "source": ["a", "docs"],
            "version_consumed": 7,
            "latest_version": 9,
            "versions_behind": 2,
            "inserted": 40,
            "updated": 5,
            "deleted": 0,
        },
        {"source": ["a", "new"], "version_consumed": None, "latest_version": 1, "versions_behind": 1},
        {"source": ["a", "old"], "version_consumed": 3, "latest_version": 3, "versions_behind": 0},
    ],
    "last_refresh": {
        "job_id": "j1",
        "state": "DONE",
        "finished_at": "2030-01-02T03:04:05+00:00",
        "mode": "full",
    },
}
RESULT: dict[str, Any] = {
    "is_same": False,
    "rows_checked": 10,
    "rows_same": 7,
    "rows_missing": 1,
    "rows_unexpected": 1,
    "rows_different": 1,
    "source_versions": [9],
    "differences": [
        {
            "kind": "different",
            "key": 3,
            "columns": ["words"],
            "expected": {"words": 2},
            "found": {"words": 1},
        },
        {"kind": "missing", "key": 4, "columns": None, "expected": {"words": 2}, "found": None},
    ],
}
VERIFIED = {**JOB, "kind": "verify", "column": None, "table": ["a", "v"], "result": RESULT}


def test_a_refresh_sends_every_option() -> None:
    server = NotingServer(refresh={"job_id": "j1"}, j1=JOB)
    server.lake().view("a.v").refresh(
        policy="incremental", src_version=3, output_limit=9, on_error=skip(limit=1), cluster=None
    )
    body = server.sent()
    assert body.pop("on_error")["max_skipped"] == 1
    assert body == {"policy": "incremental", "src_version": 3, "output_limit": 9}


def test_a_verification_is_started() -> None:
    server = NotingServer(verify={"job_id": "j1"}, j1=VERIFIED)
    job = server.lake().view("a.v").verify(10, seed=3)
    assert server.requests[0].url.path == "/api/v1/views/a$v/verify"
    assert server.sent() == {"rows": 10, "seed": 3}
    assert job.verification is not None
    assert str(job.verification) == ("a.v: 10 rows checked, 7 the same, 1 missing, 1 unexpected, 1 different")
    first, second = job.verification.differences
    assert (first.kind, first.columns, first.found) == ("different", ("words",), {"words": 1})
    assert (second.kind, second.columns, second.found) == ("missing", (), None)


def test_a_verification_without_differences_is_one_sentence() -> None:
    result = {**RESULT, "is_same": True, "differences": []}
    server = NotingServer(verify={"job_id": "j1"}, j1={**VERIFIED, "result": result})
    found = server.lake().view("a.v").verify().verification
    assert str(found) == "a.v: 10 rows checked, all as the definition has them"


@pytest.mark.parametrize("job", [JOB, {**VERIFIED, "result": None}])
def test_other_jobs_have_no_verification(job: Mapping[str, Any]) -> None:
    assert NotingServer(j1=job).lake().job("j1").verification is None


def test_the_status_says_what_happened_to_each_source() -> None:
    server = NotingServer(status=STATUS)
    status = server.lake().view("a.v").status()
    assert server.asked() == [("GET", "/api/v1/views/a$v/status")]
    assert str(status).splitlines() == [
        "a.v (query, policy auto, refreshed automatically) at version 4: out of date (45 rows changed)",
        "Source: a.docs: version 7, 2 versions behind: 40 inserted, 5 updated",
        "Source: a.new: latest version 1, never read",
        "Source: a.old: version 3, the latest",
        "Last refresh: job j1 DONE, full at 2030-01-02 03:04:05 UTC",
    ]
    assert not status.is_fresh


def test_a_view_that_was_never_refreshed_says_so() -> None:
    never = {**STATUS, "last_refresh": None, "sources": [], "auto_refresh": False}
    said = str(NotingServer(status=never).lake().view("a.v").status())
    assert said.splitlines()[1:] == ["Never refreshed"]
    assert "(query, policy auto) at" in said


def test_errors_are_those_of_the_view_and_of_columns_added_to_it() -> None:
    server = NotingServer(errors=[{"errors": [ERROR]}, {"errors": [{**ERROR, "column": None}]}])
    own, added = server.lake().view("a.v").errors(job="j1")
    assert [path for _, path in server.asked()] == [
        "/api/v1/tables/a$v/errors?job_id=j1",
        "/api/v1/views/a$v/errors?job_id=j1",
    ]
    assert (own.column, added.column) == ("", "words")
    assert str(own) == "row 17: ValueError: no (tried 3 times)"


def test_errors_of_a_column_are_those_of_a_table() -> None:
    server = NotingServer(errors={"errors": []})
    assert server.lake().view("a.v").errors("words") == []
    assert [path for _, path in server.asked()] == ["/api/v1/tables/a$v/errors?column=words"]


def test_lineage_is_asked_for_by_column() -> None:
    function = {"name": "words", "digest": "sha256:1"}
    up = {"object": ["a", "docs"], "kind": "table", "column": "text", "through": "function", "depth": 1}
    down = {"object": ["a", "w"], "kind": "view", "column": None, "through": "table_function", "depth": 2}
    body = {
        "object": ["a", "v"],
        "kind": "view",
        "column": "words",
        "upstream": [{**up, "function": function}],
        "downstream": [{**down, "function": None}],
    }
    server = NotingServer(lineage=body)
    found = server.lake().view("a.v").lineage("words")
    assert server.asked() == [("GET", "/api/v1/tables/a$v/lineage?column=words")]
    assert found.upstream[0].function is not None
    assert found.upstream[0].function.digest == "sha256:1"
    assert str(found).splitlines() == [
        "a.v.words (view)",
        "  made from:",
        "    a.docs.text (table), function words",
        "  used by:",
        "      a.w (view), table function",
    ]
