"""The health of the server: what of the database and the storage can be read and written, and the worker.

Anybody may ask without a credential and monitors ask often, so a report serves all requests for a while, one
request at a time runs the checks, which leave nothing behind. A part that hangs must not take the
server's threads with it: requests that come meanwhile are told so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final, Literal, Protocol

from tidemill.errors import Unavailable
from tidemill.protocols.http.operations import READY, HealthReport
from tidemill.storage.local import check_directory_writable
from tidemill.storage.warehouse import Warehouse
from tidemill.store.engine import SqlStore

WorkerState = Literal["running", "starting", "absent"]
REPORT_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 5.0


class WorkerLiveness(Protocol):
    def state(self) -> WorkerState: ...


@dataclass(frozen=True, slots=True)
class _Part:
    """`problem` is "ok" or the first thing that is wrong."""

    problem: str
    is_readable: bool
    is_writable: bool


class ServerHealth:
    def __init__(self, store: SqlStore, files: Warehouse, worker: WorkerLiveness) -> None:
        self._store = store
        self._files = files
        self._worker = worker
        self._lock = Lock()
        self._started_at = monotonic()
        self._looking_at: Literal["database", "storage"] = "database"
        self._last: tuple[float, HealthReport] | None = None

    def health(self) -> HealthReport:
        last = self._last
        if last is not None and monotonic() - last[0] < REPORT_SECONDS:
            return last[1]
        if not self._lock.acquire(timeout=PATIENCE_SECONDS if last is None else 0):
            return self._meanwhile()
        try:
            self._started_at = monotonic()
            report = self._look()
            self._last = monotonic(), report
        finally:
            self._lock.release()
        return report

    def _look(self) -> HealthReport:
        self._looking_at = "database"
        database, worker = (
            _part(self._store.check_readable, self._check_database_writable),
            self._find_worker(),
        )
        self._looking_at = "storage"
        return _report(database, _part(self._files.check_readable, self._files.check_writable), worker)

    def _meanwhile(self) -> HealthReport:
        """What to say while another request looks: the last report, unless that one hangs."""
        waited = monotonic() - self._started_at
        if self._last is not None and waited < PATIENCE_SECONDS:
            return self._last[1]
        silent = _Part(f"has not answered for {waited:.0f} s", is_readable=False, is_writable=False)
        fine = _Part(READY, is_readable=True, is_writable=True)
        if self._looking_at == "database":
            return _report(silent, fine, "absent")
        return _report(fine, silent, "absent")

    def _check_database_writable(self) -> None:
        self._store.check_writable()
        if self._store.path is not None:
            check_directory_writable(Path(self._store.path).resolve().parent, "to the catalog database")

    def _find_worker(self) -> WorkerState:
        """Workers record their liveness in the database, so it is unknown without it."""
        try:
            return self._worker.state()
        except Unavailable:
            return "absent"


def _part(check_readable: Callable[[], None], check_writable: Callable[[], None]) -> _Part:
    """What cannot be read is not written to either."""
    try:
        check_readable()
    except Unavailable as error:
        return _Part(str(error), is_readable=False, is_writable=False)
    try:
        check_writable()
    except Unavailable as error:
        return _Part(str(error), is_readable=True, is_writable=False)
    return _Part(READY, is_readable=True, is_writable=True)


def _report(database: _Part, storage: _Part, worker: WorkerState) -> HealthReport:
    is_fine = database.problem == READY and storage.problem == READY
    return HealthReport(
        "ok" if is_fine else "degraded",
        version("tidemill"),
        worker,
        database.problem,
        storage.problem,
        reads={"database": database.is_readable, "storage": storage.is_readable},
        writes={"database": database.is_writable, "storage": storage.is_writable},
    )
