"""What bodies say about backfills and previews."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.protocols.stand import Stand
from tidemill.jobs.model.options import BackfillRequest, JobRequest, PreviewRequest, RowSelection

BACKFILL = "/v1/table/docs$pages/backfill_column"
PREVIEW = "/api/v1/tables/docs$pages/preview"
# What Geneva's client sends when its user names a column and nothing else.
UNSAID = dict.fromkeys(
    [
        "where",
        "concurrency",
        "intra_applier_concurrency",
        "min_checkpoint_size",
        "max_checkpoint_size",
        "batch_checkpoint_flush_interval_seconds",
        "task_size",
        "num_frags",
        "checkpoint_size",
        "commit_granularity",
        "cluster",
        "manifest",
    ]
)


@pytest.fixture
def stand() -> Stand:
    return Stand()


def submitted(stand: Stand, path: str, body: dict[str, Any]) -> JobRequest:
    answer = stand.post(path, json={"column": "size", **body})
    assert answer.status_code == 202, answer.text
    return stand.jobs.jobs[answer.json()["job_id"]].request


def refusal(stand: Stand, body: dict[str, Any]) -> str:
    answer = stand.post(BACKFILL, json={"column": "size", **body})
    assert (answer.status_code, answer.json()["code"]) == (400, 13), answer.text
    assert stand.jobs.jobs == {}
    message: str = answer.json()["error"]
    return message


def test_a_backfill_is_accepted_with_all_it_says(stand: Stand) -> None:
    body = {
        "id": ["docs", "pages"],
        "identity": {"api_key": "k"},
        "branch": "dev",
        "where": "id > 1",
        "concurrency": 8,
        "intra_applier_concurrency": 2,
        "min_checkpoint_size": 10,
        "max_checkpoint_size": 1000,
        "batch_checkpoint_flush_interval_seconds": 0.5,
        "read_version": 3,
        "task_size": 500,
        "num_frags": 2,
        "checkpoint_size": 100,
        "commit_granularity": 4,
        "cluster": "gpu",
        "manifest": '{"pip": ["pillow==11.0"], "env_vars": {"MODEL": "small"}}',
    }
    assert submitted(stand, BACKFILL, body) == BackfillRequest(
        column="size",
        branch="dev",
        where="id > 1",
        read_version=3,
        concurrency=8,
        num_frags=2,
        commit_granularity=4,
        checkpoint_size=100,
        min_checkpoint_size=10,
        max_checkpoint_size=1000,
        flush_interval_seconds=0.5,
        intra_applier_concurrency=2,
        task_size=500,
        cluster="gpu",
        manifest='{"pip": ["pillow==11.0"], "env_vars": {"MODEL": "small"}}',
    )


def test_the_key_that_makes_a_request_one_goes_with_it(stand: Stand) -> None:
    for path in (BACKFILL, PREVIEW):
        stand.post(path, json={"column": "size"}, headers={"idempotency-key": "once"})
    assert stand.jobs.keys == ["once", "once"]


def test_what_is_null_was_not_said(stand: Stand) -> None:
    body = {**UNSAID, "read_version": 3, "on_error": None, "only": None, "retry_failed": None}
    assert submitted(stand, BACKFILL, body) == BackfillRequest("size", read_version=3)


@pytest.mark.parametrize(
    ("body", "only"),
    [
        ({"only": "stale"}, RowSelection.STALE),
        ({"only": "missing", "read_version": 2}, RowSelection.MISSING),
        ({"only": "failed"}, RowSelection.FAILED),
        ({"retry_failed": True}, RowSelection.FAILED),
        ({"retry_failed": True, "only": "failed"}, RowSelection.FAILED),
        ({"retry_failed": False, "where": "id > 1"}, None),
    ],
)
def test_some_of_the_rows_that_need_work_are_chosen(
    stand: Stand, body: dict[str, Any], only: RowSelection | None
) -> None:
    request = submitted(stand, BACKFILL, body)
    assert isinstance(request, BackfillRequest)
    assert request.only is only


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"only": "some"}, "only"),
        ({"only": 1}, "only"),
        ({"only": "stale", "where": "id > 1"}, "only"),
        ({"retry_failed": True, "where": "id > 1"}, "only"),
        ({"retry_failed": True, "only": "stale"}, "retry_failed"),
        ({"retry_failed": "yes"}, "retry_failed"),
    ],
)
def test_a_choice_that_contradicts_itself_is_refused(stand: Stand, body: dict[str, Any], field: str) -> None:
    assert refusal(stand, body).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("column", ""),
        ("concurrency", 0),
        ("concurrency", True),
        ("intra_applier_concurrency", 0),
        ("intra_applier_concurrency", 257),
        ("min_checkpoint_size", 0),
        ("max_checkpoint_size", 1.5),
        ("batch_checkpoint_flush_interval_seconds", -1),
        ("read_version", 0),
        ("task_size", 0),
        ("num_frags", "all"),
        ("checkpoint_size", 0),
        ("commit_granularity", 0),
        ("branch", 1),
        ("cluster", ["gpu"]),
        ("manifest", {"pip": []}),
        ("where", "x" * 9000),
        ("surprise", 1),
    ],
)
def test_a_senseless_option_is_refused_by_field(stand: Stand, field: str, value: Any) -> None:
    assert refusal(stand, {field: value}).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("sizes", "field"),
    [
        ({"min_checkpoint_size": 3, "max_checkpoint_size": 2}, "min_checkpoint_size"),
        ({"min_checkpoint_size": 3, "checkpoint_size": 2}, "checkpoint_size"),
        ({"max_checkpoint_size": 3, "checkpoint_size": 4}, "checkpoint_size"),
    ],
)
def test_sizes_lie_between_their_bounds(stand: Stand, sizes: dict[str, int], field: str) -> None:
    assert refusal(stand, sizes).startswith(f"{field}: ")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_what_is_no_number_is_refused(stand: Stand, number: str) -> None:
    body = f'{{"column": "size", "batch_checkpoint_flush_interval_seconds": {number}}}'
    assert stand.post(BACKFILL, content=body.encode()).status_code == 400


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, PreviewRequest("size", 10)),
        ({"rows": None, "where": None}, PreviewRequest("size", 10)),
        (
            {"rows": 1000, "where": "id > 1", "branch": "dev", "cluster": "gpu"},
            PreviewRequest("size", 1000, "dev", "id > 1", "gpu"),
        ),
        ({"manifest": "images"}, PreviewRequest("size", 10, manifest="images")),
    ],
)
def test_a_preview_is_accepted(stand: Stand, body: dict[str, Any], expected: PreviewRequest) -> None:
    assert submitted(stand, PREVIEW, body) == expected


@pytest.mark.parametrize(
    ("field", "value"), [("column", None), ("rows", 0), ("rows", 1001), ("only", "stale"), ("manifest", 7)]
)
def test_a_senseless_preview_is_refused_by_field(stand: Stand, field: str, value: Any) -> None:
    answer = stand.post(PREVIEW, json={"column": "size", field: value})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")
    assert answer.json()["error"]["message"].startswith(f"{field}: ")
