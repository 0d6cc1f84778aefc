"""Several processes on one database."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO

from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.store.engine import open_store

PROCESSES = 3
NAMES = 25
WRITER = f"""
import sys
from uuid import uuid4
from tidemill.catalog.errors import NamespaceAlreadyExists
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.identifiers import Namespace
from tidemill.store.engine import open_store

print("ready", flush=True)
sys.stdin.readline()
store, won = open_store(sys.argv[1]), 0
for number in range({NAMES}):
    try:
        with store.transaction() as tx:
            tx.namespaces.add(Namespace(uuid4(), NamespacePath((str(number),))))
    except NamespaceAlreadyExists:
        continue
    won += 1
store.close()
print(won)
"""


def test_processes_that_start_together_make_one_schema_and_share_the_work(new_url: str) -> None:
    writers = [start_writer(new_url) for _ in range(PROCESSES)]
    for writer in writers:
        assert pipe(writer.stdout).readline() == "ready\n"
    for writer in writers:
        pipe(writer.stdin).write("go\n")
        pipe(writer.stdin).flush()
    won = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    assert sum(won) == NAMES
    store = open_store(new_url)
    with store.transaction() as tx:
        assert len(tx.namespaces.list_children(NamespacePath(), Page())) == NAMES
    store.close()


def start_writer(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
