"""What no file of the repository may say."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
# Classes of one letter keep the patterns from matching themselves.
REGISTRY_HOST: Final = re.compile(r"python[h]osted|pypi\.[o]rg|repo1?\.[m]aven|[d]eb\.debian|[n]pmjs")
MACHINE_PATH: Final = re.compile(r"(?<![\w.~])/(?:[w]ork|[r]oot|[h]ome/\w+|[U]sers/\w+)/")


def lines() -> Iterator[tuple[str, str]]:
    for path in _files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def test_no_file_names_a_package_registry() -> None:
    assert [place for place, line in lines() if REGISTRY_HOST.search(line)] == []


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    assert [place for place, line in lines() if MACHINE_PATH.search(line)] == []


def _files() -> Iterator[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("only a git clone knows which files belong to the repository")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    names = filter(None, listed.stdout.split("\0"))
    return (path for name in names if (path := ROOT / name).is_file())
