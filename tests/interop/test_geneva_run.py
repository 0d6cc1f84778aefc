"""The runner of Geneva's scenarios: a filter that matches nothing is no success."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.interop.geneva.run import FOLDER, SCENARIOS, main, titles_in


def test_a_word_that_no_title_has_ends_the_run_before_anything_is_started() -> None:
    command = [sys.executable, "-m", "tests.interop.geneva.run", "scalar function", "no such thing"]
    ended = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode != 0
    assert (ended.stdout, ended.stderr.strip()) == ("", "no scenario has 'no such thing' in its title")


def test_every_word_has_to_match() -> None:
    with pytest.raises(SystemExit, match="'nowhere'"):
        main("chunker", "nowhere")


@pytest.mark.parametrize("module", SCENARIOS)
def test_titles_are_read_from_the_scenarios(module: str) -> None:
    assert len(titles_in(module)) > 5
