"""Bugs in how Iceberg commits end are planted one at a time, and the checks have to find each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.seeded_commits import BUGS, CHECKS, Commits

pytestmark = pytest.mark.timeout(300)


# Which of two tables comes second is up to their random ids, so a bug may need more than one look.
LOOKS = 5


def run_checks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    commits = Commits(folder, monkeypatch)
    try:
        for check in CHECKS:
            check(commits)
    finally:
        commits.close()


def look_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for look in range(LOOKS):
        run_checks(folder / str(look), monkeypatch)


def test_without_a_bug_every_check_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_checks(tmp_path / "lake", monkeypatch)


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    BUGS[bug](monkeypatch)
    with pytest.raises(AssertionError):
        look_for(tmp_path, monkeypatch)
