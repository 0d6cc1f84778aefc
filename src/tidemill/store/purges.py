"""The queue of dropped Iceberg tables whose files still have to be removed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.iceberg.model.entries import Entry, EntryKind
from tidemill.store.column_types import DatabaseTime
from tidemill.store.schema import iceberg_purges


class SqlPurgeQueue:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, entry: Entry) -> None:
        row = {
            "entry_id": entry.entry_id,
            "levels": list(entry.ident.levels),
            "place": entry.location,
            "metadata_location": entry.metadata_location,
            "metadata": entry.metadata,
            "requested_at": DatabaseTime(),
        }
        self._connection.execute(insert(iceberg_purges).values(row))

    def list_waiting(self, limit: int) -> Sequence[Entry]:
        """Oldest first."""
        query = (
            select(iceberg_purges)
            .order_by(iceberg_purges.c.requested_at, iceberg_purges.c.entry_id)
            .limit(limit)
        )
        return [
            Entry(
                entry_id=row.entry_id,
                ident=_ident(row.levels),
                kind=EntryKind.TABLE,
                location=row.place,
                metadata_location=row.metadata_location,
                metadata=row.metadata,
            )
            for row in self._connection.execute(query)
        ]

    def remove(self, entry_id: UUID) -> None:
        self._connection.execute(delete(iceberg_purges).where(iceberg_purges.c.entry_id == entry_id))


def _ident(levels: Sequence[str]) -> TableIdent:
    *namespace, name = levels
    return TableIdent(NamespacePath(tuple(namespace)), name)
