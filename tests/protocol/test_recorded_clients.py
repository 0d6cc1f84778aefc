"""What foreign clients said to the server once, said again: see `tests/clients`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.clients import matrix
from tests.clients.client import ROOT
from tests.clients.recording import Line, packed
from tests.clients.replay import mark_what_cannot_be_replayed, not_replayed, read_recording, replayed
from tests.protocol.wire import some_rows, stream

ALL: Final = {name: row for name, row in matrix.read_matrix().items() if "operations" in row}
RUN: Final = {name: row for name, row in ALL.items() if "replayed_by" not in row}


@pytest.mark.parametrize("name", RUN)
def test_a_client_gets_the_answers_that_it_got(name: str, tmp_path: Path) -> None:
    lines = read_recording(matrix.recording_of(name))
    problems = [f"{lines[number]['call']}: {problem}" for number, problem in replayed(lines, tmp_path)]
    assert problems == []


@pytest.mark.parametrize("name", RUN)
def test_the_page_counts_the_requests_that_cannot_be_replayed(name: str) -> None:
    lines = read_recording(matrix.recording_of(name))
    assert RUN[name]["requests"] == len(lines)
    assert RUN[name].get("not_replayed", []) == not_replayed(lines)


@pytest.mark.parametrize("name", sorted(ALL.keys() - RUN.keys()))
def test_a_client_without_a_recording_here_has_one_elsewhere(name: str) -> None:
    assert (ROOT / ALL[name]["replayed_by"]).is_file()


LIST: Final = {
    "call": "GET /v1/namespace/$/list",
    "headers": {"x-api-key": "foreign:{secret}"},
    "status": 200,
}
CREATE: Final = {**LIST, "call": "POST /v1/namespace/a/create", "body": "{}"}
LOCATION: Final = "{root}/warehouse/3c0e5b1e-7b3a-4a53-8c9d-0d9a4d1c2b3a.lance"
GONE: Final = {"id": ["s", "s"], "location": "s", "properties": {}}


def test_uuids_of_the_server_are_learnt_and_sent_back(tmp_path: Path) -> None:
    made = {"version": "i", "location": f"={LOCATION}", "properties": {}}
    lines = [
        {**CREATE, "answer": {"properties": {}}},
        {
            **CREATE,
            "call": "POST /v1/table/a$t/create",
            "binary": packed(stream(some_rows())),
            "answer": made,
        },
        {**CREATE, "call": "POST /v1/table/a$t/deregister", "answer": GONE},
        {**CREATE, "call": "POST /v1/table/a$u/register", "body": f'{{"location": "{LOCATION}"}}'},
    ]
    lines[3]["answer"] = {"location": "s", "properties": {}}
    assert list(replayed(lines, tmp_path)) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({**LIST, "status": 404, "answer": {}}, "answered 200 instead of 404"),
        ({**LIST, "answer": {"namespaces": ["s"]}}, "length of .namespaces: 0 instead of 1"),
        ({**LIST, "answer": {"namespaces": [], "more": "s"}}, "keys of the answer"),
        ({**LIST, "answer": {"namespaces": "s"}}, ".namespaces: [] instead of s"),
        ({**LIST, "headers": {}, "answer": {"namespaces": []}}, "answered 401 instead of 200"),
        ({**LIST, "answer": {"rows": 1, "columns": []}}, "keys of the answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_answer_is_noticed(line: Line, problem: str, tmp_path: Path) -> None:
    ((_, found),) = replayed([line], tmp_path)
    assert problem in found


def test_what_cannot_be_replayed_is_marked_with_the_reason() -> None:
    lines = [{**LIST, "answer": {"namespaces": []}}, {**LIST, "status": 404, "answer": None}]
    mark_what_cannot_be_replayed(lines)
    (reason,) = not_replayed(lines)
    assert reason.startswith("GET /v1/namespace/$/list: answered 200 instead of 404")


def test_every_recording_belongs_to_a_client() -> None:
    recorded = {path.stem for path in matrix.DATA.glob("*.jsonl")}
    assert recorded == RUN.keys()
