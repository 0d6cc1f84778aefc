"""Versions of tables as rows: whose INSERT succeeds, whose commit it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import TableNotFound, TableVersionAlreadyExists
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import TableVersion
from tidemill.errors import InvalidInput
from tidemill.store.columns import MAX_BIGINT
from tidemill.store.schema import table_versions
from tidemill.store.tables import SqlTableRepository


class SqlVersionRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, version: TableVersion) -> None:
        if version.version > MAX_BIGINT:
            raise InvalidInput("version", f"has to be at most {MAX_BIGINT}")
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
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(table_versions).values(row))
        except IntegrityError as error:
            table = SqlTableRepository(self._connection).find_by_id(version.table_id)
            if table is None:
                # A dropped table has no name any more.
                raise TableNotFound(TableIdent(NamespacePath(), str(version.table_id))) from error
            raise TableVersionAlreadyExists(table.ident, version.version) from error

    def find(self, table_id: UUID, branch: str, version: int) -> TableVersion | None:
        if not 0 <= version <= MAX_BIGINT:
            return None
        row = self._connection.execute(select(table_versions).where(_is(table_id, branch, version))).first()
        return None if row is None else _version(row)

    def find_latest(self, table_id: UUID, branch: str) -> TableVersion | None:
        query = (
            select(table_versions)
            .where(table_versions.c.table_id == table_id, table_versions.c.branch == branch)
            .order_by(table_versions.c.version.desc())
            .limit(1)
        )
        row = self._connection.execute(query).first()
        return None if row is None else _version(row)

    def list_all(self, table_id: UUID, branch: str) -> Sequence[TableVersion]:
        query = (
            select(table_versions)
            .where(table_versions.c.table_id == table_id, table_versions.c.branch == branch)
            .order_by(table_versions.c.version)
        )
        return [_version(row) for row in self._connection.execute(query)]

    def set_manifest_path(self, version: TableVersion, path: str) -> None:
        self._connection.execute(
            update(table_versions)
            .where(_is(version.table_id, version.branch, version.version))
            .values(manifest_path=path)
        )

    def remove(self, table_id: UUID, branch: str, version: int) -> None:
        if 0 <= version <= MAX_BIGINT:
            self._connection.execute(delete(table_versions).where(_is(table_id, branch, version)))


def _is(table_id: UUID, branch: str, version: int) -> ColumnElement[bool]:
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
    )
