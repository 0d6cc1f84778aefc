"""Connections that are lost around COMMIT: nothing happened, or nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.contract.conftest import SHARED
from tests.faulty_database import Fault, Faults, FaultyPostgres, FaultySqlite, database_file
from tests.postgres import PostgresCluster
from tidemill.catalog.errors import NamespaceNotFound
from tidemill.catalog.model.identifiers import Namespace, NamespacePath
from tidemill.errors import CommitStateUnknown, Unavailable
from tidemill.store.engine import SqlStore, open_store

PATH = NamespacePath(("shop",))


@pytest.fixture(params=["sqlite", "postgresql"])
def faulty(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SqlStore, Faults]]:
    if request.param == "sqlite":
        database = FaultySqlite(monkeypatch)
        store = open_store(database_file(tmp_path))
        yield store, database.faults
        store.close()
        return
    cluster: PostgresCluster = request.getfixturevalue("postgres")
    proxy = FaultyPostgres(cluster.url(SHARED))
    store = open_store(proxy.url)
    yield store, proxy.faults
    store.close()
    proxy.close()
    cluster.execute("DELETE FROM namespaces WHERE parent_id IS NOT NULL", SHARED)


def add(store: SqlStore) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(Namespace(UUID(int=1), PATH))


def is_there(store: SqlStore) -> bool:
    with store.reading() as tx:
        return tx.namespaces.find(PATH) is not None


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_commit_without_an_answer_is_unknown(faulty: tuple[SqlStore, Faults], fault: Fault) -> None:
    store, faults = faulty
    faults.fail_commit(fault)
    with pytest.raises(CommitStateUnknown):
        add(store)
    assert is_there(store) is (fault is Fault.AFTER)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_the_store_works_again_after_a_lost_commit(faulty: tuple[SqlStore, Faults], fault: Fault) -> None:
    store, faults = faulty
    faults.fail_commit(fault)
    with pytest.raises(CommitStateUnknown):
        add(store)
    with store.transaction() as tx:
        tx.namespaces.add(Namespace(UUID(int=2), NamespacePath(("other",))))
    with store.reading() as tx:
        assert tx.namespaces.find(NamespacePath(("other",))) is not None


def test_what_fails_before_its_commit_did_not_happen(faulty: tuple[SqlStore, Faults]) -> None:
    store, faults = faulty
    faults.fail_commit(Fault.AFTER, stays_down=True)
    with pytest.raises(CommitStateUnknown):
        add(store)
    with pytest.raises(Unavailable) as refused:
        add(store)
    assert not isinstance(refused.value, CommitStateUnknown)


def test_what_only_reads_is_never_unknown(faulty: tuple[SqlStore, Faults]) -> None:
    store, faults = faulty
    faults.fail_commit(Fault.BEFORE)
    assert not is_there(store)
    assert faults.count == 0


def test_a_transaction_that_was_refused_is_never_unknown(faulty: tuple[SqlStore, Faults]) -> None:
    store, faults = faulty
    faults.fail_commit(Fault.BEFORE)
    with pytest.raises(NamespaceNotFound), store.transaction() as tx:
        tx.namespaces.get(PATH)
    assert faults.count == 0


def test_a_session_ended_by_an_administrator_before_its_commit_is_asked_about(
    postgres: PostgresCluster,
) -> None:
    """57P01 may come before or after the commit; the client cannot tell."""
    store = open_store(postgres.url(SHARED))
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"

    def add_and_lose_the_session() -> None:
        with store.transaction() as tx:
            tx.namespaces.add(Namespace(UUID(int=1), PATH))
            postgres.execute(ended)

    with pytest.raises(CommitStateUnknown):
        add_and_lose_the_session()
    assert not is_there(store)
    store.close()


def test_a_commit_that_postgresql_refuses_did_not_happen(postgres: PostgresCluster) -> None:
    """A constraint that is checked at COMMIT; the connection stays open."""
    store = open_store(postgres.url(SHARED))
    postgres.execute(
        """CREATE OR REPLACE FUNCTION too_late() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'too late' USING ERRCODE = 'query_canceled'; END $$;
           CREATE CONSTRAINT TRIGGER too_late AFTER INSERT ON namespaces DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION too_late()""",
        SHARED,
    )
    try:
        with pytest.raises(Unavailable) as refused:
            add(store)
    finally:
        postgres.execute("DROP TRIGGER too_late ON namespaces", SHARED)
    assert not isinstance(refused.value, CommitStateUnknown)
    assert not is_there(store)
    store.close()


def test_sqlite_that_is_busy_at_commit_has_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = FaultySqlite(monkeypatch)
    store = open_store(database_file(tmp_path))
    database.faults.fail_commit(Fault.BUSY)
    with pytest.raises(Unavailable) as refused:
        add(store)
    assert not isinstance(refused.value, CommitStateUnknown)
    assert not is_there(store)
    add(store)
    assert is_there(store)
    store.close()
