"""Bugs in how Iceberg commits end are planted one at a time, and the checks have to find each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.histories.seeded_commits import BUGS, CHECKS, Commits

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commits]:
    made = Commits(tmp_path, monkeypatch)
    yield made
    made.close()


def run_checks(commits: Commits) -> None:
    for check in CHECKS:
        check(commits)


def test_without_a_bug_every_check_passes(commits: Commits) -> None:
    run_checks(commits)


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_found(commits: Commits, monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    BUGS[bug](monkeypatch)
    with pytest.raises(AssertionError):
        run_checks(commits)
