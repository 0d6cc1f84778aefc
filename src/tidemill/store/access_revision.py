"""One number that rises with everything authorization depends on, in the transaction of the change.

Processes keep clients, roles and grants in memory and read this number to learn whether they are current. It
is the last row that a transaction locks, because all changes of grants wait for each other here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, select, update

from tidemill.store.schema import access_revision, grants, namespaces

RAISE: Final = update(access_revision).values(revision=access_revision.c.revision + 1)


def read_revision(connection: Connection) -> int:
    return int(connection.execute(select(access_revision.c.revision)).scalar_one())


def raise_revision(connection: Connection) -> None:
    connection.execute(RAISE)


def note_changed_tables(connection: Connection, table_ids: Collection[UUID]) -> None:
    """Call this after tables were renamed, or locked for their removal."""
    is_granted = select(grants.c.grant_id).where(grants.c.table_id.in_(table_ids)).exists()
    connection.execute(RAISE.where(is_granted))


def note_removed_namespace(connection: Connection, namespace_id: UUID) -> None:
    """Call this before a namespace is removed. Locks it."""
    query = select(namespaces.c.namespace_id).where(namespaces.c.namespace_id == namespace_id)
    connection.execute(query.with_for_update())
    is_granted = select(grants.c.grant_id).where(grants.c.namespace_id == namespace_id).exists()
    connection.execute(RAISE.where(is_granted))
