"""DuckDB's iceberg extension as it is published, on a running server: schemas, tables, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.protocol.iceberg.clients import PEOPLE, duckdb_on, iceberg_url, people, pyiceberg_on, spark_view

ANN, BOB, CY = (1, "ann"), (2, "bob"), (3, "cy")


@pytest.fixture(scope="module")
def catalog(request: pytest.FixtureRequest) -> Iterator[RestCatalog]:
    with pyiceberg_on(iceberg_url(request)) as connected:
        yield connected


@pytest.fixture(scope="module")
def duck(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb_on(iceberg_url(request)) as connection:
        yield connection


@pytest.fixture
def schema(duck: duckdb.DuckDBPyConnection) -> str:
    """A schema of the test's own."""
    name = f"d{uuid4().hex[:12]}"
    duck.execute(f"CREATE SCHEMA ice.{name}")
    return name


@pytest.fixture
def table(duck: duckdb.DuckDBPyConnection, schema: str) -> str:
    """Three people."""
    name = f"ice.{schema}.people"
    duck.execute(f"CREATE TABLE {name} (id BIGINT, name VARCHAR)")
    duck.execute(f"INSERT INTO {name} VALUES (1, 'ann'), (2, 'bob'), (3, 'cy')")
    return name


def rows_of(duck: duckdb.DuckDBPyConnection, name: str) -> list[tuple[Any, ...]]:
    return duck.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()


def seen_by_pyiceberg(catalog: RestCatalog, *levels: str) -> list[tuple[Any, ...]]:
    rows = catalog.load_table(levels).scan().to_arrow().sort_by("id").to_pylist()
    return [tuple(row.values()) for row in rows]


def test_a_schema_is_a_namespace(duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str) -> None:
    assert catalog.namespace_exists(schema)
    duck.execute(f"DROP SCHEMA ice.{schema}")
    assert not catalog.namespace_exists(schema)


def test_a_schema_is_created_once(duck: duckdb.DuckDBPyConnection, schema: str) -> None:
    with pytest.raises(duckdb.Error, match="already exists"):
        duck.execute(f"CREATE SCHEMA ice.{schema}")
    duck.execute(f"CREATE SCHEMA IF NOT EXISTS ice.{schema}")


def test_inserted_rows_are_read_by_both_clients(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    assert rows_of(duck, table) == [ANN, BOB, CY]
    assert seen_by_pyiceberg(catalog, schema, "people") == [ANN, BOB, CY]


def test_a_table_is_created_from_a_query(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str
) -> None:
    duck.execute(f"CREATE TABLE ice.{schema}.squares AS SELECT range AS id, range * range AS n FROM range(4)")
    assert rows_of(duck, f"ice.{schema}.squares") == [(0, 0), (1, 1), (2, 4), (3, 9)]
    assert seen_by_pyiceberg(catalog, schema, "squares")[3] == (3, 9)


def test_rows_are_updated_and_deleted(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    duck.execute(f"UPDATE {table} SET name = 'bo' WHERE id = 2")
    duck.execute(f"DELETE FROM {table} WHERE id = 1")
    assert rows_of(duck, table) == [(2, "bo"), CY]
    assert seen_by_pyiceberg(catalog, schema, "people") == [(2, "bo"), CY]


def test_rows_are_merged(duck: duckdb.DuckDBPyConnection, table: str) -> None:
    duck.execute(
        f"MERGE INTO {table} AS old USING (VALUES (2, 'bo'), (4, 'di')) AS new(id, name) ON old.id = new.id "
        "WHEN MATCHED THEN UPDATE SET name = new.name WHEN NOT MATCHED THEN INSERT VALUES (new.id, new.name)"
    )
    assert rows_of(duck, table) == [ANN, (2, "bo"), CY, (4, "di")]


def test_an_earlier_version_is_read(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, table: str
) -> None:
    _, schema, name = table.split(".")
    snapshot = catalog.load_table((schema, name)).current_snapshot()
    assert snapshot is not None
    duck.execute(f"DELETE FROM {table} WHERE id < 3")
    then = duck.execute(
        f"SELECT id FROM {table} AT (VERSION => {snapshot.snapshot_id}) ORDER BY id"
    ).fetchall()
    assert then == [(1,), (2,), (3,)]


def test_a_transaction_over_two_tables_is_committed_whole(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    duck.execute(f"CREATE TABLE ice.{schema}.log (id BIGINT)")
    duck.execute("BEGIN")
    duck.execute(f"DELETE FROM {table} WHERE id = 1")
    duck.execute(f"INSERT INTO ice.{schema}.log VALUES (1)")
    assert seen_by_pyiceberg(catalog, schema, "people") == [ANN, BOB, CY]
    duck.execute("COMMIT")
    assert seen_by_pyiceberg(catalog, schema, "people") == [BOB, CY]
    assert seen_by_pyiceberg(catalog, schema, "log") == [(1,)]


def test_a_transaction_rolled_back_leaves_no_trace(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    before = catalog.load_table((schema, "people")).metadata_location
    duck.execute("BEGIN")
    duck.execute(f"INSERT INTO {table} VALUES (4, 'di')")
    duck.execute("ROLLBACK")
    assert catalog.load_table((schema, "people")).metadata_location == before
    assert rows_of(duck, table) == [ANN, BOB, CY]


def test_a_transaction_behind_another_commit_fails_in_all_its_tables(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    duck.execute(f"CREATE TABLE ice.{schema}.log (id BIGINT)")
    duck.execute("BEGIN")
    duck.execute(f"INSERT INTO ice.{schema}.log VALUES (1)")
    duck.execute(f"UPDATE {table} SET name = 'bo' WHERE id = 2")
    catalog.load_table((schema, "people")).delete("id = 1")
    with pytest.raises(duckdb.Error, match="409"):
        duck.execute("COMMIT")
    assert seen_by_pyiceberg(catalog, schema, "people") == [BOB, CY]
    assert seen_by_pyiceberg(catalog, schema, "log") == []


def test_columns_are_added_renamed_and_dropped(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    duck.execute(f"ALTER TABLE {table} ADD COLUMN score DOUBLE")
    duck.execute(f"ALTER TABLE {table} RENAME COLUMN name TO first_name")
    duck.execute(f"INSERT INTO {table} VALUES (4, 'di', 0.5)")
    assert rows_of(duck, table)[2:] == [(3, "cy", None), (4, "di", 0.5)]
    duck.execute(f"ALTER TABLE {table} DROP COLUMN first_name")
    assert catalog.load_table((schema, "people")).schema().column_names == ["id", "score"]


def test_a_table_is_renamed(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    duck.execute(f"ALTER TABLE {table} RENAME TO folk")
    assert catalog.list_tables(schema) == [(schema, "folk")]
    assert seen_by_pyiceberg(catalog, schema, "folk") == [ANN, BOB, CY]


def test_a_table_is_dropped(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str, table: str
) -> None:
    with pytest.raises(duckdb.Error, match="not empty"):
        duck.execute(f"DROP SCHEMA ice.{schema}")
    duck.execute(f"DROP TABLE {table}")
    with pytest.raises(NoSuchTableError):
        catalog.load_table((schema, "people"))
    duck.execute(f"DROP SCHEMA ice.{schema}")


def test_a_name_that_a_view_has_is_refused(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str
) -> None:
    catalog.create_view((schema, "v"), PEOPLE, spark_view())
    with pytest.raises(duckdb.Error, match="409"):
        duck.execute(f"CREATE TABLE ice.{schema}.v (id BIGINT)")


def test_rows_of_pyiceberg_are_read_and_changed(
    duck: duckdb.DuckDBPyConnection, catalog: RestCatalog, schema: str
) -> None:
    made = catalog.create_table((schema, "theirs"), PEOPLE)
    made.append(people(ANN, BOB))
    duck.execute(f"INSERT INTO ice.{schema}.theirs VALUES (3, 'cy')")
    made.refresh().append(people((4, "di")))
    assert rows_of(duck, f"ice.{schema}.theirs") == [ANN, BOB, CY, (4, "di")]


def test_odd_names_are_kept(duck: duckdb.DuckDBPyConnection, catalog: RestCatalog) -> None:
    name = f"two words/{uuid4().hex[:6]}"
    duck.execute(f'CREATE SCHEMA ice."{name}"')
    duck.execute(f'CREATE TABLE ice."{name}"."a/b c" AS SELECT 1 AS id')
    assert duck.execute(f'FROM ice."{name}"."a/b c"').fetchall() == [(1,)]
    assert catalog.list_tables((name,)) == [(name, "a/b c")]
