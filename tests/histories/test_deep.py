"""Many and long histories, new ones every time: `make test-deep`."""

from __future__ import annotations

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from tests.histories.backfills import BackfillHistory, ForeignBackfillHistory
from tests.histories.settings import follow_new
from tests.histories.test_foreign_histories import ForeignChunkerHistory, ForeignQueryHistory
from tests.histories.view_kinds import ALL

VIEWS = [*ALL, ForeignChunkerHistory, ForeignQueryHistory]
# A share is small enough for the time limit of one test, also on a slow machine.
EXAMPLES = 20

pytestmark = [pytest.mark.deep, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("share", range(200))
def test_long_backfill_histories(share: int) -> None:
    follow_new(BackfillHistory, EXAMPLES, 25)


@pytest.mark.parametrize("share", range(50))
def test_long_backfill_histories_without_stable_row_ids(share: int) -> None:
    follow_new(ForeignBackfillHistory, EXAMPLES, 25)


@pytest.mark.parametrize("share", range(100))
@pytest.mark.parametrize("machine", VIEWS)
def test_long_view_histories(machine: type[RuleBasedStateMachine], share: int) -> None:
    follow_new(machine, EXAMPLES, 40)
