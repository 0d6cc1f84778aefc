"""Namespaces as rows, and how paths lead to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Subquery, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import NamespaceAlreadyExists, NamespaceNotEmpty, NamespaceNotFound
from tidemill.catalog.model.identifiers import Namespace, NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.store.access_revision import note_removed_namespace
from tidemill.store.driver_errors import is_foreign_key_violation
from tidemill.store.schema import ROOT_ID, namespaces


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
        note_removed_namespace(self._connection, namespace.namespace_id)
        try:
            with self._connection.begin_nested():
                self._connection.execute(
                    delete(namespaces).where(namespaces.c.namespace_id == namespace.namespace_id)
                )
        except IntegrityError as error:
            raise NamespaceNotEmpty(path) from error


@cache
def namespace_at(depth: int) -> Subquery:
    """Selects a namespace `depth` levels below the root; `level_parameters` binds the names on its path."""
    current = namespaces.alias("level_0")
    conditions: list[ColumnElement[bool]] = [current.c.namespace_id == ROOT_ID]
    for level in range(1, depth + 1):
        below = namespaces.alias(f"level_{level}")
        conditions.append(below.c.parent_id == current.c.namespace_id)
        conditions.append(below.c.name == bindparam(f"name_{level}"))
        current = below
    return select(current).where(*conditions).subquery("namespace_at")


def level_parameters(path: NamespacePath) -> dict[str, str]:
    return {f"name_{level}": name for level, name in enumerate(path.levels, start=1)}


def find_namespace_id(connection: Connection, path: NamespacePath) -> UUID | None:
    if path.is_root:
        return ROOT_ID
    return connection.scalar(select(namespace_at(len(path.levels)).c.namespace_id), level_parameters(path))


def get_namespace_id(connection: Connection, path: NamespacePath) -> UUID:
    namespace_id = find_namespace_id(connection, path)
    if namespace_id is None:
        raise NamespaceNotFound(path)
    return namespace_id


def find_path(connection: Connection, namespace_id: UUID) -> NamespacePath | None:
    """The path of a namespace; None if it was dropped."""
    levels: list[str] = []
    while namespace_id != ROOT_ID:
        query = select(namespaces.c.parent_id, namespaces.c.name)
        row = connection.execute(query.where(namespaces.c.namespace_id == namespace_id)).first()
        if row is None:
            return None
        levels.insert(0, row.name)
        namespace_id = row.parent_id
    return NamespacePath(tuple(levels))


def paths_under(connection: Connection, path: NamespacePath) -> dict[UUID, NamespacePath]:
    """The paths of a namespace and of all its descendants, by id."""
    start = get_namespace_id(connection, path)
    below = select(namespaces).where(namespaces.c.parent_id == start).cte("below", recursive=True)
    next_level = select(namespaces).join(below, namespaces.c.parent_id == below.c.namespace_id)
    paths = {start: path}
    # The recursion proceeds level by level, so a parent always precedes its children.
    for row in connection.execute(select(below.union_all(next_level))):
        paths[row.namespace_id] = paths[row.parent_id].child(row.name)
    return paths
