"""Streams of server-sent events, taken apart."""

from __future__ import annotations

from tidemill.sdk.http import ServerEvent, read_events


def test_events_have_a_kind_and_json() -> None:
    lines = ["event: job", 'data: {"state": "DONE"}', "", "event:log", "data:[1]", ""]
    assert list(read_events(lines)) == [ServerEvent("job", {"state": "DONE"}), ServerEvent("log", [1])]


def test_data_may_have_several_lines() -> None:
    assert list(read_events(['data: {"a":', "data: 1}", ""])) == [ServerEvent("message", {"a": 1})]


def test_comments_and_other_fields_are_passed_over() -> None:
    assert list(read_events([": still here", "", "id: 7", "retry: 3", "data: 1", ""])) == [
        ServerEvent("message", 1)
    ]


def test_an_event_that_is_cut_off_is_left_out() -> None:
    assert list(read_events(["data: 1", "", "event: job", 'data: {"state"'])) == [ServerEvent("message", 1)]
