"""Receipts of idempotent requests as rows; they expire by the database clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypeAlias

from sqlalchemy import BigInteger, Connection, Text, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from tidemill.catalog.errors import ReceiptExists
from tidemill.catalog.model.callers import Receipt
from tidemill.store.column_types import DatabaseTime, in_milliseconds
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.schema import receipts

MAX_REMOVED: Final = 500

Upsert: TypeAlias = postgresql.Insert | sqlite.Insert

HAS_EXPIRED: Final = receipts.c.expires_at <= DatabaseTime()
FIND: Final = CompiledStatement(
    select(receipts).where(receipts.c.key == bindparam("of_request", type_=Text), ~HAS_EXPIRED)
)


def _add(upsert: Upsert) -> CompiledStatement:
    """Inserts a receipt or replaces an expired one; waits for a transaction inserting the same key."""
    parameters = {column.name: bindparam(column.name, type_=column.type) for column in receipts.c}
    lifetime = bindparam("lives", type_=BigInteger)
    inserted = upsert.values({**parameters, "expires_at": DatabaseTime() + lifetime})
    replaced = {column.name: inserted.excluded[column.name] for column in receipts.c}
    return CompiledStatement(
        inserted.on_conflict_do_update(index_elements=["key"], set_=replaced, where=HAS_EXPIRED)
    )


ADD: Final = {"postgresql": _add(postgresql.insert(receipts)), "sqlite": _add(sqlite.insert(receipts))}


class SqlReceiptRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, key: str) -> Receipt | None:
        row = FIND.first(self._connection, {"of_request": key})
        if row is None:
            return None
        return Receipt(row.key, row.principal, row.operation, row.resource, row.body_digest, row.outcome)

    def add(self, receipt: Receipt, lives: timedelta) -> None:
        values = {
            "key": receipt.key,
            "principal": receipt.principal,
            "operation": receipt.operation,
            "resource": receipt.resource,
            "body_digest": receipt.body_digest,
            "outcome": receipt.outcome,
            "lives": in_milliseconds(lives),
        }
        if not ADD[self._connection.dialect.name].execute(self._connection, values):
            raise ReceiptExists(receipt.key)

    def remove_expired(self) -> int:
        """Removes a limited number, to keep the transaction short; skips receipts locked by others."""
        query = select(receipts.c.key).where(HAS_EXPIRED).order_by(receipts.c.expires_at).limit(MAX_REMOVED)
        keys = self._connection.scalars(query.with_for_update(skip_locked=True)).all()
        if keys:
            self._connection.execute(delete(receipts).where(receipts.c.key.in_(keys)))
        return len(keys)
