"""Error policies in JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill.errors import InvalidInput
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy


def policy(given: Any) -> ErrorPolicy:
    return ErrorPolicy.from_json(given, "on_error")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("fail", ErrorPolicy()),
        ("retry", ErrorPolicy(attempts=3)),
        ("skip", ErrorPolicy(ErrorAction.SKIP)),
        ({}, ErrorPolicy()),
        ({"action": None, "attempts": None, "retry_on": None}, ErrorPolicy()),
        (' {"action": "Skip", "attempts": 2}', ErrorPolicy(ErrorAction.SKIP, 2)),
        ({"action": "skip", "max_skipped": 0}, ErrorPolicy(ErrorAction.SKIP, max_skipped=0)),
        (
            {"action": "fail", "attempts": 100, "backoff_seconds": 0, "retry_on": ["ConnectionError"]},
            ErrorPolicy(attempts=100, backoff_seconds=0, retry_on=("ConnectionError",)),
        ),
        (
            {"action": "skip", "attempts": 2, "max_skipped": 5, "max_skipped_fraction": 0.5},
            ErrorPolicy(ErrorAction.SKIP, 2, max_skipped=5, max_skipped_fraction=0.5),
        ),
        (
            {"attempts": 2, "retry_on": ["httpx.ReadTimeout"]},
            ErrorPolicy(attempts=2, retry_on=("httpx.ReadTimeout",)),
        ),
    ],
)
def test_a_policy_is_named_or_spelled_out(given: Any, expected: ErrorPolicy) -> None:
    assert policy(given) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("explode", "on_error"),
        (5, "on_error"),
        ("{not json", "on_error"),
        ('{"a":' * 100_000, "on_error"),
        ('{"backoff_seconds": 1' + "0" * 400 + "}", "on_error.backoff_seconds"),
        (["skip"], "on_error"),
        ({"action": "retry"}, "on_error.action"),
        ({"action": "skip", "surprise": 1}, "on_error.surprise"),
        ({"attempts": 0}, "on_error.attempts"),
        ({"attempts": 101}, "on_error.attempts"),
        ({"attempts": 1.5}, "on_error.attempts"),
        ({"backoff_seconds": -1}, "on_error.backoff_seconds"),
        ({"backoff_seconds": float("nan")}, "on_error.backoff_seconds"),
        ({"backoff_seconds": 3601}, "on_error.backoff_seconds"),
        ({"attempts": 2, "retry_on": "ConnectionError"}, "on_error.retry_on"),
        ({"attempts": 2, "retry_on": [5]}, "on_error.retry_on"),
        ({"attempts": 2, "retry_on": [""]}, "on_error.retry_on"),
        ({"attempts": 2, "retry_on": ["not a name"]}, "on_error.retry_on"),
        ({"action": "skip", "max_skipped": -1}, "on_error.max_skipped"),
        ({"action": "skip", "max_skipped_fraction": 1.1}, "on_error.max_skipped_fraction"),
        ({"action": "skip", "max_skipped_fraction": -0.1}, "on_error.max_skipped_fraction"),
        ({"action": "fail", "max_skipped": 1}, "on_error.action"),
    ],
)
def test_a_senseless_policy_is_refused_by_field(given: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        policy(given)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "value", [ErrorPolicy(), ErrorPolicy(ErrorAction.SKIP, 2, 0.5, ("OSError", "TimeoutError"), 0, 0.5)]
)
def test_a_policy_comes_back_as_it_was(value: ErrorPolicy) -> None:
    assert policy(value.to_json()) == value
    assert policy(json.dumps(value.to_json())) == value
