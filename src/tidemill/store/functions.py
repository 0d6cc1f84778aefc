"""Registered functions and named environments as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification, FunctionNotFound
from tidemill.catalog.model.functions import (
    Environment,
    Function,
    FunctionKey,
    RegisteredFunction,
    check_same_function,
    decode_envelope,
    encode_envelope,
)
from tidemill.catalog.model.identifiers import ROOT_NAMESPACE, NamespacePath
from tidemill.store.column_types import DatabaseTime
from tidemill.store.namespaces import find_path, get_namespace_id
from tidemill.store.schema import ROOT_ID, environments, functions, tables


class SqlFunctionRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(
        self, function: Function, registered_by: str, namespace: NamespacePath = ROOT_NAMESPACE
    ) -> FunctionKey:
        key = FunctionKey(get_namespace_id(self._connection, namespace), function.digest)
        registered = self._find(key)
        if registered is not None:
            check_same_function(registered, function)
            self._list_again(key)
            self._set_timeout(key, registered, function.timeout_seconds)
            return key
        self._insert(key, function, registered_by, dropped_at=None)
        return key

    def add_bound(self, function: Function, registered_by: str, origin: FunctionKey) -> FunctionKey:
        key = replace(origin, digest=function.digest)
        if self._find(key) is None:
            self._insert(key, function, registered_by, dropped_at=DatabaseTime())
        return key

    def _insert(
        self, key: FunctionKey, function: Function, registered_by: str, dropped_at: DatabaseTime | None
    ) -> None:
        latest = select(func.coalesce(func.max(functions.c.version), 0)).where(
            functions.c.namespace_id == key.namespace_id, functions.c.name == function.name
        )
        row = {
            "namespace_id": key.namespace_id,
            "digest": key.digest,
            "name": function.name,
            "envelope": encode_envelope(function),
            "registered_by": registered_by,
            "registered_at": DatabaseTime(),
            "version": latest.scalar_subquery() + 1,
            "dropped_at": dropped_at,
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(functions).values(row))
        except IntegrityError as error:
            # A concurrent registration of the same digest is fine; another function took the version.
            if self._find(key) is None:
                raise ConcurrentModification(
                    f"Another function '{function.name}' was registered at the same time; try again"
                ) from error

    def get(self, key: FunctionKey) -> Function:
        function = self._find(key)
        if function is None:
            raise FunctionNotFound(key.digest)
        return function

    def list_registered(
        self, namespace: NamespacePath | None = None, name: str | None = None
    ) -> Sequence[RegisteredFunction]:
        query = (
            select(functions)
            .where(functions.c.dropped_at.is_(None))
            .order_by(functions.c.name, functions.c.namespace_id, functions.c.version)
        )
        if namespace is not None:
            namespace_id = get_namespace_id(self._connection, namespace)
            query = query.where(functions.c.namespace_id == namespace_id)
        if name is not None:
            query = query.where(functions.c.name == name)
        return self._registered(query)

    def find_all(self, digest: str) -> Sequence[RegisteredFunction]:
        query = select(functions).where(functions.c.digest == digest, functions.c.dropped_at.is_(None))
        return self._registered(query.order_by(functions.c.namespace_id))

    def find_name(self, digest: str, table_id: UUID, namespace_id: UUID) -> str | None:
        table_namespace = select(tables.c.namespace_id).where(tables.c.table_id == table_id)
        near = functions.c.namespace_id.in_([namespace_id, ROOT_ID])
        return self._connection.scalar(
            select(functions.c.name)
            .where(functions.c.digest == digest, near | functions.c.namespace_id.in_(table_namespace))
            .order_by(functions.c.namespace_id != namespace_id, functions.c.namespace_id)
            .limit(1)
        )

    def drop(self, key: FunctionKey) -> None:
        self._connection.execute(update(functions).where(_is(key)).values(dropped_at=DatabaseTime()))

    def namespace_of(self, key: FunctionKey) -> NamespacePath | None:
        return find_path(self._connection, key.namespace_id)

    def _registered(self, query: Select[Any]) -> list[RegisteredFunction]:
        rows = self._connection.execute(query).all()
        namespace_ids = {row.namespace_id for row in rows}
        paths = {namespace_id: find_path(self._connection, namespace_id) for namespace_id in namespace_ids}
        return [
            RegisteredFunction(
                decode_envelope(row.envelope, "function"),
                row.version,
                row.registered_by,
                row.registered_at,
                row.namespace_id,
                paths[row.namespace_id],
            )
            for row in rows
        ]

    def _list_again(self, key: FunctionKey) -> None:
        self._connection.execute(
            update(functions).where(_is(key), functions.c.dropped_at.is_not(None)).values(dropped_at=None)
        )

    def _set_timeout(self, key: FunctionKey, function: Function, timeout_seconds: float | None) -> None:
        """Updates the timeout, which is not part of the digest: the last registration wins."""
        if function.timeout_seconds != timeout_seconds:
            envelope = encode_envelope(replace(function, timeout_seconds=timeout_seconds))
            self._connection.execute(update(functions).where(_is(key)).values(envelope=envelope))

    def _find(self, key: FunctionKey) -> Function | None:
        envelope = self._connection.scalar(select(functions.c.envelope).where(_is(key)))
        return None if envelope is None else decode_envelope(envelope, "function")


def _is(key: FunctionKey) -> ColumnElement[bool]:
    return and_(functions.c.namespace_id == key.namespace_id, functions.c.digest == key.digest)


class SqlEnvironmentRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, name: str, environment: Environment) -> None:
        values = {"packages": list(environment.packages), "variables": dict(environment.variables)}
        if self._update(name, values):
            return
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(environments).values(name=name, **values))
        except IntegrityError:
            # Another transaction inserted the name in the meantime.
            self._update(name, values)

    def find(self, name: str) -> Environment | None:
        query = select(environments).where(environments.c.name == name)
        row = self._connection.execute(query).first()
        return None if row is None else _environment(row)

    def list_all(self) -> Sequence[tuple[str, Environment]]:
        query = select(environments).order_by(environments.c.name)
        return [(row.name, _environment(row)) for row in self._connection.execute(query)]

    def remove(self, name: str) -> bool:
        removed = self._connection.execute(delete(environments).where(environments.c.name == name))
        return bool(removed.rowcount)

    def _update(self, name: str, values: Mapping[str, Any]) -> bool:
        changed = self._connection.execute(
            update(environments).where(environments.c.name == name).values(values)
        )
        return bool(changed.rowcount)


def _environment(row: Row[Any]) -> Environment:
    return Environment(tuple(row.packages), row.variables)
