"""The task's side of sandboxes: what they contain, and whether this machine can make one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tidemill.functions.isolation.sandbox import Sandbox

PROBE_SECONDS: Final = 30.0
PROBE: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tidemill.functions.isolation.sandbox import Sandbox, enter, enter_child; "
    "sandbox = Sandbox.from_json(json.loads(sys.argv[2])); enter(sandbox); enter_child(sandbox.limits, []); "
    "import importlib.util, os; os._exit(importlib.util.find_spec('pyarrow') is None)"
)
NOT_LINUX: Final = "it needs namespaces, which only Linux has"


def python_path() -> list[str]:
    """Where a sandboxed zygote finds modules: as the task, but not where anything else may be.

    The folder in which a process was started, or that of its script, is on its path. It counts only if
    PYTHONPATH names it.
    """
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # noqa: TID251  # the interpreter's own
    wanted = {os.path.abspath(entry) for entry in named if entry}
    started_in = {str(Path.cwd()), os.path.dirname(os.path.abspath(sys.argv[0]))} - wanted
    unwanted = {"/", tempfile.gettempdir(), str(Path.home())} | started_in
    entries = (os.path.abspath(entry) for entry in sys.path if entry)
    return [entry for entry in entries if entry not in unwanted]


def readable_paths(packages: Path | None, others: Sequence[str]) -> tuple[str, ...]:
    """Python, its modules, the packages of the function, and what the deployment adds."""
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    added = () if packages is None else (str(packages),)
    return tuple(dict.fromkeys((*prefixes, *python_path(), *others, *added)))


def hidden_paths(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(each for path in paths for each in (os.path.abspath(path), os.path.realpath(path)))
    )


@cache
def find_problem(command_prefix: tuple[str, ...] = ()) -> str | None:
    """Why functions cannot be isolated on this machine; None if they can."""
    if sys.platform != "linux":
        return NOT_LINUX
    sandbox = Sandbox(readable_paths(None, ()))
    command = [sys.executable, "-I", "-c", PROBE, json.dumps(python_path()), json.dumps(sandbox.to_json())]
    try:
        ended = subprocess.run(
            [*command_prefix, *command],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if ended.returncode == 0:
        return None
    return (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
