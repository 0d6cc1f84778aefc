"""What end-to-end tests share: call logs, brakes and tables with a known layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill
from tests.e2e.calls import Brake, CallLog
from tests.e2e.tables import Maker


@pytest.fixture
def calls(tmp_path: Path) -> CallLog:
    return CallLog(str(tmp_path / "calls"))


@pytest.fixture
def brake(tmp_path: Path) -> Iterator[Brake]:
    """On until released; released in the end, so that no job goes on slowly behind other tests."""
    brake = Brake(str(tmp_path / "brake"))
    brake.put_on()
    yield brake
    brake.release()


@pytest.fixture
def make(lake: tidemill.Lake, namespace: str) -> Maker:
    return Maker(lake, namespace)
