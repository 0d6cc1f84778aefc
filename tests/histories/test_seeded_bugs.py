"""Bugs are planted one at a time, and the random histories have to find each of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import Phase, seed
from hypothesis.stateful import run_state_machine_as_test

from tests.histories.backfills import BackfillHistory
from tests.histories.computing import Number
from tests.histories.seeded import BUGS, QUICK
from tests.histories.settings import history_settings
from tidemill.catalog.model.functions import FunctionKind

SEED = 20
STEPS = 15
# With the same number the same histories are drawn, so a bug counts as found only beside a clean control.
FEW = 12
MANY = 400
# Finding is enough: nobody reads the history, so it need not be the shortest.
ONLY_FIND = (Phase.generate,)

pytestmark = pytest.mark.timeout(1200)


def histories_until_failure(most: int) -> int | None:
    """How many histories with the same seed it takes until one fails; None when none does."""
    begun = 0

    class Counted(BackfillHistory):
        def begin(self, values: Sequence[Number], kinds: Sequence[FunctionKind]) -> None:
            nonlocal begun
            begun += 1
            super().begin(values, kinds)

    chosen = history_settings(
        most, STEPS, phases=ONLY_FIND, database=None, report_multiple_bugs=False, print_blob=False
    )
    try:
        run_state_machine_as_test(seed(SEED)(Counted), settings=chosen)
    except AssertionError:
        # The history that failed is run once more to be shown.
        return begun - 1
    return None


@pytest.mark.parametrize("bug", QUICK)
def test_a_coarse_bug_is_found_soon(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    QUICK[bug](monkeypatch)
    assert histories_until_failure(FEW) is not None


def test_without_a_bug_the_same_few_histories_find_nothing() -> None:
    assert histories_until_failure(FEW) is None


@pytest.mark.deep
@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    assert histories_until_failure(MANY) is not None


@pytest.mark.deep
def test_without_a_bug_the_same_histories_find_nothing() -> None:
    assert histories_until_failure(MANY) is None
