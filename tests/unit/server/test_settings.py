"""Settings come from one place, and nonsense is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tidemill.errors import InvalidInput
from tidemill.server.settings import load_settings


def test_what_is_given_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_PORT", "9000")
    monkeypatch.setenv("TIDEMILL_HOST", "localhost")
    settings = load_settings(port=9001, host=None)
    assert (settings.port, settings.host) == (9001, "localhost")


def test_the_database_is_a_file_under_the_root_unless_said_otherwise(tmp_path: Path) -> None:
    assert load_settings(root=tmp_path).database == f"sqlite:///{tmp_path / 'catalog.db'}"
    assert load_settings(root=tmp_path, database_url="postgresql://x/y").database == "postgresql://x/y"


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="prot"):
        load_settings(prot=1)


def test_a_heartbeat_that_cannot_keep_the_lease_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at most half of lease_seconds"):
        load_settings(lease_seconds=4, heartbeat_seconds=3)
