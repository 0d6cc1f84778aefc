"""The documented table of operations, clients and tests."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.operations import OPERATIONS

ROOT: Final = Path(__file__).parents[2]
SPECIFIED: Final = 54


def test_the_generated_client_has_all_operations() -> None:
    assert len(OPERATIONS) == SPECIFIED


@pytest.mark.timeout(120)
def test_every_operation_has_a_test_and_the_page_shows_it() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "lance_table.py"), "--check"]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
