"""The same random histories, many and long: `make test-deep`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.histories.test_backfill_histories import BackfillHistory
from tests.histories.test_foreign_histories import (
    ForeignBackfillHistory,
    ForeignChunkerHistory,
    ForeignQueryHistory,
)
from tests.histories.test_view_histories import ChunkerHistory, QueryHistory

MACHINES = [
    BackfillHistory,
    ChunkerHistory,
    QueryHistory,
    ForeignBackfillHistory,
    ForeignChunkerHistory,
    ForeignQueryHistory,
]


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("machine", MACHINES)
def test_long_random_histories(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2000,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
