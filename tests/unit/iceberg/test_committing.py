"""Commits while old files cannot be removed."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tidemill.catalog.model.identifiers import table_ident
from tidemill.errors import InvalidInput, Unavailable
from tidemill.iceberg.files import MetadataFiles
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.iceberg.operations.committing import Committer, Step
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import open_store

IDENT = table_ident(("t",))


class Stuck(LocalTableFiles):
    def remove(self, key: str) -> None:
        raise Unavailable("the store is away")


@pytest.fixture
def step(tmp_path: Path) -> Step:
    place = str(tmp_path / "warehouse/t")
    entry = Entry(UUID(int=1), IDENT, EntryKind.TABLE, place, "", b"")
    return Step(None, entry, {"location": place}, obsolete=[f"{place}/metadata/old.json"])


@pytest.fixture
def committer(tmp_path: Path) -> Committer:
    return Committer(open_store("sqlite://"), MetadataFiles(Stuck(tmp_path / "warehouse")))


def test_a_commit_is_done_even_if_old_files_stay(committer: Committer, step: Step) -> None:
    [made] = committer.commit([IDENT], lambda: [step], lambda *_: None)
    assert Path(made.metadata_location).exists()


def test_a_refusal_is_told_even_if_new_files_stay(committer: Committer, step: Step) -> None:
    def refuse(*_: object) -> None:
        raise InvalidInput("this", "is wrong")

    with pytest.raises(InvalidInput, match="is wrong"):
        committer.commit([IDENT], lambda: [step], refuse)
