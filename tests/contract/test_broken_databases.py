"""Databases that are damaged, replaced or read-only: said as such, and used again once repaired."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.samples import a_namespace
from tests.postgres import PostgresCluster
from tidemill.errors import DatabaseDamaged, Unavailable
from tidemill.store.engine import SqlStore, open_store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def local(file: Path) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{file}")
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("a"))
    yield store
    store.close()


def content_of(file: Path) -> bytes:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.read_bytes()


def put(file: Path, content: bytes) -> None:
    """Into the same file, as a disk does that goes bad."""
    with file.open("r+b") as opened:
        opened.write(content)
        opened.truncate()


def page_of(file: Path, table: str) -> tuple[int, int]:
    with closing(sqlite3.connect(file)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(query, (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return (page - 1) * size, size


@pytest.mark.parametrize("damage", ["truncated", "garbage", "a page"])
def test_a_damaged_file_is_said_until_it_is_repaired(file: Path, damage: str) -> None:
    store = open_store(f"sqlite:///{file}")
    sound = content_of(file)
    start, size = page_of(file, "tables")
    damaged = {
        "truncated": sound[:5000],
        "garbage": os.urandom(len(sound)),
        "a page": sound[:start] + os.urandom(size) + sound[start + size :],
    }[damage]
    put(file, damaged)
    # Connections that are open may have read the page before.
    store.close()
    with pytest.raises(DatabaseDamaged, match="restore it from a backup"):
        store.check_readable()
    put(file, sound)
    store.check_readable()
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace("after"))
    store.close()


def test_a_file_put_in_the_place_of_another_is_the_one_that_is_read_and_written(
    local: SqlStore, file: Path
) -> None:
    backup = file.with_name("backup.db")
    backup.write_bytes(content_of(file))
    with local.transaction() as tx:
        tx.namespaces.add(a_namespace("later"))
    content_of(file)
    for path in file.parent.glob("catalog.db-*"):
        path.unlink()
    backup.replace(file)
    with local.transaction() as tx:
        tx.namespaces.add(a_namespace("after"))
    local.check_readable()
    with closing(sqlite3.connect(file)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM namespaces")}
    assert {"a", "after"} <= names
    assert "later" not in names


def test_a_file_that_is_gone_is_not_made_anew(local: SqlStore, file: Path) -> None:
    for path in file.parent.glob("catalog.db*"):
        path.unlink()
    for check in (local.check_readable, local.check_writable):
        with pytest.raises(Unavailable, match="cannot be opened"):
            check()
    assert not file.exists()


def test_a_postgresql_that_is_read_only_is_read(postgres: PostgresCluster) -> None:
    postgres.create_database("standby")
    open_store(postgres.url("standby")).close()
    try:
        with closing(open_store(postgres.url("standby"))) as store:
            store.check_writable()
            postgres.execute("ALTER DATABASE standby SET default_transaction_read_only = on")
            # Sessions that are open keep what they began with.
            store.close()
            with pytest.raises(Unavailable, match="read-only"):
                store.check_writable()
            with pytest.raises(Unavailable, match="read-only"), store.transaction() as tx:
                tx.namespaces.add(a_namespace("a"))
            store.check_readable()
            postgres.execute("ALTER DATABASE standby RESET default_transaction_read_only")
            store.close()
            store.check_writable()
    finally:
        postgres.drop_database("standby")
