"""The benchmarks run, so that they can be believed when somebody needs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = {"tables": 3, "many": 6, "connections": 2, "seconds": 0.2, "rounds": 1, "commits": 1}


def test_the_catalog_is_measured_beside_the_adapter() -> None:
    options = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    ended = subprocess.run(
        [sys.executable, str(BENCHMARKS / "catalog.py"), *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for operation in ("describe_table", "list_tables (3)", "version/list (latest)", "version/create"):
        assert operation in ended.stdout
    assert "6 tables" in ended.stdout


def test_backfills_are_measured_beside_raw_lance() -> None:
    ended = subprocess.run(
        [
            sys.executable,
            str(BENCHMARKS / "backfill.py"),
            "--rows",
            "4000",
            "--fragments",
            "4",
            "--repeats",
            "1",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for words in ("4,000 rows", "arrow", "scalar", "vector", "costly", "1 % all over", "nothing to do"):
        assert words in ended.stdout
    assert re.search(r"whole +│.*\d\.\d\dx", ended.stdout)


def test_refreshes_are_measured_beside_full_ones_and_lancedbs_own() -> None:
    options = ["--rows", "2000", "--fragments", "2", "--repeats", "1", "--cases", "query"]
    ended = subprocess.run(
        [sys.executable, str(BENCHMARKS / "views.py"), *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for words in ("2,000 source rows", "query", "LanceDB's own", "50 % changed"):
        assert words in ended.stdout
    assert re.search(r"ours / LanceDB's +│ +\d+\.\d\dx", ended.stdout)
