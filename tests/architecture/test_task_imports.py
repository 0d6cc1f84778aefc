"""What Spark loads in each of its Python workers stays small: it is paid for at the start of a task."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEEDLESS = ("lance_namespace", "pydantic", "sqlalchemy", "starlette", "structlog")


@pytest.mark.parametrize(
    "module", ["kernels", "views.rows", "views.sql", "views.table_functions"], ids=lambda name: str(name)
)
def test_tasks_load_nothing_that_only_the_server_needs(module: str) -> None:
    script = f"import sys, tidemill.spark.{module}; print(*sorted(set({NEEDLESS}) & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
