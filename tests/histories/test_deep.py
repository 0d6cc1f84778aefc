"""Many and long histories, new ones every time: `make test-deep`.

A share that has passed is noted in pytest's cache for the commit it was run at, so that a run that was
stopped goes on where it was: shares that are done already are skipped and say so. `--cache-clear` begins
again.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from tests.histories.backfills import BackfillHistory, ForeignBackfillHistory
from tests.histories.settings import follow_new
from tests.histories.test_foreign_histories import ForeignChunkerHistory, ForeignQueryHistory
from tests.histories.view_kinds import ALL

VIEWS = [*ALL, ForeignChunkerHistory, ForeignQueryHistory]
# A share is small enough for the time limit of one test, also on a slow machine.
EXAMPLES = 20
# 5,000 histories of each kind.
SHARES = 250

pytestmark = [pytest.mark.deep, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def commit() -> str:
    folder = Path(__file__).parent
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


@pytest.fixture(autouse=True)
def share_noted(request: pytest.FixtureRequest, commit: str) -> Iterator[None]:
    """Skips a share that has passed at this commit; notes one that passes."""
    cache = request.config.cache
    key = f"deep/{commit}/{request.node.name}"
    if cache is not None and cache.get(key, False):
        pytest.skip(f"passed before at {commit}")
    failed = request.session.testsfailed
    yield
    if cache is not None and request.session.testsfailed == failed:
        cache.set(key, True)


@pytest.mark.parametrize("share", range(SHARES))
def test_long_backfill_histories(share: int) -> None:
    follow_new(BackfillHistory, EXAMPLES, 25)


@pytest.mark.parametrize("share", range(SHARES))
def test_long_backfill_histories_without_stable_row_ids(share: int) -> None:
    follow_new(ForeignBackfillHistory, EXAMPLES, 25)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("machine", VIEWS)
def test_long_view_histories(machine: type[RuleBasedStateMachine], share: int) -> None:
    follow_new(machine, EXAMPLES, 40)
