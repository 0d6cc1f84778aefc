"""Table versions as rows; the primary key decides which of several concurrent commits wins.

A commit inserts a row with the version number it wants. The transaction whose INSERT succeeds owns the
number; the others get TableVersionAlreadyExists and retry on the newer version. The row keeps the staged path
of the manifest and the deferred writes (see `tidemill.store.deferred`) until the manifest has its final name;
`settle` then clears the deferred writes.

Deleting a version first marks its row and removes it only after its manifest is gone. Without the mark, a
reader could find the manifest in storage and take it for a version written outside the catalog.

Properties that callers set on transactions are rows here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Text,
    Uuid,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification, TableNotFound, TableVersionAlreadyExists
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, TableVersion
from tidemill.errors import InvalidInput
from tidemill.store.bookkeeping import column_subjects, forget_subjects, reader_subjects, view_subjects
from tidemill.store.column_types import MAX_BIGINT, DatabaseTime
from tidemill.store.compiled_statements import CompiledStatement
from tidemill.store.driver_errors import savepoint
from tidemill.store.schema import coverage, row_errors, table_versions, transactions
from tidemill.store.tables import SqlTableRepository

ON_BRANCH: Final = and_(
    table_versions.c.table_id == bindparam("of_table", type_=Uuid),
    table_versions.c.branch == bindparam("on_branch", type_=Text),
)
IS_DELETED: Final = table_versions.c.is_deleted
IS_VERSION: Final = and_(
    ON_BRANCH, ~IS_DELETED, table_versions.c.version == bindparam("number", type_=BigInteger)
)
FIND: Final = CompiledStatement(select(table_versions).where(IS_VERSION))
FIND_LATEST: Final = CompiledStatement(
    select(table_versions).where(ON_BRANCH, ~IS_DELETED).order_by(table_versions.c.version.desc()).limit(1)
)
INSERT: Final = CompiledStatement(insert(table_versions), table_versions.c.keys())


class SqlVersionRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, version: TableVersion) -> None:
        if version.version > MAX_BIGINT:
            raise InvalidInput("version", f"must be at most {MAX_BIGINT}")
        row = {
            "table_id": version.table_id,
            "branch": version.branch,
            "version": version.version,
            "manifest_path": version.manifest_path,
            "staged_path": version.staged_path,
            "manifest_size": version.manifest_size,
            "created_at": version.created_at,
            "e_tag": version.e_tag,
            "metadata": dict(version.metadata),
            "digest": version.digest,
            "deferred": version.deferred,
            "is_deleted": False,
        }
        try:
            with savepoint(self._connection):
                INSERT.execute(self._connection, row)
        except IntegrityError as error:
            table = SqlTableRepository(self._connection).find_by_id(version.table_id)
            if table is None:
                # A dropped table no longer has a name.
                raise TableNotFound(TableIdent(NamespacePath(), str(version.table_id))) from error
            raise TableVersionAlreadyExists(table.ident, version.version) from error

    def find(self, table_id: UUID, branch: str, version: int) -> TableVersion | None:
        if not 0 <= version <= MAX_BIGINT:
            return None
        values = {"of_table": table_id, "on_branch": branch, "number": version}
        row = FIND.first(self._connection, values)
        return None if row is None else _version(row)

    def find_latest(self, table_id: UUID, branch: str) -> TableVersion | None:
        row = FIND_LATEST.first(self._connection, {"of_table": table_id, "on_branch": branch})
        return None if row is None else _version(row)

    def lock(self, version: TableVersion) -> TableVersion | None:
        query = select(table_versions).where(_is_version(version.table_id, version.branch, version.version))
        row = self._connection.execute(query.with_for_update()).first()
        return None if row is None else _version(row)

    def settle(self, version: TableVersion) -> bool:
        cleared = (
            update(table_versions)
            .where(
                _is_version(version.table_id, version.branch, version.version),
                table_versions.c.staged_path == version.staged_path,
                table_versions.c.deferred.is_not(None),
            )
            .values(deferred=None)
        )
        return self._connection.execute(cleared).rowcount > 0

    def list_all(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        query = (
            select(table_versions)
            .where(table_versions.c.table_id == table_id, table_versions.c.branch == branch)
            .order_by(table_versions.c.version)
        )
        return [_version(row) for row in self._connection.execute(query.where(~IS_DELETED))]

    def list_deleted(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        query = select(table_versions).where(
            table_versions.c.table_id == table_id, table_versions.c.branch == branch, IS_DELETED
        )
        return [_version(row) for row in self._connection.execute(query)]

    def list_page(
        self, table_id: UUID, branch: str, after: int | None, limit: int | None, *, is_descending: bool
    ) -> Sequence[TableVersion]:
        values = {
            "of_table": table_id,
            "on_branch": branch,
            "after": after if after is None else min(after, MAX_BIGINT),
            "count": MAX_BIGINT if limit is None else limit,
        }
        statement = _page_statement(is_descending=is_descending, has_start=after is not None)
        return [_version(row) for row in statement.all(self._connection, values)]

    def mark_deleted(self, version: TableVersion) -> None:
        condition = _is_version(version.table_id, version.branch, version.version)
        self._connection.execute(update(table_versions).where(condition).values(is_deleted=True))

    def remove(self, table_id: UUID, branch: str, version: int) -> None:
        if 0 <= version <= MAX_BIGINT:
            self._connection.execute(delete(table_versions).where(_is_version(table_id, branch, version)))

    def remove_branch(self, table_id: UUID, branch: str) -> None:
        self._connection.execute(
            delete(table_versions).where(
                table_versions.c.table_id == table_id, table_versions.c.branch == branch
            )
        )
        forget_subjects(self._connection, column_subjects(self._connection, table_id, branch))

    def forget_results(self, table_id: UUID, branch: str, version: int) -> None:
        columns = coverage.c.subject_id.in_(column_subjects(self._connection, table_id, branch))
        self._forget(columns, or_(coverage.c.watermark >= version, coverage.c.published >= version))
        if branch == MAIN_BRANCH:
            readers = coverage.c.subject_id.in_(reader_subjects(self._connection, table_id))
            # Views that read this table publish into their own versions, so only the watermark counts.
            self._forget(readers, coverage.c.watermark >= version)
            own_results = coverage.c.subject_id.in_(view_subjects(self._connection, table_id))
            self._forget(own_results, coverage.c.published >= version)

    def _forget(self, *conditions: ColumnElement[bool]) -> None:
        forgotten = delete(coverage).where(*conditions).returning(coverage.c.subject_id, coverage.c.digest)
        for row in self._connection.execute(forgotten).all():
            # The ids of lost rows may be reused for other rows.
            self._connection.execute(
                delete(row_errors).where(
                    row_errors.c.subject_id == row.subject_id, row_errors.c.digest == row.digest
                )
            )


@cache
def _page_statement(*, is_descending: bool, has_start: bool) -> CompiledStatement:
    number, after = table_versions.c.version, bindparam("after", type_=BigInteger)
    query = select(table_versions).where(ON_BRANCH, ~IS_DELETED)
    query = query.order_by(number.desc() if is_descending else number)
    if has_start:
        query = query.where(number < after if is_descending else number > after)
    return CompiledStatement(query.limit(bindparam("count", type_=BigInteger)))


def _is_version(table_id: UUID, branch: str, version: int) -> ColumnElement[bool]:
    columns = table_versions.c
    return and_(columns.table_id == table_id, columns.branch == branch, columns.version == version)


def _version(row: Row[Any]) -> TableVersion:
    return TableVersion(
        table_id=row.table_id,
        branch=row.branch,
        version=row.version,
        manifest_path=row.manifest_path,
        staged_path=row.staged_path,
        manifest_size=row.manifest_size,
        created_at=row.created_at,
        e_tag=row.e_tag,
        metadata=row.metadata,
        digest=row.digest,
        deferred=row.deferred,
    )


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
