"""A zygote starts fast because it imports little."""

from __future__ import annotations

import subprocess
import sys

IMPORTED = "import sys; import tidemill.functions.isolation.child_main; print(*sys.modules)"
# Only the task needs them.
TASK_MODULES = {
    "concurrent.futures",
    "packaging",
    "subprocess",
    "tidemill.functions.api",
    "tidemill.functions.environments",
    "tidemill.functions.isolation.pool",
    "uv",
}


def test_a_zygote_imports_nothing_that_only_the_task_needs() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert TASK_MODULES.isdisjoint(ended.stdout.split())
