"""Registered functions and named environments as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.errors import ConcurrentModification, FunctionNotFound
from tidemill.catalog.model.functions import (
    Environment,
    Function,
    RegisteredFunction,
    decode_envelope,
    encode_envelope,
)
from tidemill.store.column_types import DatabaseTime
from tidemill.store.schema import environments, functions


class SqlFunctionRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, function: Function, registered_by: str) -> None:
        registered_envelope = self._find_envelope(function.digest)
        if registered_envelope is not None:
            self._undrop(function.digest)
            self._set_timeout(decode_envelope(registered_envelope, "function"), function.timeout_seconds)
            return
        latest = select(func.coalesce(func.max(functions.c.version), 0)).where(
            functions.c.name == function.name
        )
        row = {
            "digest": function.digest,
            "name": function.name,
            "envelope": encode_envelope(function),
            "registered_by": registered_by,
            "registered_at": DatabaseTime(),
            "version": latest.scalar_subquery() + 1,
        }
        try:
            with self._connection.begin_nested():
                self._connection.execute(insert(functions).values(row))
        except IntegrityError as error:
            # A concurrent registration of the same digest is fine; another function took the version.
            if self._find_envelope(function.digest) is None:
                raise ConcurrentModification(
                    f"Another function '{function.name}' was registered at the same time; try again"
                ) from error

    def get(self, digest: str) -> Function:
        envelope = self._find_envelope(digest)
        if envelope is None:
            raise FunctionNotFound(digest)
        return decode_envelope(envelope, "function")

    def list_registered(self, name: str | None = None) -> Sequence[RegisteredFunction]:
        query = (
            select(functions)
            .where(functions.c.dropped_at.is_(None))
            .order_by(functions.c.name, functions.c.version)
        )
        if name is not None:
            query = query.where(functions.c.name == name)
        return [_registered(row) for row in self._connection.execute(query)]

    def drop(self, digest: str) -> None:
        self._connection.execute(
            update(functions).where(functions.c.digest == digest).values(dropped_at=DatabaseTime())
        )

    def _undrop(self, digest: str) -> None:
        self._connection.execute(
            update(functions)
            .where(functions.c.digest == digest, functions.c.dropped_at.is_not(None))
            .values(dropped_at=None)
        )

    def _set_timeout(self, function: Function, timeout_seconds: float | None) -> None:
        """Updates the timeout, which is not part of the digest: the last registration wins."""
        if function.timeout_seconds != timeout_seconds:
            envelope = encode_envelope(replace(function, timeout_seconds=timeout_seconds))
            self._connection.execute(
                update(functions).where(functions.c.digest == function.digest).values(envelope=envelope)
            )

    def _find_envelope(self, digest: str) -> bytes | None:
        return self._connection.scalar(select(functions.c.envelope).where(functions.c.digest == digest))


def _registered(row: Row[Any]) -> RegisteredFunction:
    function = decode_envelope(row.envelope, "function")
    return RegisteredFunction(function, row.version, row.registered_by, row.registered_at)


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
