"""Lance tables, views and stored queries as rows, and checks for overlapping locations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    false,
    insert,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import NamespaceNotFound, StoredQueryNotFound, TableAlreadyExists, TableNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, table_ident
from tidemill.catalog.model.tables import MAIN_BRANCH, Declared, Page, StoredQuery, Table, TableKind
from tidemill.iceberg.model.entries import EntryKind
from tidemill.jobs.model.jobs import ACTIVE_STATES, JobState
from tidemill.store.access_revision import note_changed_tables
from tidemill.store.bookkeeping import branches_of, column_subjects, forget_subjects, view_subjects
from tidemill.store.column_types import MAX_BIGINT, DatabaseTime
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.driver_errors import is_foreign_key_violation
from tidemill.store.namespaces import (
    find_namespace_id,
    get_namespace_id,
    level_parameters,
    namespace_at,
    paths_under,
)
from tidemill.store.schema import (
    ROOT_ID,
    computed_columns,
    jobs,
    materialized_views,
    namespaces,
    stored_queries,
    table_versions,
    tables,
    view_sources,
)

# Not an IN list: SQLite builds a temporary table for it, and compiled statements do not accept one.
IS_LANCE: Final = and_(*[tables.c.kind != literal_column(f"'{kind.value}'", Text) for kind in EntryKind])


class SqlTableRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Tables whose rows and jobs this transaction has already locked for removal.
        self._locked_for_removal: set[UUID] = set()

    def add(self, table: Table) -> None:
        ident = table.ident
        row = {
            "table_id": table.table_id,
            "namespace_id": get_namespace_id(self._connection, ident.namespace),
            "name": ident.name,
            "location": table.location,
            "kind": table.kind.value,
            "properties": dict(table.properties),
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(tables).values(row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise NamespaceNotFound(ident.namespace) from error
            raise TableAlreadyExists(ident) from error

    def get(self, ident: TableIdent) -> Table:
        table = self.find(ident)
        if table is None:
            get_namespace_id(self._connection, ident.namespace)
            raise TableNotFound(ident)
        return table

    def find(self, ident: TableIdent) -> Table | None:
        values = {**level_parameters(ident.namespace), "table_name": ident.name}
        row = _find_statement(len(ident.namespace.levels)).first(self._connection, values)
        return None if row is None else _table(row, ident.namespace)

    def find_by_id(self, table_id: UUID) -> Table | None:
        rows = _find_by_id_statement().all(self._connection, {"id": table_id})
        if not rows:
            return None
        levels = tuple(row.level for row in rows if row.parent_id is not None)
        return _table(rows[0], NamespacePath(levels))

    def list_in(
        self, path: NamespacePath, page: Page, declared: Declared = Declared.INCLUDE
    ) -> Sequence[Table]:
        query = (
            _list_query(declared)
            .where(tables.c.namespace_id == get_namespace_id(self._connection, path))
            .order_by(tables.c.name)
            .limit(page.limit)
        )
        if page.after is not None:
            query = query.where(tables.c.name > page.after)
        return [_table(row, path) for row in self._connection.execute(query)]

    def list_names(self, path: NamespacePath, page: Page, declared: Declared) -> Sequence[str]:
        values = {
            **level_parameters(path),
            "after": page.after or "",
            "count": MAX_BIGINT if page.limit is None else page.limit,
        }
        rows = _names_statement(len(path.levels), declared).all(self._connection, values)
        if not rows:
            get_namespace_id(self._connection, path)
        return [row.name for row in rows]

    def list_under(self, path: NamespacePath, declared: Declared = Declared.INCLUDE) -> Sequence[Table]:
        paths = paths_under(self._connection, path)
        query = _list_query(declared)
        if not path.is_root:
            query = query.where(tables.c.namespace_id.in_(paths))
        rows = self._connection.execute(query)
        listed = [_table(row, paths[row.namespace_id]) for row in rows if row.namespace_id in paths]
        return sorted(listed, key=lambda table: table.ident.levels)

    def list_readers(self, table_ids: Collection[UUID]) -> Sequence[Table]:
        readers = select(view_sources.c.view_id).where(view_sources.c.source_id.in_(table_ids)).distinct()
        view_ids = {*self._connection.scalars(readers), *self._queries_over(table_ids)}.difference(table_ids)
        found = [self.find_by_id(view_id) for view_id in view_ids]
        return sorted((view for view in found if view is not None), key=lambda view: view.ident.levels)

    def _queries_over(self, table_ids: Collection[UUID]) -> list[UUID]:
        """Stored queries name their source. There are few of them, so all are read."""
        sources = [table.ident.levels for table in map(self.find_by_id, table_ids) if table is not None]
        rows = self._connection.execute(select(stored_queries.c.table_id, stored_queries.c.query)).all()
        return [row.table_id for row in rows if tuple(row.query["source"]) in sources]

    def rename(self, table_id: UUID, ident: TableIdent) -> None:
        namespace_id = get_namespace_id(self._connection, ident.namespace)
        self._lock_tables(tables.c.table_id == table_id)
        self._lock_jobs(jobs.c.table_id == table_id)
        self._connection.execute(
            update(jobs).where(jobs.c.table_id == table_id).values(table_levels=list(ident.levels))
        )
        change = update(tables).where(tables.c.table_id == table_id)
        try:
            with self._connection.begin_nested():
                changed = self._connection.execute(change.values(namespace_id=namespace_id, name=ident.name))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise NamespaceNotFound(ident.namespace) from error
            raise TableAlreadyExists(ident) from error
        if not changed.rowcount:
            raise TableNotFound(ident)
        note_changed_tables(self._connection, [table_id])

    def set_properties(self, table_id: UUID, properties: Mapping[str, str]) -> None:
        self._connection.execute(
            update(tables).where(tables.c.table_id == table_id).values(properties=dict(properties))
        )

    def has_overlapping(self, location: str) -> bool:
        return is_location_taken(self._connection, location, true())

    def lock(self, table: Table) -> None:
        # Lets others add versions: a publishing job holds coverage locks that this transaction may need.
        query = select(tables.c.table_id).where(tables.c.table_id == table.table_id)
        if self._connection.execute(query.with_for_update(key_share=True)).first() is None:
            raise TableNotFound(table.ident)

    def lock_all(self, changed: Collection[TableIdent], removed: Collection[TableIdent] = ()) -> None:
        if self._connection.dialect.name == "sqlite":
            return
        self._lock_tables(self._is_any_of({*changed, *removed}))
        if removed:
            table_ids = self._connection.scalars(
                select(tables.c.table_id).where(self._is_any_of(removed))
            ).all()
            self._lock_jobs(jobs.c.table_id.in_(table_ids), jobs.c.state.in_(ACTIVE_STATES))
            # Except tables that also get versions: see step 5 of the lock order in SqlTransaction.
            only_removed = self._is_any_of(set(removed).difference(changed))
            self._locked_for_removal.update(self._lock_tables(only_removed, for_removal=True))

    def remove(self, table_id: UUID) -> None:
        if table_id not in self._locked_for_removal:
            is_table = tables.c.table_id == table_id
            self._lock_tables(is_table)
            # A publishing job locks its own row first and then adds a version.
            self._lock_jobs(jobs.c.table_id == table_id, jobs.c.state.in_(ACTIVE_STATES))
            self._lock_tables(is_table, for_removal=True)
        self._cancel_jobs(table_id)
        forget_subjects(self._connection, view_subjects(self._connection, table_id))
        for branch in branches_of(self._connection, table_id):
            forget_subjects(self._connection, column_subjects(self._connection, table_id, branch))
        self._connection.execute(delete(computed_columns).where(computed_columns.c.table_id == table_id))
        self._connection.execute(delete(materialized_views).where(materialized_views.c.view_id == table_id))
        self._connection.execute(delete(table_versions).where(table_versions.c.table_id == table_id))
        note_changed_tables(self._connection, [table_id])
        self._connection.execute(delete(tables).where(tables.c.table_id == table_id))

    def remove_iceberg_names(self, path: NamespacePath) -> None:
        is_below = tables.c.namespace_id.in_(paths_under(self._connection, path))
        query = select(tables.c.table_id).where(is_below, ~IS_LANCE).order_by(tables.c.table_id)
        table_ids = self._connection.scalars(query.with_for_update()).all()
        note_changed_tables(self._connection, table_ids)
        self._connection.execute(delete(tables).where(tables.c.table_id.in_(table_ids)))

    def _is_any_of(self, idents: Collection[TableIdent]) -> ColumnElement[bool]:
        """Matches the Lance tables with these names."""
        names: dict[NamespacePath, list[str]] = {}
        for ident in idents:
            names.setdefault(ident.namespace, []).append(ident.name)
        by_namespace = [
            and_(
                tables.c.namespace_id == find_namespace_id(self._connection, namespace),
                tables.c.name.in_(names_there),
            )
            for namespace, names_there in names.items()
        ]
        return and_(IS_LANCE, or_(false(), *by_namespace))

    def _lock_tables(self, condition: ColumnElement[bool], *, for_removal: bool = False) -> Sequence[UUID]:
        """Locks in the order of ids. Unless the lock is for removal, others may still add versions."""
        query = select(tables.c.table_id).where(condition).order_by(tables.c.table_id)
        return self._connection.scalars(query.with_for_update(key_share=not for_removal)).all()

    def _lock_jobs(self, *conditions: ColumnElement[bool]) -> None:
        """Locks in the order of ids; an UPDATE would lock in any order."""
        query = select(jobs.c.job_id).where(*conditions).order_by(jobs.c.job_id).with_for_update()
        self._connection.execute(query)

    def _cancel_jobs(self, table_id: UUID) -> None:
        """Skips a running job added after the others were locked: it will find its table gone."""
        active = (
            select(jobs.c.job_id)
            .where(jobs.c.table_id == table_id, jobs.c.state.in_(ACTIVE_STATES))
            .with_for_update(skip_locked=True)
        )
        self._connection.execute(
            update(jobs)
            .where(jobs.c.job_id.in_(self._connection.scalars(active).all()))
            .values(
                state=JobState.CANCELLED,
                lease_until_at=None,
                finished_at=DatabaseTime(),
                updated_at=DatabaseTime(),
            )
        )


def is_location_taken(connection: Connection, location: str, condition: ColumnElement[bool]) -> bool:
    """Whether the location of a matching table equals, contains or lies inside this one.

    Waits for other transactions that claim a location.
    """
    # The root's row serves as the lock for locations; transactions on its children do not need it.
    connection.execute(
        select(namespaces.c.namespace_id)
        .where(namespaces.c.namespace_id == ROOT_ID)
        .with_for_update(key_share=True)
    )
    return has_overlap(connection, location, condition)


def has_overlap(connection: Connection, location: str, condition: ColumnElement[bool]) -> bool:
    """Like is_location_taken, but takes no lock."""
    # In byte order "0" follows "/", so this range is everything that starts with the location and "/".
    is_below = and_(tables.c.location >= f"{location}/", tables.c.location < f"{location}0")
    overlaps = or_(tables.c.location.in_([location, *locations_above(location)]), is_below)
    return (
        connection.execute(select(tables.c.table_id).where(overlaps, condition).limit(1)).first() is not None
    )


def locations_above(location: str) -> list[str]:
    return [location[:end] for end, character in enumerate(location) if character == "/"]


def _list_query(declared: Declared) -> Select[Any]:
    if declared is Declared.INCLUDE:
        return select(tables).where(IS_LANCE)
    has_data = exists().where(
        table_versions.c.table_id == tables.c.table_id, table_versions.c.branch == MAIN_BRANCH
    )
    return select(tables).where(IS_LANCE, has_data)


@cache
def _find_statement(depth: int) -> CompiledStatement:
    namespace = namespace_at(depth)
    return CompiledStatement(
        select(tables)
        .join(namespace, tables.c.namespace_id == namespace.c.namespace_id)
        .where(tables.c.name == bindparam("table_name"), IS_LANCE)
    )


@cache
def _find_by_id_statement() -> CompiledStatement:
    """A table with a row for each namespace above it, the outermost first."""
    is_wanted = tables.c.table_id == bindparam("id", type_=tables.c.table_id.type)
    ancestors = (
        select(
            namespaces.c.namespace_id,
            namespaces.c.parent_id,
            namespaces.c.name,
            literal_column("0", BigInteger).label("distance"),
        )
        .join(tables, tables.c.namespace_id == namespaces.c.namespace_id)
        .where(is_wanted)
        .cte("above", recursive=True)
    )
    next_level = select(
        namespaces.c.namespace_id,
        namespaces.c.parent_id,
        namespaces.c.name,
        ancestors.c.distance + literal_column("1", BigInteger),
    ).join(ancestors, namespaces.c.namespace_id == ancestors.c.parent_id)
    ancestors = ancestors.union_all(next_level)
    return CompiledStatement(
        select(tables, ancestors.c.parent_id, ancestors.c.name.label("level"))
        .join(ancestors, true())
        .where(is_wanted, IS_LANCE)
        .order_by(ancestors.c.distance.desc())
    )


@cache
def _names_statement(depth: int, declared: Declared) -> CompiledStatement:
    """Lists names after a given one; all names sort after the empty string, since none is empty."""
    namespace = namespace_at(depth)
    return CompiledStatement(
        _list_query(declared)
        .with_only_columns(tables.c.name)
        .join(namespace, tables.c.namespace_id == namespace.c.namespace_id)
        .where(tables.c.name > bindparam("after", type_=Text))
        .order_by(tables.c.name)
        .limit(bindparam("count", type_=BigInteger))
    )


def _table(row: Row[Any], namespace: NamespacePath) -> Table:
    return Table(
        table_id=row.table_id,
        ident=TableIdent(namespace, row.name),
        location=row.location,
        kind=TableKind(row.kind),
        properties=row.properties,
    )


class SqlStoredQueryRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, query: StoredQuery) -> None:
        row = {
            "table_id": query.table.table_id,
            "statement": query.statement,
            "query": {
                "source": list(query.source.levels),
                "columns": dict(query.columns),
                "filter": query.filter,
                "limit": query.limit,
            },
            "output": query.output.serialize().to_pybytes(),
        }
        self._connection.execute(insert(stored_queries).values(row))

    def get(self, table: Table) -> StoredQuery:
        row = self._connection.execute(
            select(stored_queries).where(stored_queries.c.table_id == table.table_id)
        ).first()
        if row is None:
            raise StoredQueryNotFound(table.ident)
        return StoredQuery(
            table=table,
            statement=row.statement,
            source=table_ident(tuple(row.query["source"])),
            columns=row.query["columns"],
            filter=row.query["filter"],
            limit=row.query["limit"],
            output=pa.ipc.read_schema(pa.py_buffer(row.output)),
        )
