"""What to do about failing rows, as users write it and as requests carry it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill.sdk.options import OnError, fail, on_error_request, retry, skip

ONCE = {"attempts": 1, "backoff_seconds": 1.0, "retry_on": []}


@pytest.mark.parametrize(
    ("policy", "sent"),
    [
        (fail(), {"action": "fail", **ONCE}),
        (retry(), {"action": "fail", **ONCE, "attempts": 3}),
        (
            retry(2, 0.5, on=(ConnectionError, "TimeoutError")),
            {
                "action": "fail",
                "attempts": 2,
                "backoff_seconds": 0.5,
                "retry_on": ["ConnectionError", "TimeoutError"],
            },
        ),
        (skip(), {"action": "skip", **ONCE}),
        (
            skip(limit=6, fraction=0.1, retry=retry(5)),
            {"action": "skip", **ONCE, "attempts": 5, "max_skipped": 6, "max_skipped_fraction": 0.1},
        ),
    ],
)
def test_a_policy_is_sent_whole(policy: OnError, sent: dict[str, Any]) -> None:
    assert on_error_request(policy) == sent


@pytest.mark.parametrize("name", ["fail", "retry", "skip"])
def test_a_name_stands_for_the_defaults(name: str) -> None:
    assert on_error_request(name) == name


def test_policies_are_values() -> None:
    assert skip(retry=retry(2)) == skip(retry=retry(attempts=2))


@pytest.mark.parametrize("given", ["ignore", 3, ValueError])
def test_anything_else_is_no_policy(given: Any) -> None:
    with pytest.raises(TypeError, match=r"on_error= is tidemill\.fail"):
        on_error_request(given)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: retry(attempts=0), "attempts must be 1 or more, not 0"),
        (lambda: retry(backoff=-1), "backoff must be 0 or more seconds, not -1"),
        (lambda: skip(limit=-1), "limit must be 0 or more rows, not -1"),
        (lambda: skip(fraction=1.5), r"fraction must be between 0 and 1, not 1\.5"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(make: Callable[[], OnError], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: retry(on="TimeoutError"), "on= is a sequence of exceptions"),
        (lambda: retry(on=TimeoutError), "on= is a sequence of exceptions"),  # type: ignore[arg-type]  # the fault
        (lambda: retry(on=(int,)), "is neither an exception nor the name of one"),  # type: ignore[arg-type]  # the fault
        (lambda: skip(retry=skip()), r"retry= is made by tidemill\.retry"),
        (lambda: skip(retry="retry"), r"retry= is made by tidemill\.retry"),  # type: ignore[arg-type]  # the fault
    ],
)
def test_something_of_another_kind_is_refused(make: Callable[[], OnError], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()
