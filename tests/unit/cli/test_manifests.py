"""`tidemill manifests …`."""

from __future__ import annotations

import pytest

from tests.unit.cli.running import CommandLine

LISTED = {"manifests": [{"name": "small", "pip": ["pillow[webp]==11.0"], "env_vars": ["MODEL"]}]}


def test_a_manifest_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch)
    options = ["--pip", "numpy", "--pip", "pillow", "--env", "MODEL=a=b", "--env", "EMPTY="]
    assert line.printed("manifests", "put", "small", *options) == "Stored small\n"
    assert line.server.last() == (
        "/api/v1/manifests/small",
        {"pip": ["numpy", "pillow"], "env_vars": {"MODEL": "a=b", "EMPTY": ""}},
    )


def test_machines_are_told_the_names_of_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    said = CommandLine(monkeypatch).json("manifests", "put", "small", "--env", "KEY=secret")
    assert said == {"name": "small", "pip": [], "env": ["KEY"]}


@pytest.mark.parametrize("text", ["hunter2", "=hunter2"])
def test_a_variable_without_a_name_is_not_repeated(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CommandLine(monkeypatch).run("manifests", "put", "small", "--env", text)
    assert done.exit_code == 2
    assert "hunter2" not in done.output


def test_manifests_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, manifests=LISTED)
    said = line.printed("manifests", "list")
    assert "pillow[webp]==11.0" in said
    assert "MODEL" in said
    assert line.json("manifests", "list") == [
        {"name": "small", "pip": ["pillow[webp]==11.0"], "env": ["MODEL"]}
    ]


def test_without_manifests_the_list_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch, manifests={"manifests": []})
    assert line.printed("manifests", "list") == "No manifests yet\n"


def test_a_manifest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    line = CommandLine(monkeypatch)
    assert line.printed("manifests", "drop", "small") == "Dropped small\n"
    assert line.server.asked() == [("DELETE", "/api/v1/manifests/small")]
