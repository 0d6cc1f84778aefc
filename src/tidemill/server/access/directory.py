"""The clients, roles and grants of the catalog, kept in memory by each process.

Requests cannot afford to read them from the database. So each process keeps a snapshot, and at most once a
second reads the revision that every change raises; if it is another one, it reads everything again. This
happens in a thread, once for all requests that need it:

    younger than 1 s      it counts
    up to 1.5 s           it counts, and is checked in the background
    older                 requests wait for the check

So a revoked grant or a removed key counts for less than two seconds more, on every server. A process sees its
own changes at once. If the database does not answer, requests fail rather than go by what was.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Final

import structlog

from tidemill.catalog.model.access import AccessState, ApiKey, Grant
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.ports import CatalogStore
from tidemill.errors import TidemillError
from tidemill.server.access.grants import AccessSnapshot

CHECK_SECONDS: Final = 1.0
STALE_SECONDS: Final = 1.5
USE_SECONDS: Final = 60.0
UNREAD: Final = -1

log = structlog.get_logger("tidemill.access")


class AccessDirectory:
    def __init__(
        self,
        store: CatalogStore,
        settings_grants: Iterable[Grant] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._snapshot = AccessSnapshot(AccessState(UNREAD), tuple(settings_grants))
        # When the last successful check began.
        self._checked_at = -math.inf
        # Changes of this process, and how many of them the snapshot has for certain.
        self._changes = 0
        self._seen_changes = 0
        self._lock = Lock()
        self._check: Future[None] | None = None
        self._used_at: dict[str, float] = {}
        # One thread each: recording a use may have to wait for a writer, and no check waits for that.
        self._checks = ThreadPoolExecutor(1, thread_name_prefix="access")
        self._uses = ThreadPoolExecutor(1, thread_name_prefix="key use")

    async def fresh(self) -> AccessSnapshot:
        """For the event loop, which goes on while the database is read."""
        asked_at = self._clock()
        while not self._counts(asked_at):
            # Shielded, because others wait for the same check.
            await asyncio.shield(asyncio.wrap_future(self._start_check()))
        return self._snapshot

    def current(self) -> AccessSnapshot:
        """Waits for the database only if nobody has called `fresh` for a while."""
        asked_at = self._clock()
        while not self._counts(asked_at):
            may_block()
            self._start_check().result()
        return self._snapshot

    def note_change(self) -> None:
        """Call this after this process has changed something, so that it counts here at once."""
        self._changes += 1

    def note_use(self, key: ApiKey) -> None:
        """Records that a key is used, at most once a minute and not in this thread."""
        now = self._clock()
        if now - self._used_at.get(key.key_id, -math.inf) >= USE_SECONDS:
            self._used_at[key.key_id] = now
            self._uses.submit(self._record_use, key.key_id)

    def close(self) -> None:
        for threads in (self._checks, self._uses):
            threads.shutdown(wait=True)

    def _counts(self, asked_at: float) -> bool:
        """Whether the snapshot can be used for a request of that time; starts a check if it is due."""
        if self._seen_changes != self._changes:
            return False
        age = self._clock() - self._checked_at
        if age >= STALE_SECONDS:
            return self._checked_at >= asked_at
        if age >= CHECK_SECONDS:
            self._start_check()
        return True

    def _start_check(self) -> Future[None]:
        with self._lock:
            if self._check is None or self._check.done():
                self._check = self._checks.submit(self._read)
            return self._check

    def _read(self) -> None:
        began_at, changes = self._clock(), self._changes
        with self._store.reading() as tx:
            if tx.grants.revision() != self._snapshot.state.revision:
                state = tx.grants.state()
                self._snapshot = AccessSnapshot(state, self._snapshot.settings_grants)
                self._used_at = {
                    key.key_id: self._used_at[key.key_id] for key in state.keys if key.key_id in self._used_at
                }
        self._checked_at, self._seen_changes = began_at, changes

    def _record_use(self, key_id: str) -> None:
        try:
            with self._store.transaction() as tx:
                tx.clients.record_use([key_id])
        except TidemillError as error:
            log.warning("the use of a key was not recorded", key_id=key_id, error=str(error))
