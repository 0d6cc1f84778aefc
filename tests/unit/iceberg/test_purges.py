"""Purges while the storage is not in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from tidemill.catalog.model.identifiers import table_ident
from tidemill.errors import Unavailable
from tidemill.iceberg.model.entries import Document, Entry, EntryKind
from tidemill.iceberg.operations.purges import Purger
from tidemill.store.engine import SqlStore, open_store

ENTRY = Entry(UUID(int=1), table_ident(("t",)), EntryKind.TABLE, "/w/t", "/w/t/0.json", b'{"snapshots": []}')


@dataclass
class Disk:
    """Files that can be removed unless there is a problem."""

    problem: Exception | None = None
    removed: list[str] = field(default_factory=list)

    def named_by(self, metadata: Document) -> Iterator[str]:
        yield "/w/t/data"

    def resolve(self, location: str) -> str:
        return location

    def remove(self, location: str) -> None:
        if self.problem is not None:
            raise self.problem
        self.removed.append(location)


@pytest.fixture
def store() -> Iterator[SqlStore]:
    opened = open_store("sqlite://")
    with opened.transaction() as tx:
        tx.purges.add(ENTRY)
    yield opened
    opened.close()


def is_waiting(store: SqlStore) -> bool:
    with store.reading() as tx:
        return len(tx.purges.list_waiting(9)) > 0


@pytest.mark.parametrize("problem", [Unavailable("the store is away"), PermissionError(13, "not allowed")])
def test_what_cannot_be_removed_now_waits_for_another_time(store: SqlStore, problem: Exception) -> None:
    disk = Disk(problem)
    purger = Purger(store, disk, disk)
    purger.purge(ENTRY)
    assert is_waiting(store)
    disk.problem = None
    assert purger.purge_waiting() == 1
    assert disk.removed == ["/w/t/data", "/w/t/0.json"]
    assert not is_waiting(store)
