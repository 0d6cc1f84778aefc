"""Opening stores."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import create_engine

from tidemill.catalog.model.identifiers import Namespace, NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput, Unavailable
from tidemill.store.engine import SqlStore, open_store, switch_to_wal
from tidemill.store.sqlite_connections import WriteLock

NOWHERE = "postgresql://ada:secret@/catalog?host=/nowhere"


def test_a_store_in_memory_is_shared_by_threads() -> None:
    store = open_store("sqlite://")

    def add(number: int) -> None:
        with store.transaction() as tx:
            tx.namespaces.add(Namespace(UUID(int=number), NamespacePath((str(number),))))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(1, 41)))
    with store.transaction() as tx:
        assert len(tx.namespaces.list_children(NamespacePath(), Page())) == 40
    store.close()


def test_stores_in_memory_are_their_own(tmp_path: Path) -> None:
    first, second = open_store("sqlite://"), open_store("sqlite://")
    with first.transaction() as tx:
        tx.namespaces.add(Namespace(UUID(int=1), NamespacePath(("shop",))))
    with second.transaction() as tx:
        assert tx.namespaces.find(NamespacePath(("shop",))) is None
    first.close()
    second.close()


def test_a_file_is_in_wal_mode_with_foreign_keys(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'catalog.db'}")
    with store._connection() as connection:
        answers = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
        }
    assert answers == {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 0}
    store.close()


def test_a_transaction_that_only_reads_keeps_other_writers_out(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    store = open_store(f"sqlite:///{file}")
    with store.transaction() as tx:
        tx.now()
        other = sqlite3.connect(file, timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
    store.close()


def test_a_busy_database_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.store.engine.BUSY_TIMEOUT", timedelta(milliseconds=50))
    file = tmp_path / "catalog.db"
    store = open_store(f"sqlite:///{file}")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"), store.transaction():
        pass
    other.execute("ROLLBACK")
    with store.transaction():
        pass
    other.close()
    store.close()


class Contended(sqlite3.Connection):
    """Answers the first statements as SQLite does when two processes switch a new file to WAL at once."""

    refusals = 2

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("database is locked")
        return super().execute(*arguments)


def test_switching_to_wal_is_tried_again_while_another_process_does_it(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "catalog.db", factory=Contended)
    switch_to_wal(connection)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_waiting_for_a_turn_ends() -> None:
    write_lock = WriteLock(timedelta(milliseconds=20))
    entered, leave = threading.Event(), threading.Event()

    def occupy() -> None:
        with write_lock.held():
            entered.set()
            leave.wait()

    occupant = threading.Thread(target=occupy)
    occupant.start()
    entered.wait()
    with pytest.raises(Unavailable), write_lock.held():
        pass
    leave.set()
    occupant.join()
    with write_lock.held():
        pass


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    file.write_bytes(b"something else " * 100)
    with pytest.raises(Unavailable, match="not a database"):
        open_store(f"sqlite:///{file}")


def test_a_folder_that_is_missing_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="unable to open"):
        open_store(f"sqlite:///{tmp_path / 'missing' / 'catalog.db'}")


def test_a_server_that_does_not_answer_is_unavailable_and_the_password_stays_secret() -> None:
    with pytest.raises(Unavailable) as refused:
        open_store(NOWHERE)
    assert "secret" not in str(refused.value)


def test_pinging_a_server_that_does_not_answer_is_unavailable() -> None:
    engine = create_engine(NOWHERE.replace("postgresql", "postgresql+psycopg"))
    store = SqlStore(engine)
    with pytest.raises(Unavailable):
        store.check_readable()
    store.close()


@pytest.mark.parametrize("url", ["mysql://localhost/catalog", "catalog.db", "postgresql+asyncpg://x/y", ""])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="database"):
        open_store(url)
