"""Each process keeps clients, roles and grants in memory, and knows soon when they have changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tidemill.catalog.model.access import ApiKey, Client, Grant, principal_grantee
from tidemill.catalog.model.callers import ROOT, Permission
from tidemill.catalog.nonblocking import WouldBlock, nonblocking
from tidemill.errors import Unavailable
from tidemill.server.access.directory import AccessDirectory
from tidemill.store.engine import SqlStore, open_store

READ = Grant(principal_grantee("ada"), Permission.READ, ROOT, "owner")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class GatedStore:
    """A store whose reads are counted, can be held up, and can fail."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self.reads = 0
        self.is_down = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        self.reads += 1
        assert self.gate.wait(30)
        if self.is_down:
            raise Unavailable("away")
        with self._store.reading() as tx:
            yield tx


class Desk:
    def __init__(self) -> None:
        self.clock = Clock()
        self.store = GatedStore(open_store("sqlite://"))
        self.directory = AccessDirectory(self.store, (), self.clock)

    def grant(self) -> None:
        with self.store.transaction() as tx:
            tx.grants.add([READ])

    def grants(self) -> int:
        return len(self.directory.current().state.grants)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.store.gate.set()
    made.directory.close()


def test_a_snapshot_counts_for_a_second_and_a_half_at_most(desk: Desk) -> None:
    assert desk.grants() == 0
    desk.grant()
    desk.clock.now = 0.9
    assert (desk.grants(), desk.store.reads) == (0, 1)
    desk.clock.now = 1.6
    assert (desk.grants(), desk.store.reads) == (1, 2)


def test_an_own_change_counts_at_once(desk: Desk) -> None:
    assert desk.grants() == 0
    desk.grant()
    desk.directory.note_change()
    assert desk.grants() == 1


def test_one_check_serves_all_requests_and_the_event_loop_goes_on(desk: Desk) -> None:
    async def ask() -> int:
        desk.store.gate.clear()
        asking = [asyncio.create_task(desk.directory.fresh()) for _ in range(50)]
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(task.done() for task in asking)
        # One that gives up must not take the check away from the others.
        asking[0].cancel()
        await asyncio.sleep(0)
        desk.store.gate.set()
        done = await asyncio.gather(*asking[1:])
        return len(done)

    assert asyncio.run(ask()) == 49
    assert desk.store.reads == 1


def test_a_check_that_is_due_holds_up_nobody(desk: Desk) -> None:
    desk.grants()
    desk.clock.now = 1.2
    desk.store.gate.clear()
    assert desk.grants() == 0


def test_without_the_database_nobody_goes_by_old_grants(desk: Desk) -> None:
    desk.grants()
    desk.store.is_down = True
    desk.clock.now = 1.6
    with pytest.raises(Unavailable):
        desk.grants()
    with pytest.raises(Unavailable):
        asyncio.run(desk.directory.fresh())
    desk.store.is_down = False
    assert desk.grants() == 0


def test_a_thread_that_must_not_block_does_not_wait(desk: Desk) -> None:
    with nonblocking(), pytest.raises(WouldBlock):
        desk.directory.current()


def test_the_use_of_a_key_is_written_once_a_minute(desk: Desk) -> None:
    key = ApiKey("k", "ada", "default", b"")
    with desk.store.transaction() as tx:
        tx.clients.add(Client("ada"))
        tx.clients.add_key(key)
    uses: list[Any] = []
    desk.directory._uses.submit = lambda *call: uses.append(call)  # type: ignore[method-assign,assignment]
    for now in (0.0, 59.0, 61.0):
        desk.clock.now = now
        desk.directory.note_use(key)
    assert len(uses) == 2
