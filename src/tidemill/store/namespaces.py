"""Namespaces as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import NamespaceAlreadyExists, NamespaceNotEmpty, NamespaceNotFound
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.namespaces import Namespace
from tidemill.catalog.model.tables import Page
from tidemill.store.driver_errors import is_foreign_key_violation
from tidemill.store.namespace_paths import get_namespace_id, level_parameters, namespace_at
from tidemill.store.schema import namespaces


class SqlNamespaceRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, namespace: Namespace) -> None:
        path = namespace.path
        if path.is_root:
            raise NamespaceAlreadyExists(path)
        row = {
            "namespace_id": namespace.namespace_id,
            "parent_id": get_namespace_id(self._connection, path.parent),
            "name": path.name,
            "properties": dict(namespace.properties),
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(namespaces).values(row))
        except IntegrityError as error:
            if is_foreign_key_violation(error):
                raise NamespaceNotFound(path.parent) from error
            raise NamespaceAlreadyExists(path) from error

    def get(self, path: NamespacePath) -> Namespace:
        namespace = self.find(path)
        if namespace is None:
            raise NamespaceNotFound(path)
        return namespace

    def find(self, path: NamespacePath) -> Namespace | None:
        if path.is_root:
            return None
        row = self._connection.execute(select(namespace_at(len(path.levels))), level_parameters(path)).first()
        return None if row is None else Namespace(row.namespace_id, path, row.properties)

    def list_children(self, path: NamespacePath, page: Page) -> Sequence[Namespace]:
        query = (
            select(namespaces)
            .where(namespaces.c.parent_id == get_namespace_id(self._connection, path))
            .order_by(namespaces.c.name)
            .limit(page.limit)
        )
        if page.after is not None:
            query = query.where(namespaces.c.name > page.after)
        rows = self._connection.execute(query)
        return [Namespace(row.namespace_id, path.child(row.name), row.properties) for row in rows]

    def set_properties(self, path: NamespacePath, properties: Mapping[str, str]) -> None:
        namespace_id = self.get(path).namespace_id
        changed = update(namespaces).where(namespaces.c.namespace_id == namespace_id)
        self._connection.execute(changed.values(properties=dict(properties)))

    def lock(self, path: NamespacePath) -> Namespace:
        # Locks no ancestors, and does not block tables from being added.
        query = (
            select(namespaces)
            .where(namespaces.c.namespace_id == self.get(path).namespace_id)
            .with_for_update(key_share=True)
        )
        row = self._connection.execute(query).first()
        if row is None:
            raise NamespaceNotFound(path)
        return Namespace(row.namespace_id, path, row.properties)

    def lock_all(self, paths: Iterable[NamespacePath]) -> None:
        if self._connection.dialect.name != "sqlite":
            for path in sorted(set(paths), key=lambda path: path.levels):
                self._lock(path, for_removal=False)

    def lock_tree(self, path: NamespacePath) -> None:
        if self._connection.dialect.name != "sqlite":
            self._lock(path, for_removal=True)
            # From here on no other transaction can add children.
            for child in sorted(self.list_children(path, Page()), key=lambda child: child.path.levels):
                with suppress(NamespaceNotFound):
                    self.lock_tree(child.path)

    def _lock(self, path: NamespacePath, *, for_removal: bool) -> None:
        """Retries if the namespace was removed during the wait: another one may have its name."""
        is_locked = False
        while not is_locked:
            namespace_id = get_namespace_id(self._connection, path)
            query = select(namespaces.c.namespace_id).where(namespaces.c.namespace_id == namespace_id)
            is_locked = (
                self._connection.execute(query.with_for_update(key_share=not for_removal)).first() is not None
            )

    def remove(self, path: NamespacePath) -> None:
        namespace = self.get(path)
        try:
            with self._connection.begin_nested():
                self._connection.execute(
                    delete(namespaces).where(namespaces.c.namespace_id == namespace.namespace_id)
                )
        except IntegrityError as error:
            raise NamespaceNotEmpty(path) from error
