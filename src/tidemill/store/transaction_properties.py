"""Properties that callers set on transactions, as rows."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification
from tidemill.store.column_types import DatabaseTime
from tidemill.store.schema import transactions


class SqlTransactionProperties:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, key: str) -> Mapping[str, str]:
        return self._find(key) or {}

    def put(self, key: str, before: Mapping[str, str], properties: Mapping[str, str]) -> None:
        query = select(transactions.c.properties).where(transactions.c.transaction_id == key)
        stored = self._connection.scalar(query.with_for_update())
        if (stored or {}) != dict(before):
            raise _conflict(key)
        values = {"properties": dict(properties), "updated_at": DatabaseTime()}
        if stored is not None:
            self._connection.execute(
                update(transactions).where(transactions.c.transaction_id == key).values(values)
            )
            return
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(transactions).values({"transaction_id": key, **values}))
        except IntegrityError as error:
            raise _conflict(key) from error

    def _find(self, key: str) -> Mapping[str, str] | None:
        query = select(transactions.c.properties).where(transactions.c.transaction_id == key)
        return self._connection.scalar(query)


def _conflict(key: str) -> ConcurrentModification:
    return ConcurrentModification(f"The properties of transaction {key} were changed concurrently; try again")
