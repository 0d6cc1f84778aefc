"""Tags and branches that clients change at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

from tidemill.catalog.model.identifiers import table_ident
from tidemill.catalog.model.tables import Table
from tidemill.lance.refs import LanceTableRefs

LOOKS = 100


@pytest.fixture
def table(tmp_path: Path) -> Table:
    dataset = lance.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    dataset.tags.create("stays", 1)
    dataset.create_branch("stays")
    return Table(uuid4(), table_ident(("t",)), str(tmp_path / "t.lance"))


@pytest.fixture
def refs() -> LanceTableRefs:
    versions: Any = None  # only creating a branch commits a version
    return LanceTableRefs(versions)


@pytest.fixture
def tags_that_come_and_go(table: Table) -> Iterator[None]:
    is_over = Event()

    def churn(name: str) -> None:
        tags = lance.dataset(table.location).tags
        while not is_over.is_set():
            tags.create(name, 1)
            tags.delete(name)

    threads = [Thread(target=churn, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    yield
    is_over.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("tags_that_come_and_go")
def test_tags_are_listed_while_others_are_deleted(table: Table, refs: LanceTableRefs) -> None:
    """pylance lists their files and reads them one by one; one that is gone by then was an error."""
    for _ in range(LOOKS):
        assert "stays" in refs.list_tags(table)


@pytest.mark.usefixtures("tags_that_come_and_go")
def test_a_branch_is_deleted_while_tags_are(table: Table, refs: LanceTableRefs) -> None:
    refs.delete_branch(table, "stays")
    assert refs.list_branches(table) == {}
