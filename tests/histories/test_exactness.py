"""The table of `docs/exactness.md`: functions are called as often as needed in each of its histories."""

from __future__ import annotations

import pytest

from tests.histories.exactness import HISTORIES, History, measure


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_functions_are_called_as_often_as_needed(history: History) -> None:
    made, needed = measure(history)
    assert made == needed
