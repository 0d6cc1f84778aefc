"""Lakes for random histories: a folder in memory for each, and one database that is emptied between them.

Opening a database, migrating it and compiling its statements takes as long as several steps of a history.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final

from tests.engine import Engine
from tidemill.store.engine import SqlStore, open_store
from tidemill.store.schema import ROOT_ID, metadata, namespaces, schema_migrations

MEMORY: Final = Path("/dev/shm")


class TemporaryLake:
    """An engine over an empty lake. Only one is there at a time."""

    def __init__(self) -> None:
        self._folder = _new_folder()
        folder, store = _database()
        _empty(_file_in(folder))
        self.engine = Engine(Path(self._folder.name), store=store)

    def remove(self) -> None:
        self._folder.cleanup()


@cache
def _database() -> tuple[tempfile.TemporaryDirectory[str], SqlStore]:
    """One for this process; its folder is removed with it."""
    folder = _new_folder()
    return folder, open_store(f"sqlite:///{_file_in(folder)}")


def _file_in(folder: tempfile.TemporaryDirectory[str]) -> Path:
    return Path(folder.name, "catalog.db")


def _empty(database: Path) -> None:
    """Without foreign keys, which are off unless somebody turns them on, in any order."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in metadata.sorted_tables:
            if table is namespaces:
                connection.execute("DELETE FROM namespaces WHERE namespace_id <> ?", (ROOT_ID.hex,))
            elif table is not schema_migrations:
                connection.execute(f"DELETE FROM {table.name}")


def _new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(
        prefix="tidemill-history-", dir=MEMORY if MEMORY.is_dir() else None, ignore_cleanup_errors=True
    )
