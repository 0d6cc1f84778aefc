from __future__ import annotations

from collections.abc import Callable

import pytest

from tidemill.errors import Unavailable
from tidemill.server.worker import MaintenanceTask


def failing(error: Exception, tries: list[int]) -> Callable[[], object]:
    def do() -> object:
        tries.append(len(tries))
        raise error

    return do


@pytest.mark.parametrize(
    "error", [Unavailable("the store is away"), OSError("no disk"), KeyError("a mistake")]
)
def test_a_duty_that_fails_is_attended_to_again(error: Exception) -> None:
    tries: list[int] = []
    duty = MaintenanceTask("sweep", 0, failing(error, tries))
    duty.attend()
    duty.attend()
    assert tries == [0, 1]


def test_a_duty_is_left_alone_until_it_is_due() -> None:
    tries: list[int] = []
    duty = MaintenanceTask("sweep", 3600, failing(OSError(), tries))
    duty.attend()
    duty.attend()
    assert tries == [0]
