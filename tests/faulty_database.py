"""Catalog databases whose connection is lost at COMMIT: before it arrives, or after it was carried out.

`FaultyPostgres` stands between a server and PostgreSQL as a socket of its own. `FaultySqlite` does the same
to SQLite inside one process, where a disk I/O error takes the place of the lost connection.
"""

from __future__ import annotations

import socket
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self

import pytest
import sqlalchemy

from tidemill.store import engine as engines

SOCKET_NAME: Final = ".s.PGSQL.5432"
COMMIT: Final = b"COMMIT\x00"
BEGIN: Final = b"BEGIN"
READ_ONLY: Final = b"READ ONLY"
CHUNK_BYTES: Final = 1 << 16
ANSWER_SECONDS: Final = 10


class Fault(Enum):
    """When the answer to COMMIT gets lost."""

    BEFORE = "before"
    AFTER = "after"
    BUSY = "busy"


class Faults:
    """What goes wrong next; `skipped` write transactions go well before it does."""

    def __init__(self) -> None:
        self.is_down = False
        self.count = 0
        self._next: tuple[Fault, int, bool] | None = None
        self._lock = threading.Lock()

    def fail_commit(self, fault: Fault, *, stays_down: bool = False, skipped: int = 0) -> None:
        self._next = fault, skipped, stays_down

    def take(self) -> Fault | None:
        """For one COMMIT of a transaction that may write."""
        with self._lock:
            if self._next is None:
                return None
            fault, skipped, stays_down = self._next
            self._next = (fault, skipped - 1, stays_down) if skipped else None
            if skipped:
                return None
            self.is_down = stays_down
            self.count += 1
            return fault

    def recover(self) -> None:
        self._next, self.is_down = None, False


class FaultyPostgres:
    """Forwards every connection until `faults` says otherwise; `close` ends them all."""

    def __init__(self, cluster_url: str) -> None:
        name, _, folder = cluster_url.partition("?host=")
        self.faults = Faults()
        self._target = f"{folder}/{SOCKET_NAME}"
        self._folder = tempfile.TemporaryDirectory(prefix="tidemill-proxy-")
        self.url = f"{name}?host={self._folder.name}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{self._folder.name}/{SOCKET_NAME}")
        self._listener.listen(64)
        self._links: set[_Link] = set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        _shut(self._listener)
        self._accepting.join()
        self.drop_all()
        for link in list(self._links):
            link.join()
        self._folder.cleanup()

    def drop_all(self) -> None:
        for link in list(self._links):
            link.drop()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    client, _ = self._listener.accept()
                except OSError:
                    return
                if self.faults.is_down:
                    client.close()
                    continue
                link = _Link(client, self._target, self.faults, self.drop_all)
                self._links = {known for known in self._links if known.is_alive()} | {link}
                link.start()


class _Link(threading.Thread):
    """One connection: forwards what the client sends, and in a thread beside it what comes back."""

    def __init__(
        self, client: socket.socket, target: str, faults: Faults, drop_all: Callable[[], None]
    ) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(target)
        self._faults = faults
        self._drop_all = drop_all
        self._only_reads = False
        self._is_answer_lost = False
        self._answers = threading.Thread(target=self._answer, daemon=True)

    def drop(self) -> None:
        _shut(self._client)
        _shut(self._server)

    def run(self) -> None:
        with self._client, self._server:
            self._answers.start()
            with suppress(OSError):
                self._ask()
            self.drop()
            self._answers.join()
        if self._faults.is_down:
            self._drop_all()

    def _ask(self) -> None:
        while data := self._client.recv(CHUNK_BYTES):
            if BEGIN in data:
                self._only_reads = READ_ONLY in data
            fault = self._faults.take() if COMMIT in data and not self._only_reads else None
            if fault is Fault.BEFORE:
                return
            self._is_answer_lost = fault is Fault.AFTER
            self._server.sendall(data)
            if fault is Fault.AFTER:
                self._answers.join(ANSWER_SECONDS)
                return

    def _answer(self) -> None:
        with suppress(OSError):
            while (data := self._server.recv(CHUNK_BYTES)) and not self._is_answer_lost:
                self._client.sendall(data)
            if not self._is_answer_lost:
                self.drop()


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class FaultySqlite:
    """Stores that are opened while it is in place fail as `faults` says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.faults = Faults()
        patch.setattr(engines, "create_engine", self._create_engine)

    def _create_engine(self, url: Any, **options: Any) -> sqlalchemy.Engine:
        arguments = {**options.pop("connect_args", {}), "factory": self._connection()}
        return sqlalchemy.create_engine(url, connect_args=arguments, **options)

    def _connection(self) -> type[sqlite3.Connection]:
        faults = self.faults

        class FaultyCursor(sqlite3.Cursor):
            def execute(self, *arguments: Any) -> Self:
                if faults.is_down:
                    raise io_error()
                return super().execute(*arguments)

        class Faulty(sqlite3.Connection):
            def cursor(self, *_: Any) -> Any:
                return super().cursor(FaultyCursor)

            def commit(self) -> None:
                match faults.take():
                    case None:
                        super().commit()
                    case Fault.AFTER:
                        super().commit()
                        raise io_error()
                    case Fault.BEFORE:
                        super().rollback()
                        raise io_error()
                    case Fault.BUSY:
                        raise sqlite_error("database is locked", sqlite3.SQLITE_BUSY)

        return Faulty


def io_error() -> sqlite3.OperationalError:
    return sqlite_error("disk I/O error", sqlite3.SQLITE_IOERR)


def sqlite_error(message: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    error.sqlite_errorname = {sqlite3.SQLITE_IOERR: "SQLITE_IOERR", sqlite3.SQLITE_BUSY: "SQLITE_BUSY"}[code]
    return error


def database_file(folder: Path) -> str:
    return f"sqlite:///{folder / 'catalog.db'}"
