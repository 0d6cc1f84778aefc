"""Seals the variables of environments, jobs and views that earlier versions stored as they are.

The database has no key, so whoever opens it puts the cipher into `Connection.info`. Without one, a database
that has nothing to seal is upgraded, and any other is refused: a tool without the key must not leave clear
text behind under a schema that promises encryption.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
from sqlalchemy import Connection

from tidemill.catalog.ports import Cipher
from tidemill.catalog.sealed_variables import has_clear_text, seal
from tidemill.errors import Unavailable

CIPHER: Final = "cipher"
# Set if rows were sealed: their former text may still be in pages that are free now.
HAS_SEALED: Final = "has_sealed"
# Table, key, and the columns with JSON that may hold variables.
PLACES: Final = (
    ("environments", "name", "variables"),
    ("jobs", "job_id", "request"),
    ("materialized_views", "view_id", "environment"),
)
# Most jobs and views have none: '{}' is two characters.
SELECT: Final = 'SELECT {key}, {column} FROM {table} WHERE {column} LIKE \'%"variables":{{"%\''
SELECT_ENVIRONMENTS: Final = "SELECT {key}, {column} FROM {table} WHERE {column} <> '{{}}'"
UPDATE: Final = {
    "sqlite": "UPDATE {table} SET {column} = ? WHERE {key} = ?",
    "postgresql": "UPDATE {table} SET {column} = %s WHERE {key} = %s",
}


def upgrade(connection: Connection) -> None:
    cipher: Cipher | None = connection.info.pop(CIPHER, None)
    dialect = connection.dialect.name
    if dialect == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")
    for table, key, column in PLACES:
        names = {"table": table, "key": key, "column": column}
        query = SELECT_ENVIRONMENTS if table == "environments" else SELECT
        # Parameters, even none, make drivers read the percent signs alike.
        select = query.format_map(names).replace("%", "%%" if dialect == "postgresql" else "%")
        for row_key, text in connection.exec_driver_sql(select, () if dialect == "sqlite" else {}).all():
            value = orjson.loads(text)
            found = [variables for variables in _variables(table, value) if has_clear_text(variables)]
            if not found:
                continue
            if cipher is None:
                raise Unavailable(
                    "The catalog database has variables of environments that are not sealed yet; start a "
                    "server with its secret key once, then try again"
                )
            for variables in found:
                variables.update({name: seal(clear, cipher) for name, clear in variables.items()})
            connection.exec_driver_sql(
                UPDATE[dialect].format_map(names), (orjson.dumps(value).decode(), row_key)
            )
            connection.info[HAS_SEALED] = True
    if dialect == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = OFF")


def _variables(table: str, value: Any) -> Iterator[dict[str, str]]:
    if table == "environments":
        yield value
        return
    holder: Mapping[str, Any] | None = value.get("environment") if table == "jobs" else value
    if holder and holder.get("variables"):
        yield holder["variables"]
