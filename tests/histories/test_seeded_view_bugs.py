"""Bugs of views are planted one at a time, and the random histories have to find each of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import Phase, seed
from hypothesis.stateful import run_state_machine_as_test

from tests.histories.seeded_views import FOUND_BY, QUICK, Plant
from tests.histories.settings import history_settings
from tests.histories.view_machine import ViewHistory

SEED = 20
STEPS = 15
FEW = 40
MANY = 400
# Finding is enough: nobody reads the history, so it need not be the shortest.
ONLY_FIND = (Phase.generate,)

pytestmark = pytest.mark.timeout(1200)


def is_found(machine: type[ViewHistory], histories: int) -> bool:
    chosen = history_settings(
        histories, STEPS, phases=ONLY_FIND, database=None, report_multiple_bugs=False, print_blob=False
    )
    try:
        run_state_machine_as_test(seed(SEED)(type(machine.__name__, (machine,), {})), settings=chosen)
    except (AssertionError, LookupError, pa.ArrowException):
        return True
    except OSError as error:
        # Lance itself finds ids that several rows have.
        if "row id index corrupt" not in str(error):
            raise
        return True
    return False


@pytest.mark.parametrize("plant", QUICK, ids=lambda plant: plant.__name__)
def test_a_bug_of_each_kind_is_found_soon(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert is_found(QUICK[plant], FEW)


@pytest.mark.deep
@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
def test_every_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert is_found(FOUND_BY[plant], MANY)


@pytest.mark.deep
@pytest.mark.parametrize("machine", dict.fromkeys(FOUND_BY.values()), ids=lambda machine: machine.__name__)
def test_without_a_bug_the_same_histories_find_nothing(machine: type[ViewHistory]) -> None:
    assert not is_found(machine, MANY)
