"""Apache Iceberg's own REST catalog server, to tell what is ours from what is the clients'."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.iceberg.maven import java, java_environment, kit_jars

START_TIMEOUT_SECONDS: Final = 60.0
# Its database lives in memory, where a second connection would find an empty one.
SETTINGS: Final = {"CATALOG_CLIENTS": "1"}


@dataclass(frozen=True)
class ReferenceServer:
    url: str
    port: int
    warehouse: Path
    process: subprocess.Popen[bytes]


@contextmanager
def running_reference_server(folder: Path) -> Iterator[ReferenceServer]:
    """A fresh one, with its log and its warehouse in the folder; raises JarsMissing."""
    folder.mkdir(parents=True, exist_ok=True)
    port, warehouse = _free_port(), folder / "warehouse"
    settings = {**SETTINGS, "CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": str(warehouse)}
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [java(), quiet, "-cp", f"{kit_jars()}/*", "org.apache.iceberg.rest.RESTCatalogServer"],
            stdout=log,
            stderr=log,
            # A location that is no place becomes a folder where it was started.
            cwd=folder,
            env={**java_environment(), **settings},
        )
    try:
        _wait_for(port, process, folder / "server.log")
        yield ReferenceServer(f"http://127.0.0.1:{port}", port, warehouse, process)
    finally:
        process.terminate()
        process.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"Iceberg's server did not start:\n{log.read_text(errors='replace')[-2000:]}")
