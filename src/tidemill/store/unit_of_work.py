"""The unit of work: one database transaction with every repository of the catalog and the jobs.

Each request or job step that touches the database opens one of these through `SqlStore.transaction()` or
`SqlStore.reading()`. Everything written through its repositories becomes visible together or not at all,
which is what lets a job publish a version, its lease check, its ledger entry and its coverage as one step.
The audit row of what is being done is added right before the commit (see `tidemill.store.audit`).

On PostgreSQL, transactions wait for each other's row locks, and two that lock the same rows in a different
order deadlock. `SqlTransaction` therefore documents one lock order that every repository and operation
follows.

A version commit writes through a `DeferringTransaction` instead: see `tidemill.store.deferred`.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select, text

from tidemill.store.access import SqlClientRepository, SqlGrantRepository, SqlRoleRepository
from tidemill.store.audit import SqlAuditLog
from tidemill.store.bookkeeping import SqlCoverageRepository, SqlPartLedger, SqlRowErrorLedger
from tidemill.store.column_types import DatabaseTime, from_milliseconds
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.deferred import (
    DeferredLog,
    DeferringCoverage,
    DeferringDerived,
    DeferringErrors,
    DeferringParts,
    DeferringTables,
    apply_deferred,
)
from tidemill.store.derived import SqlDerivedRepository
from tidemill.store.functions import SqlEnvironmentRepository, SqlFunctionRepository
from tidemill.store.iceberg import SqlIcebergRepository, SqlPurgeQueue
from tidemill.store.jobs import SqlJobEvents, SqlJobLeases, SqlJobRepository, SqlWorkerRegistry
from tidemill.store.names import SqlNeighborNames
from tidemill.store.namespaces import SqlNamespaceRepository
from tidemill.store.receipts import SqlReceiptRepository
from tidemill.store.schema import metadata
from tidemill.store.secrets import SqlSecretRepository
from tidemill.store.tables import SqlStoredQueryRepository, SqlTableRepository
from tidemill.store.versions import SqlTransactionProperties, SqlVersionRepository

NOW: Final = CompiledStatement(select(DatabaseTime().label("now")))


class SqlTransaction:
    """All repositories on one connection; their writes become visible together, or not at all.

    A transaction that needs several locks takes them in this order, to avoid deadlocks:

    1. the receipt of the request; no other request has its key
    2. namespaces that gain or lose names, by levels: the root first, which is also the lock for locations
    3. table rows FOR NO KEY UPDATE, by id: Lance tables, then Iceberg entries
    4. jobs, by id
    5. rows of removed tables FOR UPDATE, by id
    6. whatever belongs to a table: Iceberg metadata, computed columns and views, coverage and errors, and
       versions last, because a job publishes its coverage before its version
    7. the access revision: a transaction that grants something locks the object first

    Operations on several objects call `namespaces.lock_all` or `lock_tree`, then `lock_all` of the tables or
    of the Iceberg entries. SQLite has one writer at a time and needs no order. On PostgreSQL, note that:

    - An INSERT locks the rows its foreign keys reference FOR KEY SHARE: a version locks its table, a table
      its namespace. FOR KEY SHARE is compatible with FOR NO KEY UPDATE but not with FOR UPDATE. A job can
      therefore publish, which starts by locking its own row, while others hold locks of step 3. A table that
      gets versions in the same transaction is left out of step 5; otherwise a transaction adding the same
      version would wait for the table while this one waits for that version.
    - A name being added or removed blocks other transactions that add the same name, so a transaction that
      adds several names locks their namespaces first.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.namespaces = SqlNamespaceRepository(connection)
        self.tables = SqlTableRepository(connection)
        self.versions = SqlVersionRepository(connection)
        self.functions = SqlFunctionRepository(connection)
        self.transaction_properties = SqlTransactionProperties(connection)
        self.secrets = SqlSecretRepository(connection)
        self.clients = SqlClientRepository(connection)
        self.roles = SqlRoleRepository(connection)
        self.grants = SqlGrantRepository(connection)
        self.stored_queries = SqlStoredQueryRepository(connection)
        self.receipts = SqlReceiptRepository(connection)
        self.iceberg = SqlIcebergRepository(connection)
        self.purges = SqlPurgeQueue(connection)
        self.jobs = SqlJobRepository(connection)
        self.leases = SqlJobLeases(connection)
        self.events = SqlJobEvents(connection)
        self.parts = SqlPartLedger(connection)
        self.derived = SqlDerivedRepository(connection)
        self.coverage = SqlCoverageRepository(connection)
        self.errors = SqlRowErrorLedger(connection)
        self.environments = SqlEnvironmentRepository(connection)
        self.workers = SqlWorkerRegistry(connection)
        self.names = SqlNeighborNames(connection)
        self.audit = SqlAuditLog(connection)

    def touch_tables(self) -> None:
        """Reads a row of every table. In SQLite an index would do, and the table would stay unread."""
        unindexed = " NOT INDEXED" if self._connection.dialect.name == "sqlite" else ""
        for name in metadata.tables:
            self._connection.exec_driver_sql(f"SELECT 1 FROM {name}{unindexed} LIMIT 1").all()

    def is_sound(self) -> bool:
        """Whether SQLite finds no damage in its whole file."""
        return self._connection.exec_driver_sql("PRAGMA quick_check(1)").scalar() == "ok"

    def is_read_only(self) -> bool:
        """Whether PostgreSQL refuses writes; in SQLite, beginning a transaction to write has shown it."""
        is_sqlite = self._connection.dialect.name == "sqlite"
        return not is_sqlite and self._connection.scalar(text("SHOW transaction_read_only")) == "on"

    def deferring(self) -> DeferringTransaction:
        return DeferringTransaction(self._connection)

    def apply(self, deferred: bytes) -> None:
        apply_deferred(self._connection, deferred)

    def now(self) -> datetime:
        if self._connection.dialect.name == "sqlite":
            # SQLite uses this machine's clock.
            return from_milliseconds(time.time_ns() // 1_000_000)
        row = NOW.first(self._connection, {})
        assert row is not None
        return from_milliseconds(row.now)


class DeferringTransaction(SqlTransaction):
    """The same transaction, but writes that describe a version's content are recorded instead of made."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._log = DeferredLog()
        self.tables = DeferringTables(connection, self._log)
        self.parts = DeferringParts(connection, self._log)
        self.coverage = DeferringCoverage(connection, self._log)
        self.errors = DeferringErrors(connection, self._log)
        self.derived = DeferringDerived(connection, self._log)

    @property
    def transaction(self) -> DeferringTransaction:
        return self

    def packed(self) -> bytes | None:
        return self._log.packed()
