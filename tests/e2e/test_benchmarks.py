"""The benchmarks run, so that they can be believed when somebody needs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]
TINY = {"tables": 3, "many": 6, "connections": 2, "seconds": 0.2, "rounds": 1, "commits": 1}


def run(name: str, *options: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_catalog_is_measured_beside_the_adapter() -> None:
    said = run("catalog", *[word for name, value in TINY.items() for word in (f"--{name}", str(value))])
    for operation in ("describe_table", "list_tables (3)", "version/list (latest)", "version/create"):
        assert operation in said
    assert "6 tables" in said
    assert "describe_table, API key" in said
    assert "version/create, per CPU second" in said


def test_the_iceberg_catalog_is_measured() -> None:
    said = run("iceberg", "--seconds", "0.1", "--rounds", "1", "--processes", "1", "--no-reference")
    for operation in ("HEAD table", "loadTable", "loadView", "304", "replaceView", "updateTable"):
        assert operation in said


def test_queries_are_measured_beside_those_in_the_server() -> None:
    said = run("queries", "--rows", "1000", "--seconds", "0.1", "--rounds", "1")
    for words in ("10 rows by filter", "count by filter", "in the"):
        assert words in said


def test_backfills_are_measured_beside_raw_lance() -> None:
    said = run("backfill", "--rows", "4000", "--fragments", "4", "--repeats", "1")
    for words in ("4,000 rows", "arrow", "scalar", "vector", "costly", "1 % all over", "nothing to do"):
        assert words in said
    assert re.search(r"whole +│.*\d\.\d\dx", said)


def test_refreshes_are_measured_beside_full_ones_and_lancedbs_own() -> None:
    said = run("views", "--rows", "2000", "--fragments", "2", "--repeats", "1", "--cases", "query")
    for words in ("2,000 source rows", "query", "LanceDB's own", "50 % changed"):
        assert words in said
    assert re.search(r"ours / LanceDB's +│ +\d+\.\d\dx", said)
