"""What `import tidemill` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidemill

LOADED = "import sys, tidemill; tidemill.{name}; print(*sys.modules)"


@pytest.mark.parametrize("name", [name for name in tidemill.__all__ if name != "__version__"])
def test_every_export_is_there(name: str) -> None:
    assert getattr(tidemill, name).__name__.removeprefix("tidemill.") == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        tidemill.conect  # noqa: B018  # that is the fault


@pytest.mark.parametrize("name", ["chunkers", "connect", "udf"])
def test_importing_the_sdk_loads_nothing_heavy(name: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", LOADED.format(name=name)], capture_output=True, text=True, check=True
    )
    heavy = {"lance", "lancedb", "pandas", "polars", "py4j", "pyspark", "sqlalchemy", "starlette"}
    assert not heavy & set(said.stdout.split())
