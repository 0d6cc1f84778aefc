"""`tidemill lineage`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.running import CommandLine


def step(name: str, depth: int, **more: Any) -> dict[str, Any]:
    common = {"object": ["a", name], "kind": "table", "column": None, "through": "sql", "function": None}
    return {**common, "depth": depth, **more}


LINEAGE = {
    "object": ["a", "v"],
    "kind": "view",
    "column": None,
    "upstream": [
        step("docs", 1, column="text", through="chunker", function={"name": "words", "digest": "sha256:1"}),
        step("[old]", 1, kind="dropped"),
        step("raw", 2),
    ],
    "downstream": [step("w", 1, kind="view", through="projection")],
}


def test_lineage_is_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, lineage=LINEAGE)
    assert [text.rstrip() for text in line.printed("lineage", "a.v").splitlines()] == [
        "a.v (view)",
        "├── made from",
        "│   ├── a.docs.text (table), chunker words",
        "│   ├── a.[old] (dropped), sql",
        "│   └── which are made from",
        "│       └── a.raw (table), sql",
        "└── used by",
        "    └── a.w (view), projection",
    ]


def test_lineage_may_be_of_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, lineage={**LINEAGE, "column": "word"})
    assert line.printed("lineage", "a.v", "--column", "word").startswith("a.v.word (view)\n")
    assert line.server.asked() == [("GET", "/api/v1/tables/a$v/lineage?column=word")]


def test_lineage_speaks_json(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch, lineage=LINEAGE).json("lineage", "a.v")
    assert said["upstream"][0]["function"] == {"name": "words", "digest": "sha256:1"}
    assert [found["object"] for found in said["downstream"]] == ["a.w"]


def test_a_table_that_stands_alone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {**LINEAGE, "upstream": [], "downstream": []}
    said = CommandLine(monkeypatch, lineage=alone).printed("lineage", "a.v")
    assert said.endswith("Nothing upstream, nothing downstream\n")
