"""Commits while files cannot be removed, and while the database does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import table_ident
from tidemill.catalog.operations.receipts import Mutation
from tidemill.catalog.ports import CatalogTransaction
from tidemill.catalog.retries import PAUSES_SECONDS
from tidemill.errors import CommitStateUnknown, InvalidInput, Unavailable
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.iceberg.operations import outcomes
from tidemill.iceberg.operations.commit_engine import Committer, PlannedChange
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import open_store
from tidemill.store.unit_of_work import SqlTransaction

IDENT = table_ident(("t",))
MUTATION: Mutation[Entry] = Mutation(LOCAL_CALLER)


class Refused(Mutation[Entry]):
    def record(self, tx: CatalogTransaction, result: Entry) -> None:
        raise InvalidInput("this", "is wrong")


class Stuck(LocalTableFiles):
    def remove(self, key: str) -> None:
        raise Unavailable("the store is away")


@pytest.fixture
def change(tmp_path: Path) -> PlannedChange:
    location = str(tmp_path / "warehouse/t")
    entry = Entry(UUID(int=1), IDENT, EntryKind.TABLE, location, "", b"")
    return PlannedChange(None, entry, {"location": location}, obsolete=[f"{location}/metadata/old.json"])


@pytest.fixture
def committer(tmp_path: Path) -> Committer:
    return Committer(open_store("sqlite://"), MetadataFiles(Stuck(tmp_path / "warehouse")))


def test_a_commit_is_done_even_if_old_files_stay(committer: Committer, change: PlannedChange) -> None:
    made = committer.commit(MUTATION, IDENT, lambda: change)
    assert Path(made.metadata_location).exists()


def test_a_refusal_is_told_even_if_new_files_stay(committer: Committer, change: PlannedChange) -> None:
    with pytest.raises(InvalidInput, match="is wrong"):
        committer.commit(Refused(LOCAL_CALLER), IDENT, lambda: change)


class Lost:
    """A store whose COMMITs are never answered, and that says nothing afterwards."""

    def __init__(self) -> None:
        self._store = open_store("sqlite://")
        self.is_away = False
        self.reading = self._store.reading

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        if self.is_away:
            raise Unavailable("the database is away")
        with self._store.transaction() as tx:
            yield tx
        self.is_away = True
        raise CommitStateUnknown("no answer")


def test_an_unknown_outcome_keeps_the_new_file(
    tmp_path: Path, change: PlannedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "PAUSES_SECONDS", (0.0,))
    committer = Committer(Lost(), MetadataFiles(LocalTableFiles(tmp_path / "warehouse")))
    with pytest.raises(CommitStateUnknown):
        committer.commit(MUTATION, IDENT, lambda: change)
    assert len(list(tmp_path.rglob("*.metadata.json"))) == 1


def test_a_commit_that_did_not_happen_leaves_no_file(tmp_path: Path, change: PlannedChange) -> None:
    store = Lost()
    store.is_away = True
    committer = Committer(store, MetadataFiles(LocalTableFiles(tmp_path / "warehouse")))
    with pytest.raises(Unavailable):
        committer.commit(MUTATION, IDENT, lambda: change)
    assert list(tmp_path.rglob("*.metadata.json")) == []


def test_asking_for_an_outcome_takes_two_seconds_at_most() -> None:
    assert sum(PAUSES_SECONDS) <= 2


def test_only_so_many_unknown_commits_are_remembered(
    tmp_path: Path, change: PlannedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "MAX_IN_DOUBT", 1)
    monkeypatch.setattr(outcomes, "RESOLVE_AFTER_SECONDS", 0.0)
    files = LocalTableFiles(tmp_path)
    unsettled = outcomes.InDoubtCommits(open_store("sqlite://"), MetadataFiles(files))
    for name in ("first", "second"):
        (tmp_path / name).touch()
        unsettled.add([(None, change.after)], [str(tmp_path / name)])
    unsettled.resolve()
    assert [file.name for file in tmp_path.iterdir()] == ["first"]
