"""Random lives of query views."""

from __future__ import annotations

import pytest

from tests.histories.view_kinds import QUERIES, SHARES, follow
from tests.histories.view_machine import ViewHistory
from tests.histories.views import FunctionColumnHistory


def test_what_others_wrote_beside_rows_stays_with_them_when_all_come_in_another_order() -> None:
    history = FunctionColumnHistory()
    try:
        # Rows that are appended come before those there were, in the view.
        history.create(rows=[("", None), ("", None)])
        history.append(rows=[("", None), ("", None), ("", None)], then=False)
        history.label_rows(number=0, pick=0, text="")
        history.delete(pick=2, then=False)
        history.label_rows(number=0, pick=0, text="a")
        assert history.found_labels() == {number: f"0-{number}" for number in (0, 1, 3, 4)}
    finally:
        history.teardown()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("machine", QUERIES, ids=lambda machine: machine.__name__)
def test_random_histories(machine: type[ViewHistory], share: int) -> None:
    follow(machine, share)
