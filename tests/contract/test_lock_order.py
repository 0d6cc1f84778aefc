"""Operations on several objects, many at once and in any order: none of them deadlocks on PostgreSQL.

PostgreSQL's own count of deadlocks is what is checked: a retry would hide them from the callers.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.contract.samples import LONG, a_job, a_namespace, a_part, a_version, lease_of, path
from tests.engine import AbsentWorker
from tests.postgres import PostgresCluster
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import CreateMode, DropBehavior, DropMode, NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.catalog.operations.receipts import Mutation
from tidemill.catalog.retries import ATTEMPTS, retry_deadlocks
from tidemill.errors import Deadlock, TidemillError, Unavailable
from tidemill.iceberg.model.entries import Change, NewTable, Purge
from tidemill.jobs.model.columns import ComputedColumn, subject_of
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import Job
from tidemill.lance.batches import BatchOperation, DeclareTable, DeregisterTable
from tidemill.server.bootstrap import build_operations, open_adapters
from tidemill.server.settings import load_settings
from tidemill.store.engine import SqlStore, open_store

DATABASE = "lock_order"
THREADS = 8
SECONDS = 6
DEEP_SECONDS = 60
NAMESPACES = (path("a"), path("a", "x"), path("a", "y"), path("b"))
BRANCH = "side"
NAMES = ("one", "two", "three", "four")
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}


@pytest.fixture
def database(postgres: PostgresCluster) -> Iterator[str]:
    postgres.create_database(DATABASE)
    yield postgres.url(DATABASE)
    postgres.drop_database(DATABASE)


class Storm:
    """Random operations of both protocols and of workers over a few names."""

    def __init__(self, database: str, root: Path, seed: int) -> None:
        self._lake = open_adapters(load_settings(root=root, database_url=database))
        self._operations = build_operations(self._lake, AbsentWorker(), lambda: None)
        self._seed = seed
        self.counts: Counter[str] = Counter()
        self.unavailable: list[str] = []

    def run(self, seconds: float) -> None:
        give_up_at = time.monotonic() + seconds

        def work(number: int) -> None:
            chance = random.Random(self._seed + number)
            while time.monotonic() < give_up_at:
                self._once(chance)

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(work, range(THREADS)))
        self._lake.store.close()

    def _once(self, chance: random.Random) -> None:
        kinds: Sequence[Callable[[random.Random], None]] = (
            self._make_namespaces,
            self._make_namespaces,
            self._replace_namespace,
            self._drop_namespace,
            self._batch,
            self._batch,
            self._rename,
            self._drop,
            self._publish,
            self._publish,
            self._delete_branch,
            self._create_iceberg,
            self._commit_iceberg,
            self._commit_iceberg,
            self._drop_iceberg,
            self._rename_iceberg,
        )
        kind = chance.choice(kinds)
        try:
            kind(chance)
            self.counts[kind.__name__] += 1
        except Unavailable as error:
            self.unavailable.append(f"{kind.__name__}: {error}")
        except TidemillError as error:
            self.counts[type(error).__name__] += 1

    def _make_namespaces(self, chance: random.Random) -> None:
        for namespace in NAMESPACES:
            self._operations.namespaces.create(Mutation(LOCAL_CALLER), namespace, CreateMode.EXIST_OK, {})

    def _replace_namespace(self, chance: random.Random) -> None:
        namespace = chance.choice(NAMESPACES)
        self._operations.namespaces.create(Mutation(LOCAL_CALLER), namespace, CreateMode.OVERWRITE, {})

    def _drop_namespace(self, chance: random.Random) -> None:
        namespace = chance.choice(NAMESPACES)
        self._operations.namespaces.drop(
            Mutation(LOCAL_CALLER), namespace, DropMode.FAIL, DropBehavior.CASCADE
        )

    def _batch(self, chance: random.Random) -> None:
        with self._lake.store.reading() as tx:
            known = [table.ident for table in tx.tables.list_under(NamespacePath())]
        leaving = chance.sample(known, min(len(known), 2))
        operations: list[BatchOperation] = [DeclareTable(_some(chance)) for _ in range(3)]
        operations += [DeregisterTable(each) for each in leaving]
        chance.shuffle(operations)
        # Those that are there already would undo nearly every batch.
        kept = [each for each in operations if isinstance(each, DeregisterTable) or each.ident not in known]
        self._operations.batches.commit(LOCAL_CALLER, list({each.ident: each for each in kept}.values()))

    def _rename(self, chance: random.Random) -> None:
        self._operations.registrations.rename(LOCAL_CALLER, self._known(chance).ident, _some(chance))

    def _drop(self, chance: random.Random) -> None:
        self._operations.tables.drop(LOCAL_CALLER, self._known(chance).ident)

    def _publish(self, chance: random.Random) -> None:
        """What a worker does at the end of a backfill, on main or on a branch."""
        job = self._claimed(self._known(chance))
        column = ComputedColumn(uuid4(), job.table_id, job.job_id, "d", ())
        branch = chance.choice([MAIN_BRANCH, BRANCH])
        with self._lake.store.transaction() as tx:
            tx.derived.add_column(column)
        with self._lake.store.transaction() as tx:
            tx.leases.check(lease_of(job))
            tx.parts.add(a_part(job.job_id, "0"))
            tx.coverage.put(subject_of(column.column_id, branch), Coverage("d"))
            latest = tx.versions.find_latest(job.table_id, branch)
            number = 1 if latest is None else latest.version + 1
            tx.versions.add(a_version(job.table_id, number, branch=branch))

    def _claimed(self, table: Table) -> Job:
        job = a_job(job_id=f"job-{uuid4()}", table_id=table.table_id, table=table.ident)
        with self._lake.store.transaction() as tx:
            tx.jobs.add(job)
        with self._lake.store.transaction() as tx:
            # The oldest of all tables; whoever has left none for this one has one of another.
            return tx.leases.claim("worker", LONG) or job

    def _delete_branch(self, chance: random.Random) -> None:
        table = self._known(chance)
        with self._lake.store.transaction() as tx:
            tx.tables.lock(table)
            tx.versions.remove_branch(table.table_id, BRANCH)

    def _create_iceberg(self, chance: random.Random) -> None:
        new = NewTable(SCHEMA)
        self._operations.iceberg_tables.create(Mutation(LOCAL_CALLER), _some_iceberg(chance), new)

    def _commit_iceberg(self, chance: random.Random) -> None:
        idents = list({_some_iceberg(chance) for _ in range(4)})
        with self._lake.store.reading() as tx:
            there = [each for each in idents if tx.iceberg.find_holder(each) is not None]
        chance.shuffle(there)
        update = {"action": "set-properties", "updates": {"at": str(chance.random())}}
        changes = [Change(each, (), (update,)) for each in there]
        if changes:
            self._operations.iceberg_tables.commit_all(Mutation(LOCAL_CALLER), changes)

    def _drop_iceberg(self, chance: random.Random) -> None:
        self._operations.iceberg_tables.drop(Mutation(LOCAL_CALLER), _some_iceberg(chance), Purge.KEEP_FILES)

    def _rename_iceberg(self, chance: random.Random) -> None:
        old, new = _some_iceberg(chance), _some_iceberg(chance)
        self._operations.iceberg_tables.rename(Mutation(LOCAL_CALLER), old, new)

    def _known(self, chance: random.Random) -> Table:
        with self._lake.store.reading() as tx:
            known = tx.tables.list_under(NamespacePath())
            return chance.choice(known) if known else tx.tables.get(_some(chance))


def _some(chance: random.Random) -> TableIdent:
    return TableIdent(chance.choice(NAMESPACES), chance.choice(NAMES))


def _some_iceberg(chance: random.Random) -> TableIdent:
    return TableIdent(chance.choice(NAMESPACES), f"iceberg_{chance.choice(NAMES)}")


def deadlocks_in(database: str) -> int:
    """Sessions report theirs when they end."""
    time.sleep(0.5)
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(DEEP_SECONDS, marks=pytest.mark.deep)])
def test_operations_on_several_objects_do_not_deadlock(database: str, tmp_path: Path, seconds: int) -> None:
    seed = random.randrange(1 << 32)
    storm = Storm(database, tmp_path, seed)
    storm.run(seconds)
    deadlocks = deadlocks_in(database)
    print(f"\nseed {seed}: {deadlocks} deadlocks, {dict(storm.counts)}")
    assert not storm.unavailable, storm.unavailable[:5]
    assert deadlocks == 0


def crossing(store: SqlStore, first: NamespacePath, second: NamespacePath) -> Callable[[], None]:
    """Locks two namespaces in the wrong order when another does it in the right one."""

    def run() -> None:
        with store.transaction() as tx:
            tx.namespaces.lock(first)
            time.sleep(0.2)
            tx.namespaces.lock(second)

    return run


def test_a_deadlock_is_told_from_an_outage_and_retried(database: str) -> None:
    store = open_store(database)
    try:
        retry_deadlocks(lambda: _add(store, "a"))
        retry_deadlocks(lambda: _add(store, "b"))
        one, other = crossing(store, path("a"), path("b")), crossing(store, path("b"), path("a"))
        with ThreadPoolExecutor(2) as threads:
            raised = [future.exception() for future in [threads.submit(one), threads.submit(other)]]
            assert [type(error) for error in raised if error is not None] == [Deadlock]
            retried = [threads.submit(retry_deadlocks, work) for work in (one, other)]
            assert [future.result() for future in retried] == [None, None]
    finally:
        store.close()


def test_a_deadlock_that_comes_every_time_is_told_in_the_end() -> None:
    attempts: list[None] = []

    def run() -> None:
        attempts.append(None)
        raise Deadlock("again")

    with suppress(Deadlock):
        retry_deadlocks(run)
    assert len(attempts) == ATTEMPTS


def _add(store: SqlStore, name: str) -> None:
    with store.transaction() as tx:
        tx.namespaces.add(a_namespace(name))
