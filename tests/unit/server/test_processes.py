"""Log lines: no event is larger than a log collector takes."""

from __future__ import annotations

import orjson
import pytest
import structlog

from tidemill.server.processes import MAX_EVENT_BYTES, cut_long_values


def rendered(**event: object) -> bytes:
    return orjson.dumps(cut_long_values(None, "error", dict(event)))


@pytest.mark.parametrize("text", ["x" * 1_000_000, "ü€" * 100_000, "\x00\n" * 100_000, "\ud800" * 50_000])
def test_an_event_has_a_largest_size(text: str) -> None:
    lines = rendered(event=text, exception=text, route=text, status=500, problem=[text])
    assert len(lines) <= MAX_EVENT_BYTES


def test_both_ends_of_a_traceback_are_kept() -> None:
    exception = "Traceback, most recent call last\n" + "  a frame\n" * 10_000 + "RecursionError: too deep"
    kept = orjson.loads(rendered(event="request failed", exception=exception))
    assert kept["exception"].startswith("Traceback, most recent call last\n")
    assert kept["exception"].endswith("RecursionError: too deep")
    assert "characters left out" in kept["exception"]
    assert kept["event"] == "request failed"


def test_a_short_event_stays_as_it_is() -> None:
    event = {"event": "request", "status": 200, "duration_ms": 1.5, "caller": None, "names": ["a"]}
    assert cut_long_values(None, "info", dict(event)) == event


def test_the_traceback_of_a_deep_recursion_is_cut() -> None:
    def recurse(number: int) -> int:
        # Two functions in turn: Python folds repeated lines of one alone.
        return other(number + 1) + 1

    def other(number: int) -> int:
        return recurse(number + 1) + 1

    event: structlog.typing.EventDict = {"event": "request failed"}
    try:
        recurse(0)
    except RecursionError:
        event = structlog.processors.format_exc_info(None, "error", {**event, "exc_info": True})
    assert len(orjson.dumps(event)) > MAX_EVENT_BYTES
    assert len(orjson.dumps(cut_long_values(None, "error", event))) <= MAX_EVENT_BYTES


def test_many_fields_and_long_names_of_fields_are_cut() -> None:
    many: dict[str, object] = {f"field{number}": "x" * 100 for number in range(5_000)}
    line = rendered(**many, event="request failed", request_id="r-1")
    assert len(line) <= MAX_EVENT_BYTES
    kept = orjson.loads(line)
    assert (kept["event"], kept["request_id"], kept["keys_left_out"] > 4_900) == (
        "request failed",
        "r-1",
        True,
    )
    assert len(rendered(event="x", **{"k" * 1_000_000: "v"})) <= MAX_EVENT_BYTES


@pytest.mark.parametrize("number", [2**64, 10**10_000, -(10**10_000)], ids=["64 bits", "long", "negative"])
def test_an_integer_that_json_cannot_hold_is_written_nevertheless(number: int) -> None:
    assert len(rendered(event="x", number=number)) <= MAX_EVENT_BYTES
