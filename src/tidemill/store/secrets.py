"""Secrets as rows; callers encrypt the values before storing them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import NamespaceNotFound, SecretAlreadyExists, SecretNotFound
from tidemill.catalog.model.functions import Secret
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.store.column_types import DatabaseTime
from tidemill.store.driver_errors import is_foreign_key_violation
from tidemill.store.namespaces import get_namespace_id
from tidemill.store.schema import secrets


class SqlSecretRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, ident: TableIdent, sealed: bytes) -> None:
        row = {
            "namespace_id": get_namespace_id(self._connection, ident.namespace),
            "name": ident.name,
            "sealed_value": sealed,
            "created_at": DatabaseTime(),
            "updated_at": DatabaseTime(),
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(secrets).values(row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise NamespaceNotFound(ident.namespace) from error
            raise SecretAlreadyExists(ident) from error

    def replace(self, ident: TableIdent, sealed: bytes) -> None:
        values = {"sealed_value": sealed, "updated_at": DatabaseTime()}
        changed = self._connection.execute(update(secrets).where(self._is_secret(ident)).values(values))
        if not changed.rowcount:
            raise SecretNotFound(ident)

    def get(self, ident: TableIdent) -> Secret:
        row = self._connection.execute(
            select(secrets.c.created_at, secrets.c.updated_at).where(self._is_secret(ident))
        ).first()
        if row is None:
            raise SecretNotFound(ident)
        return Secret(ident, row.created_at, row.updated_at)

    def list_in(self, namespace: NamespacePath) -> Sequence[Secret]:
        rows = self._connection.execute(
            select(secrets.c.name, secrets.c.created_at, secrets.c.updated_at)
            .where(secrets.c.namespace_id == get_namespace_id(self._connection, namespace))
            .order_by(secrets.c.name)
        )
        return [Secret(TableIdent(namespace, row.name), row.created_at, row.updated_at) for row in rows]

    def remove(self, ident: TableIdent) -> None:
        if not self._connection.execute(delete(secrets).where(self._is_secret(ident))).rowcount:
            raise SecretNotFound(ident)

    def remove_in(self, namespace: NamespacePath) -> None:
        namespace_id = get_namespace_id(self._connection, namespace)
        self._connection.execute(delete(secrets).where(secrets.c.namespace_id == namespace_id))

    def _is_secret(self, ident: TableIdent) -> ColumnElement[bool]:
        namespace_id = get_namespace_id(self._connection, ident.namespace)
        return and_(secrets.c.namespace_id == namespace_id, secrets.c.name == ident.name)
