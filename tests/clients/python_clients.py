"""Clients in Python, each with the scenario of its name in `scenarios/` and an environment of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.clients.client import Client, KnownFault, Protocol, python_environment

SCENARIOS: Final = Path(__file__).parent / "scenarios"


def python_client(
    name: str,
    protocol: Protocol,
    *packages: str,
    scenario: str | None = None,
    known_faults: tuple[KnownFault, ...] = (),
    needs_worker: bool = False,
    timeout_seconds: int = 300,
) -> Client:
    """A client whose version is that of the first package."""
    program = SCENARIOS / f"{scenario or name.replace('-', '_')}_scenario.py"

    def prepare(folder: Path) -> Sequence[str]:
        return [str(python_environment(folder, *packages)), str(program)]

    version = packages[0].partition("==")[2]
    return Client(name, version, protocol, prepare, known_faults, timeout_seconds, needs_worker)


CLIENTS: Final = (python_client("pyiceberg", "iceberg", "pyiceberg[pyarrow,pyiceberg-core]==0.12.0"),)
