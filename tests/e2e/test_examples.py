"""The examples that people read: docstrings, the README and the demo do what they say."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import tidemill
import tidemill.sdk
from tests.conftest import RunningServer
from tests.e2e.command import printed, tidemill_command
from tests.e2e.processes import processes_with

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
DEMO_SECONDS: Final = 120
COUNTS: Final = re.compile(r"computed [\d,]+, reused [\d,]+, replaced 5, removed 3")


def docstrings() -> Iterator[doctest.DocTest]:
    for module in pkgutil.iter_modules(tidemill.sdk.__path__, "tidemill.sdk."):
        found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module.name))
        yield from (test for test in found if test.examples)


@pytest.fixture
def examples(lake: tidemill.Lake) -> Iterator[tidemill.Table]:
    """The namespace and the table that the docstrings speak of."""
    lake.create_namespace("examples")
    rows = [{"id": 1, "text": "a tide"}, {"id": 2, "text": "the mill"}]
    yield lake.create_table("examples.docs", rows)
    lake.drop_namespace("examples", cascade=True)


@pytest.mark.parametrize("test", list(docstrings()), ids=lambda test: test.name.removeprefix("tidemill.sdk."))
def test_an_example_in_a_docstring_runs(
    test: doctest.DocTest, lake: tidemill.Lake, examples: tidemill.Table
) -> None:
    test.globs = {"lake": lake, "docs": examples, "__name__": "__main__"}
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert runner.run(test, out=said.append).failed == 0, "".join(said)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def readme_folder(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the README's example has been run, with the server under its default root."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "tidemill-data").symlink_to(server.root)
    example, _ = blocks("python")
    (folder / "example.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (folder / "printed").write_text(done.stdout)
    yield folder
    with tidemill.connect(server.url) as lake:
        lake.drop_namespace("library", cascade=True)


def test_the_iceberg_example_of_the_readme_runs(server: RunningServer) -> None:
    _, example = blocks("python")
    assert "http://127.0.0.1:8181" in example
    names: dict[str, Any] = {}
    exec(example.replace("http://127.0.0.1:8181", server.url), names)
    catalog = names["iceberg"]
    assert catalog.list_tables("sales") == [("sales", "orders")]
    catalog.drop_table("sales.orders")
    catalog.drop_namespace("sales")


def test_the_example_of_the_readme_runs(readme_folder: Path) -> None:
    said = (readme_folder / "printed").read_text()
    assert "computes 1 row" in said
    assert "An open lakehouse" in said


def shell_commands() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.partition("#")[0].strip() for line in lines if line.startswith("tidemill ")]


@pytest.mark.parametrize("command", shell_commands())
def test_a_shell_command_of_the_readme_runs(command: str, readme_folder: Path) -> None:
    assert printed(tidemill_command(*shlex.split(command)[1:], cwd=readme_folder))


def test_the_make_targets_of_the_readme_are_there() -> None:
    named = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
    assert named
    for target in named:
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.timeout(3 * DEMO_SECONDS)
def test_the_demo_ends_well_in_time_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert COUNTS.search(done.stdout)
    assert "no-op: computed 0" in done.stdout
    assert "server was at http://127.0.0.1:" in done.stdout
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.glob("tidemill-demo-*")) == []
