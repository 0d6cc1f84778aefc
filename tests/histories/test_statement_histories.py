"""Random lives of SQL views."""

from __future__ import annotations

import pytest

from tests.histories.view_kinds import SHARES, STATEMENTS, follow
from tests.histories.view_machine import ViewHistory


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("machine", STATEMENTS, ids=lambda machine: machine.__name__)
def test_random_histories(machine: type[ViewHistory], share: int) -> None:
    follow(machine, share)
