"""Named environments as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidemill.catalog.model.environments import Environment
from tidemill.store.schema import environments


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
