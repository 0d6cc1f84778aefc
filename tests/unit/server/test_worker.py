from __future__ import annotations

from collections.abc import Callable

import pytest

from tidemill.errors import Unavailable
from tidemill.server.worker import MaintenanceTask


def failing(error: Exception, tries: list[int]) -> Callable[[], object]:
    def action() -> object:
        tries.append(len(tries))
        raise error

    return action


@pytest.mark.parametrize(
    "error", [Unavailable("the store is away"), OSError("no disk"), KeyError("a mistake")]
)
def test_a_duty_that_fails_is_attended_to_again(error: Exception) -> None:
    tries: list[int] = []
    task = MaintenanceTask("sweep", 0, failing(error, tries))
    task.run_if_due()
    task.run_if_due()
    assert tries == [0, 1]


def test_a_duty_is_left_alone_until_it_is_due() -> None:
    tries: list[int] = []
    task = MaintenanceTask("sweep", 3600, failing(OSError(), tries))
    task.run_if_due()
    task.run_if_due()
    assert tries == [0]
