"""A foreign client of the matrix: how it is installed, and how its scenario is run.

A module in this folder has a value `CLIENT`, or several `CLIENTS`. Each client has a scenario that follows
the client's own documentation, in the client's own language. The scenario is a program in an environment of
its own. It gets its server in environment variables:

    TIDEMILL_URL          root of the Lance protocol, http://127.0.0.1:PORT
    TIDEMILL_ICEBERG_URL  root of the Iceberg protocol
    TIDEMILL_WAREHOUSE    name of the Iceberg warehouse
    TIDEMILL_CREDENTIAL   id:secret, for `x-api-key` and for OAuth2 client credentials

and prints one line of JSON for each operation it tried, `{"operation": "create table", "outcome": "pass"}` or
`{"operation": ..., "outcome": "fail", "detail": "what the client said"}`. Other lines are a log. It tries
every operation, also after one has failed, and ends with code 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = Path(os.environ.get("TIDEMILL_CLIENTS_CACHE", ROOT / ".cache" / "clients"))
"""Environments and jars of all clients, about 100 MB to 1 GB each. They are made once per version."""
TIMEOUT_SECONDS: Final = 900

Protocol = Literal["lance", "iceberg"]


class ClientMissing(Exception):
    """The client cannot be installed here; says why."""


@dataclass(frozen=True)
class KnownFault:
    """An operation that fails through no fault of this server."""

    operation: str
    whose: str
    why: str
    upstream: str
    """The address of the issue in the client's own project, or what was searched for in vain."""


@dataclass(frozen=True)
class Client:
    """`prepare` installs the client below the given folder and returns the command that runs its scenario."""

    name: str
    version: str
    protocol: Protocol
    prepare: Callable[[Path], Sequence[str]]
    known_faults: tuple[KnownFault, ...] = ()
    timeout_seconds: int = 300
    needs_worker: bool = False
    server_settings: Mapping[str, str] = field(default_factory=dict)
    """More settings of the server, as environment variables."""
    replayed_by: str | None = None
    """The test that replays its requests from a recording of its own; none is made here."""


def python_environment(folder: Path, *packages: str) -> Path:
    """The Python of an environment with just these packages; raises ClientMissing."""
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    wanted = "\n".join((*packages, sys.version))
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(folder, clear=True, with_pip=False)
        run_installer(
            sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python), *packages
        )
        stamp.write_text(wanted)
    return python


def run_installer(*command: str, cwd: Path | None = None) -> None:
    """Runs a package manager; raises ClientMissing with its last words."""
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise ClientMissing(f"{command[0]}: {error}") from error
    if ended.returncode != 0:
        raise ClientMissing(f"{' '.join(command[:4])}: {ended.stdout.strip()[-600:]}")
