"""One transaction over all repositories, and the order in which transactions take locks."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select

from tidemill.store.column_types import DatabaseTime, from_milliseconds
from tidemill.store.compiled_statements import Prepared
from tidemill.store.coverage import SqlCoverageRepository
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
from tidemill.store.environments import SqlEnvironmentRepository
from tidemill.store.events import SqlJobEvents
from tidemill.store.functions import SqlFunctionRepository
from tidemill.store.iceberg import SqlIcebergRepository
from tidemill.store.jobs import SqlJobRepository
from tidemill.store.leases import SqlJobLeases
from tidemill.store.ledger import SqlPartLedger
from tidemill.store.namespaces import SqlNamespaceRepository
from tidemill.store.purges import SqlPurgeQueue
from tidemill.store.receipts import SqlReceiptRepository
from tidemill.store.row_errors import SqlRowErrorLedger
from tidemill.store.secrets import SqlSecretRepository
from tidemill.store.stored_queries import SqlStoredQueryRepository
from tidemill.store.tables import SqlTableRepository
from tidemill.store.transaction_properties import SqlTransactionNotes
from tidemill.store.versions import SqlVersionRepository
from tidemill.store.workers import SqlWorkerRegistry

NOW: Final = Prepared(select(DatabaseTime().label("now")))


class SqlTransaction:
    """What is done through it becomes visible together, or not at all.

    A transaction that holds several locks takes them in this order, or two of them could wait for each other:

    1. the receipt of the request; nobody else has its key
    2. namespaces that gain or lose names, by their levels: first the root, also the lock for locations
    3. rows of tables FOR NO KEY UPDATE, by id: Lance's, then Iceberg's
    4. jobs, by id
    5. rows of tables that are removed FOR UPDATE, by id
    6. what belongs to a table: Iceberg's metadata, computed columns and views, coverage and errors, and
       versions last, because a job publishes its coverage before its version

    Operations on several objects call `namespaces.lock_all` or `lock_tree`, then `lock_all` of tables or of
    Iceberg's entries. Two things to mind on PostgreSQL; SQLite has one writer at a time and needs no order:

    - An INSERT locks the rows its foreign keys name FOR KEY SHARE: a version its table, a table its
      namespace. This goes with FOR NO KEY UPDATE, but not with FOR UPDATE. So a job can publish, which begins
      with the lock on its row, while others hold 3. A table that gets versions in the same transaction is
      left out of 5: somebody who adds the same version would wait for the table and be waited for.
    - A name that somebody is adding or removing makes others wait for it, so whoever adds several names locks
      their namespaces.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.namespaces = SqlNamespaceRepository(connection)
        self.tables = SqlTableRepository(connection)
        self.versions = SqlVersionRepository(connection)
        self.functions = SqlFunctionRepository(connection)
        self.transaction_properties = SqlTransactionNotes(connection)
        self.secrets = SqlSecretRepository(connection)
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

    def deferring(self) -> DeferringTransaction:
        return DeferringTransaction(self._connection)

    def apply(self, deferred: bytes) -> None:
        apply_deferred(self._connection, deferred)

    def now(self) -> datetime:
        if self._connection.dialect.name == "sqlite":
            # Its clock is this machine's.
            return from_milliseconds(time.time_ns() // 1_000_000)
        row = NOW.first(self._connection, {})
        assert row is not None
        return from_milliseconds(row.now)


class DeferringTransaction(SqlTransaction):
    """The same transaction, with the writes that belong to a version's content taken down."""

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
