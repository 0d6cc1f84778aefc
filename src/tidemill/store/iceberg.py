"""Iceberg tables and views, and the queue of dropped tables whose files still have to be removed.

`tables` holds names and locations, `iceberg_entries` the metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    LargeBinary,
    Row,
    Select,
    Text,
    Uuid,
    and_,
    bindparam,
    delete,
    insert,
    literal_column,
    not_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import NamespaceNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.iceberg.errors import NameTaken, RenameTargetTaken
from tidemill.iceberg.model.entries import Entry, EntryKind, EntryState, Holder
from tidemill.store.access_revision import note_changed_tables
from tidemill.store.column_types import MAX_BIGINT, DatabaseTime
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.driver_errors import is_foreign_key_violation, savepoint
from tidemill.store.namespaces import find_namespace_id, get_namespace_id, level_parameters, namespace_at
from tidemill.store.schema import iceberg_entries, iceberg_purges, tables
from tidemill.store.tables import IS_LANCE, has_overlap, is_location_taken, locations_above

HOLDERS: Final = {holder.value: holder for holder in Holder}
ENTRIES: Final[Select[Any]] = select(
    tables.c.table_id, tables.c.location, iceberg_entries.c.metadata_location, iceberg_entries.c.metadata
).join(iceberg_entries, iceberg_entries.c.table_id == tables.c.table_id)
SWAP: Final = CompiledStatement(
    update(iceberg_entries)
    .where(
        iceberg_entries.c.table_id == bindparam("of_entry", type_=Uuid),
        iceberg_entries.c.metadata_location == bindparam("was_at", type_=Text),
    )
    .values(
        metadata_location=bindparam("is_at", type_=Text), metadata=bindparam("document", type_=LargeBinary)
    )
)


class SqlIcebergRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, entry: Entry) -> None:
        name_row = {
            "table_id": entry.entry_id,
            "namespace_id": get_namespace_id(self._connection, entry.ident.namespace),
            "name": entry.ident.name,
            "location": entry.location,
            "kind": entry.kind.value,
            "properties": {},
        }
        state_row = {
            "table_id": entry.entry_id,
            "metadata_location": entry.metadata_location,
            "metadata": entry.metadata,
        }
        try:
            with savepoint(self._connection):
                self._connection.execute(insert(tables).values(name_row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise NamespaceNotFound(entry.ident.namespace) from error
            holder = self._blocking_holder(entry.ident, entry.kind)
            raise NameTaken(entry.ident, entry.kind, holder) from error
        self._connection.execute(insert(iceberg_entries).values(state_row))

    def find(self, ident: TableIdent, kind: EntryKind) -> Entry | None:
        row = _find_statement(_depth(ident)).first(self._connection, _values(ident, kind))
        return None if row is None else _entry(row, ident, kind)

    def lock(self, ident: TableIdent, kind: EntryKind) -> Entry | None:
        # Selects by namespace id: a join would lock the namespaces as well.
        query = ENTRIES.where(
            tables.c.namespace_id == find_namespace_id(self._connection, ident.namespace),
            tables.c.name == ident.name,
            tables.c.kind == kind.value,
        ).with_for_update()
        row = self._connection.execute(query).first()
        return None if row is None else _entry(row, ident, kind)

    def lock_state(self, entry_id: UUID) -> EntryState | None:
        query = select(iceberg_entries.c.metadata_location, iceberg_entries.c.metadata)
        matching = query.where(iceberg_entries.c.table_id == entry_id).with_for_update()
        row = self._connection.execute(matching).first()
        return None if row is None else EntryState(row.metadata_location, row.metadata)

    def lock_all(self, entry_ids: Collection[UUID]) -> None:
        if self._connection.dialect.name != "sqlite":
            query = select(tables.c.table_id).where(tables.c.table_id.in_(entry_ids))
            self._connection.execute(query.order_by(tables.c.table_id).with_for_update())

    def exists(self, ident: TableIdent, kind: EntryKind) -> bool:
        row = _exists_statement(_depth(ident)).first(self._connection, _values(ident, kind))
        return row is not None

    def find_holder(self, ident: TableIdent) -> Holder | None:
        values = {**level_parameters(ident.namespace), "entry_name": ident.name}
        row = _holder_statement(_depth(ident)).first(self._connection, values)
        return None if row is None else HOLDERS[row.kind]

    def list_names(self, path: NamespacePath, kind: EntryKind, page: Page) -> Sequence[str]:
        values = {
            **level_parameters(path),
            "entry_kind": kind.value,
            "after": page.after or "",
            "count": MAX_BIGINT if page.limit is None else page.limit,
        }
        rows = _names_statement(len(path.levels)).all(self._connection, values)
        if not rows:
            get_namespace_id(self._connection, path)
        return [row.name for row in rows]

    def swap(self, before: Entry, after: Entry) -> bool:
        is_relocated = after.location != before.location
        is_entry = tables.c.table_id == before.entry_id
        if is_relocated:
            # Locks the table row before its metadata, in the same order as a removal does.
            self._connection.execute(
                select(tables.c.table_id).where(is_entry).with_for_update(key_share=True)
            )
        values = {
            "of_entry": before.entry_id,
            "was_at": before.metadata_location,
            "is_at": after.metadata_location,
            "document": after.metadata,
        }
        is_swapped = SWAP.execute(self._connection, values) > 0
        if is_relocated and is_swapped:
            self._connection.execute(update(tables).where(is_entry).values(location=after.location))
        return is_swapped

    def rename(self, entry: Entry, ident: TableIdent) -> bool:
        target = get_namespace_id(self._connection, ident.namespace)
        # Only under the name it was found by: another rename may have come first.
        renamed = (
            update(tables)
            .where(
                tables.c.table_id == entry.entry_id,
                tables.c.namespace_id == find_namespace_id(self._connection, entry.ident.namespace),
                tables.c.name == entry.ident.name,
            )
            .values(namespace_id=target, name=ident.name)
        )
        try:
            with savepoint(self._connection):
                is_renamed = self._connection.execute(renamed).rowcount > 0
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise NamespaceNotFound(ident.namespace) from error
            holder = self._blocking_holder(ident, entry.kind)
            raise RenameTargetTaken(entry.ident, ident, holder) from error
        note_changed_tables(self._connection, [entry.entry_id])
        return is_renamed

    def remove(self, entry_id: UUID) -> None:
        note_changed_tables(self._connection, [entry_id])
        self._connection.execute(delete(tables).where(tables.c.table_id == entry_id, ~IS_LANCE))

    def is_location_taken(self, entry: Entry) -> bool:
        return is_location_taken(self._connection, entry.location, self._excludes(entry))

    def is_overlapping(self, entry: Entry) -> bool:
        return has_overlap(self._connection, entry.location, self._excludes(entry))

    def _excludes(self, entry: Entry) -> ColumnElement[bool]:
        """Matches all others, except tables in whose location the view may be."""
        is_other = tables.c.table_id != entry.entry_id
        if entry.kind is not EntryKind.VIEW:
            return is_other
        may_contain = and_(
            tables.c.kind == EntryKind.TABLE.value,
            tables.c.namespace_id == find_namespace_id(self._connection, entry.ident.namespace),
            tables.c.location.in_([entry.location, *locations_above(entry.location)]),
        )
        return and_(is_other, not_(may_contain))

    def is_in_another(self, location: str, entry_id: UUID, dropped_from: str | None = None) -> bool:
        around = [location, *locations_above(location)]
        query = select(tables.c.table_id, tables.c.kind, tables.c.location)
        found = self._connection.execute(query.where(tables.c.location.in_(around))).all()
        others = [_Holding(row.kind, row.location) for row in found if row.table_id != entry_id]
        own = next((_Holding(row.kind, row.location) for row in found if row.table_id == entry_id), None)
        if own is None and dropped_from in around:
            own = _Holding(EntryKind.TABLE.value, dropped_from)
        return any(own is None or not _is_view_in_table(own, other) for other in others)

    def _blocking_holder(self, ident: TableIdent, kind: EntryKind) -> Holder:
        # The holder may be gone by now; then assume one of the same kind.
        return self.find_holder(ident) or Holder(kind.value)


class _Holding(NamedTuple):
    """What has a location."""

    kind: str
    location: str


def _is_view_in_table(left: _Holding, right: _Holding) -> bool:
    """Whether one is a view in the location of the other, a table; both locations contain the same path."""
    outer, inner = sorted((left, right), key=lambda holding: (len(holding.location), holding.kind))
    return (outer.kind, inner.kind) == (EntryKind.TABLE.value, EntryKind.VIEW.value)


@cache
def _find_statement(depth: int) -> CompiledStatement:
    return CompiledStatement(_with_name(ENTRIES, depth).where(tables.c.kind == bindparam("entry_kind")))


@cache
def _exists_statement(depth: int) -> CompiledStatement:
    probe: Select[Any] = select(literal_column("1").label("found")).select_from(tables)
    return CompiledStatement(_with_name(probe, depth).where(tables.c.kind == bindparam("entry_kind")))


@cache
def _holder_statement(depth: int) -> CompiledStatement:
    return CompiledStatement(_with_name(select(tables.c.kind), depth))


@cache
def _names_statement(depth: int) -> CompiledStatement:
    """Lists names after a given one; all names sort after the empty string, since none is empty."""
    return CompiledStatement(
        _in_namespace(select(tables.c.name), depth)
        .where(
            tables.c.kind == bindparam("entry_kind"),
            tables.c.name > bindparam("after", type_=Text),
        )
        .order_by(tables.c.name)
        .limit(bindparam("count", type_=BigInteger))
    )


def _with_name(query: Select[Any], depth: int) -> Select[Any]:
    return _in_namespace(query, depth).where(tables.c.name == bindparam("entry_name"))


def _in_namespace(query: Select[Any], depth: int) -> Select[Any]:
    namespace = namespace_at(depth)
    return query.join(namespace, tables.c.namespace_id == namespace.c.namespace_id)


def _depth(ident: TableIdent) -> int:
    return len(ident.namespace.levels)


def _values(ident: TableIdent, kind: EntryKind) -> dict[str, str]:
    return {**level_parameters(ident.namespace), "entry_name": ident.name, "entry_kind": kind.value}


def _entry(row: Row[Any], ident: TableIdent, kind: EntryKind) -> Entry:
    return Entry(
        entry_id=row.table_id,
        ident=ident,
        kind=kind,
        location=row.location,
        metadata_location=row.metadata_location,
        metadata=row.metadata,
    )


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
