"""The health of the server: database, storage, worker."""

from __future__ import annotations

from importlib.metadata import version
from typing import Literal, Protocol

from tidemill.errors import Unavailable
from tidemill.protocols.http.operations import READY, HealthReport
from tidemill.storage.warehouse import Warehouse
from tidemill.store.engine import SqlStore

WorkerState = Literal["running", "starting", "absent"]


class WorkerLiveness(Protocol):
    def state(self) -> WorkerState: ...


class ServerHealth:
    def __init__(self, store: SqlStore, files: Warehouse, worker: WorkerLiveness) -> None:
        self._store = store
        self._files = files
        self._worker = worker

    def health(self) -> HealthReport:
        database, storage = self._database(), self._storage()
        is_fine = database == READY and storage == READY
        # Workers record their liveness in the database, so it is unknown without it.
        worker = self._worker.state() if database == READY else "absent"
        return HealthReport("ok" if is_fine else "degraded", version("tidemill"), worker, database, storage)

    def _database(self) -> str:
        try:
            self._store.ping()
        except Unavailable as error:
            return str(error)
        return READY

    def _storage(self) -> str:
        try:
            self._files.check_writable()
        except Unavailable as error:
            return str(error)
        return READY
