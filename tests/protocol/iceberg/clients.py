"""What the tests with real Iceberg clients share: where the catalog is, and the clients on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import duckdb
import httpx
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension  # type: ignore[import-untyped] # it ships no types
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.typedef import Identifier
from pyiceberg.view.metadata import SQLViewRepresentation, ViewRepresentation, ViewVersion

from tests.conftest import RunningServer

# Set to the address of another Iceberg catalog to see what the clients make of that one.
ELSEWHERE: Final = os.environ.get("TIDEMILL_TEST_ICEBERG_URI")
DUCKDB_EXTENSIONS: Final = ("httpfs", "avro", "iceberg")
PATIENCE_SECONDS: Final = 10.0
PEOPLE: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
QUERY: Final = "SELECT id, name FROM people WHERE id > 1"

needs_lance = pytest.mark.skipif(ELSEWHERE is not None, reason="only this server has Lance tables too")


def people(*rows: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [number for number, _ in rows], "name": [name for _, name in rows]}, schema=PEOPLE)


def iceberg_url(request: pytest.FixtureRequest) -> str:
    """The catalog of the server of the run; another one's if the environment says so."""
    if ELSEWHERE is not None:
        return ELSEWHERE
    server: RunningServer = request.getfixturevalue("server")
    return f"{server.url}/iceberg"


@contextmanager
def pyiceberg_on(url: str, **properties: str) -> Iterator[RestCatalog]:
    catalog = RestCatalog("tidemill", uri=url, **properties)
    yield catalog
    catalog.close()


@contextmanager
def duckdb_on(url: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB with the server as catalog `ice`, its extensions installed from their packages."""
    with duckdb.connect() as connection:
        for name in DUCKDB_EXTENSIONS:
            import_extension(name, con=connection)
            connection.execute(f"LOAD {name}")
        connection.execute(f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
        yield connection


class OnWire:
    """Tables and views as plain HTTP shows them, to check what a client was told."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> httpx.Response:
        return self._http.get(f"/v1/{path}")

    def post(self, path: str, body: object) -> httpx.Response:
        return self._http.post(f"/v1/{path}", json=body)

    def table(self, *levels: str) -> dict[str, Any]:
        return self._loaded("tables", levels)

    def view(self, *levels: str) -> dict[str, Any]:
        return self._loaded("views", levels)

    def _loaded(self, kind: str, levels: tuple[str, ...]) -> dict[str, Any]:
        answer = self.get(object_path(kind, *levels)).raise_for_status()
        metadata: dict[str, Any] = answer.json()["metadata"]
        return metadata


def object_path(kind: str, *levels: str) -> str:
    *namespace, name = levels
    return f"namespaces/{quote(chr(0x1F).join(namespace), safe='')}/{kind}/{quote(name, safe='')}"


def spark_view(sql: str = QUERY, namespace: Identifier = ()) -> ViewVersion:
    """The first version of a view for Spark."""
    representation = ViewRepresentation(SQLViewRepresentation(type="sql", sql=sql, dialect="spark"))
    summary = {"engine-name": "tests"}
    parsed = {"schema-id": 0, "default-namespace": namespace, "summary": summary}
    return ViewVersion.model_validate({**parsed, "representations": [representation]})


def soon(happened: Callable[[], bool]) -> bool:
    """Whether it happens within the time a background worker may take."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
