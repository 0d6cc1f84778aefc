"""Spark SQL through Iceberg's runtime as it is published: tables, and all that Spark can do to a view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import RunningServer, start_server
from tests.interop.iceberg.maven import JarsMissing
from tests.interop.iceberg.spark import iceberg_spark_sql
from tests.interop.lance_spark import SparkSql, SqlFailed
from tests.object_store import ObjectStore
from tests.protocol.iceberg.clients import ELSEWHERE, OnWire, iceberg_url, object_path

# One session serves the file, for its start is most of the time; the first run may have to fetch the jar.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = "(1, 'ann'), (2, 'bob'), (3, 'cy')"


@pytest.fixture(scope="module")
def signing(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Its tables lie in an object store, and it signs the requests there."""
    running = start_server(
        tmp_path_factory.mktemp("signing"),
        "--no-worker",
        TIDEMILL_WAREHOUSE=f"s3://{object_store.new_bucket()}/lake",
        TIDEMILL_S3_REMOTE_SIGNING="true",
        **object_store.environment,
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def spark(
    request: pytest.FixtureRequest, signing: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSql]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    try:
        sql = iceberg_spark_sql(iceberg_url(request), f"{signing.url}/iceberg", log)
    except JarsMissing as missing:
        pytest.skip(str(missing))
    yield sql
    sql.stop()


@pytest.fixture(scope="module")
def wire(request: pytest.FixtureRequest) -> Iterator[OnWire]:
    on_wire = OnWire(iceberg_url(request))
    yield on_wire
    on_wire.close()


@pytest.fixture(scope="module")
def shared(spark: SparkSql) -> str:
    """A namespace with a table of three people, which tests of views only read."""
    name = f"s{uuid4().hex[:12]}"
    spark(f"CREATE NAMESPACE {name}")
    spark(f"CREATE TABLE {name}.people (id BIGINT, name STRING)")
    spark(f"INSERT INTO {name}.people VALUES {ROWS}")
    return name


@pytest.fixture
def space(spark: SparkSql) -> str:
    """A namespace of the test's own."""
    name = f"s{uuid4().hex[:12]}"
    spark(f"CREATE NAMESPACE {name}")
    return name


@pytest.fixture
def view(spark: SparkSql, shared: str, space: str) -> str:
    """A view of two people."""
    name = f"{space}.later"
    spark(
        f"CREATE VIEW {name} COMMENT 'the later ones' TBLPROPERTIES ('team' = 'tide')"
        f" AS SELECT id, name FROM {shared}.people WHERE id > 1"
    )
    return name


def properties_of(wire: OnWire, space: str) -> dict[str, str]:
    properties: dict[str, str] = wire.view(space, "later").get("properties", {})
    return properties


def current_of(metadata: dict[str, Any]) -> dict[str, Any]:
    wanted = metadata["current-version-id"]
    (current,) = (version for version in metadata["versions"] if version["version-id"] == wanted)
    found: dict[str, Any] = current
    return found


def add_trino_view(wire: OnWire, space: str, properties: dict[str, str]) -> None:
    """As Trino would have made it."""
    column = {"id": 1, "name": "id", "required": False, "type": "long"}
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "trino"},
        "default-namespace": [space],
        "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "trino"}],
    }
    body = {
        "name": "later",
        "schema": {"type": "struct", "schema-id": 0, "fields": [column]},
        "view-version": version,
        "properties": properties,
    }
    assert wire.post(f"namespaces/{space}/views", body).status_code == 200


def test_rows_of_a_table_are_written_changed_and_merged(spark: SparkSql, wire: OnWire, space: str) -> None:
    table = f"{space}.people"
    spark(f"CREATE TABLE {table} (id BIGINT, name STRING) PARTITIONED BY (bucket(2, id))")
    spark(f"INSERT INTO {table} VALUES {ROWS}")
    spark(f"UPDATE {table} SET name = 'bo' WHERE id = 2")
    spark(f"DELETE FROM {table} WHERE id = 1")
    spark(
        f"MERGE INTO {table} old USING (SELECT 3 AS id, 'cyd' AS name UNION ALL SELECT 4, 'di') new"
        " ON old.id = new.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert spark(f"SELECT * FROM {table} ORDER BY id") == [[2, "bo"], [3, "cyd"], [4, "di"]]
    snapshots = wire.table(space, "people")["snapshots"]
    assert [snapshot["summary"]["operation"] for snapshot in snapshots] == ["append", *["overwrite"] * 3]
    assert snapshots[0]["summary"]["engine-name"] == "spark"


def test_an_earlier_state_of_a_table_is_read(spark: SparkSql, wire: OnWire, space: str) -> None:
    table = f"{space}.t"
    spark(f"CREATE TABLE {table} AS SELECT 1L AS id")
    first = wire.table(space, "t")["current-snapshot-id"]
    spark(f"ALTER TABLE {table} CREATE TAG one")
    spark(f"INSERT INTO {table} VALUES (2)")
    assert spark(f"SELECT count(*) FROM {table}") == [[2]]
    assert spark(f"SELECT count(*) FROM {table} VERSION AS OF {first}") == [[1]]
    assert spark(f"SELECT count(*) FROM {table} VERSION AS OF 'one'") == [[1]]
    spark(f"CALL ice.system.rollback_to_snapshot('{table}', {first})")
    assert spark(f"SELECT id FROM {table}") == [[1]]


def test_columns_of_a_table_evolve(spark: SparkSql, wire: OnWire, space: str) -> None:
    table = f"{space}.t"
    spark(f"CREATE TABLE {table} (id INT, name STRING)")
    spark(f"ALTER TABLE {table} ADD COLUMN score DOUBLE COMMENT 'of ten' AFTER id")
    spark(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    spark(f"ALTER TABLE {table} RENAME COLUMN name TO first_name")
    spark(f"ALTER TABLE {table} ADD PARTITION FIELD truncate(2, first_name)")
    metadata = wire.table(space, "t")
    schemas = {schema["schema-id"]: schema for schema in metadata["schemas"]}
    fields = schemas[metadata["current-schema-id"]]["fields"]
    assert [(field["id"], field["name"], field["type"]) for field in fields] == [
        (1, "id", "long"),
        (3, "score", "double"),
        (2, "first_name", "string"),
    ]
    assert len(metadata["partition-specs"]) == 2


def test_a_table_of_format_three_is_made_replaced_and_dropped(
    spark: SparkSql, wire: OnWire, space: str
) -> None:
    table = f"{space}.t"
    spark(f"CREATE TABLE {table} TBLPROPERTIES ('format-version' = '3') AS SELECT 1L AS id")
    uuid = wire.table(space, "t")["table-uuid"]
    spark(f"CREATE OR REPLACE TABLE {table} AS SELECT 'x' AS word")
    replaced = wire.table(space, "t")
    assert (replaced["table-uuid"], replaced["format-version"]) == (uuid, 3)
    assert spark(f"SELECT * FROM {table}") == [["x"]]
    spark(f"DROP TABLE {table} PURGE")
    assert spark(f"SHOW TABLES IN {space}") == []
    spark(f"DROP NAMESPACE {space}")


@pytest.fixture
def planned(spark: SparkSql, space: str) -> str:
    """A table with partitions, one of them null, deleted rows, and values of many types."""
    spark(
        f"CREATE TABLE {space}.t (id BIGINT, name STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE,"
        " bytes BINARY, share FLOAT) PARTITIONED BY (bucket(4, id), name)"
        " TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    spark(
        f"INSERT INTO {space}.t VALUES"
        " (1, 'a/b', 1.5, TIMESTAMP '2024-01-01 01:02:03', DATE '2024-01-01', X'00ff', 1.5),"
        " (2, 'bob', -2, null, null, null, null), (3, null, null, null, null, null, null),"
        " (5, 'bob', 9.25, null, null, null, null)"
    )
    spark(f"DELETE FROM {space}.t WHERE id = 2")
    spark(f"INSERT INTO {space}.t VALUES (4, 'bob', 1, null, DATE '1960-02-03', X'01', 2)")
    return f"planned.{space}.t"


@pytest.mark.skipif(ELSEWHERE is not None, reason="the log of another catalog is not here to read")
def test_scans_that_the_server_plans_find_the_same_rows(
    spark: SparkSql, server: RunningServer, planned: str
) -> None:
    expected = {
        "true": [1, 3, 4, 5],
        "name = 'bob'": [4, 5],
        "name IS NULL": [3],
        "id IN (1, 4)": [1, 4],
        "price > 1": [1, 5],
        "at > TIMESTAMP '2020-01-01 00:00:00'": [1],
        "day < DATE '1990-01-01'": [4],
        "name LIKE 'a%'": [1],
        "NOT (name = 'bob') OR id = 3": [1, 3],
        "share > 1.6 AND bytes = X'01'": [4],
    }
    plans = (server.root / "server.log").read_text().count('/plan"')
    for condition, ids in expected.items():
        found = spark(f"SELECT id FROM {planned} WHERE {condition} ORDER BY id")
        assert found == [[number] for number in ids], condition
    assert (server.root / "server.log").read_text().count('/plan"') >= plans + len(expected)


def test_tables_in_an_object_store_need_no_keys(spark: SparkSql, signing: RunningServer, space: str) -> None:
    name = f"signed.{space}"
    spark(f"CREATE NAMESPACE {name}")
    spark(f"CREATE TABLE {name}.t (id BIGINT, name STRING) PARTITIONED BY (name)")
    spark(f"INSERT INTO {name}.t VALUES (1, 'a/b c%?#'), (2, 'bob'), (3, 'é ü+')")
    spark(f"DELETE FROM {name}.t WHERE id = 2")
    assert spark(f"SELECT * FROM {name}.t ORDER BY id") == [[1, "a/b c%?#"], [3, "é ü+"]]
    spark(f"CALL signed.system.expire_snapshots(table => '{space}.t', older_than => now(), retain_last => 1)")
    assert spark(f"SELECT count(*) FROM {name}.t") == [[2]]
    assert '/sign","status":200' in (signing.root / "server.log").read_text()


def test_a_view_is_selected_from(spark: SparkSql, view: str) -> None:
    assert spark(f"SELECT name FROM {view} ORDER BY id DESC") == [["cy"], ["bob"]]


def test_a_new_view_has_one_version_for_spark(
    spark: SparkSql, wire: OnWire, space: str, shared: str, view: str
) -> None:
    metadata = wire.view(space, "later")
    (version,) = metadata["versions"]
    sql = f"SELECT id, name FROM {shared}.people WHERE id > 1"
    assert version["representations"] == [{"type": "sql", "sql": sql, "dialect": "spark"}]
    assert "iceberg-version" in version["summary"]
    assert [entry["version-id"] for entry in metadata["version-log"]] == [version["version-id"]]
    assert metadata["properties"]["comment"] == "the later ones"
    assert metadata["properties"]["team"] == "tide"


def test_a_replaced_view_keeps_its_uuid_and_gets_a_version_and_a_schema(
    spark: SparkSql, wire: OnWire, space: str, shared: str, view: str
) -> None:
    before = wire.view(space, "later")
    spark(f"CREATE OR REPLACE VIEW {view} (key COMMENT 'of the person') AS SELECT id FROM {shared}.people")
    after = wire.view(space, "later")
    assert spark(f"SELECT key FROM {view} ORDER BY key") == [[1], [2], [3]]
    assert after["view-uuid"] == before["view-uuid"]
    assert after["current-version-id"] == before["current-version-id"] + 1
    assert [entry["version-id"] for entry in after["version-log"]] == [1, 2]
    assert current_of(after)["schema-id"] != current_of(before)["schema-id"]
    assert current_of(after)["representations"][0]["sql"] == f"SELECT id FROM {shared}.people"


def test_a_view_put_back_to_what_it_was_has_that_version_again(
    spark: SparkSql, wire: OnWire, space: str, shared: str, view: str
) -> None:
    ids = f"CREATE OR REPLACE VIEW {view} AS SELECT id FROM {shared}.people"
    spark(ids)
    spark(f"CREATE OR REPLACE VIEW {view} AS SELECT name FROM {shared}.people")
    spark(ids)
    metadata = wire.view(space, "later")
    times = [entry["timestamp-ms"] for entry in metadata["version-log"]]
    assert [entry["version-id"] for entry in metadata["version-log"]] == [1, 2, 3, 2]
    assert [version["version-id"] for version in metadata["versions"]] == [1, 2, 3]
    assert metadata["current-version-id"] == 2
    assert times == sorted(times)


def test_properties_of_a_view_are_set_and_unset(spark: SparkSql, wire: OnWire, space: str, view: str) -> None:
    spark(f"ALTER VIEW {view} SET TBLPROPERTIES ('team' = 'mill', 'tier' = '1')")
    assert properties_of(wire, space)["team"] == "mill"
    spark(f"ALTER VIEW {view} UNSET TBLPROPERTIES ('team')")
    left = properties_of(wire, space)
    assert "team" not in left
    assert left["tier"] == "1"
    assert ["tier", "1"] in spark(f"SHOW TBLPROPERTIES {view}")
    assert len(wire.view(space, "later")["versions"]) == 1


def test_a_property_that_is_not_set_is_unset_only_if_asked_to_try(spark: SparkSql, view: str) -> None:
    with pytest.raises(SqlFailed, match="Cannot remove property that is not set: 'never'"):
        spark(f"ALTER VIEW {view} UNSET TBLPROPERTIES ('never')")
    spark(f"ALTER VIEW {view} UNSET TBLPROPERTIES IF EXISTS ('never')")


def test_a_history_of_no_versions_is_refused(spark: SparkSql, wire: OnWire, space: str, view: str) -> None:
    with pytest.raises(SqlFailed, match=r"version\.history\.num-entries must be positive but was 0"):
        spark(f"ALTER VIEW {view} SET TBLPROPERTIES ('version.history.num-entries' = '0')")
    assert "version.history.num-entries" not in properties_of(wire, space)


def test_a_view_is_renamed(spark: SparkSql, wire: OnWire, space: str, view: str) -> None:
    uuid = wire.view(space, "later")["view-uuid"]
    spark(f"ALTER VIEW {view} RENAME TO {space}.sooner")
    assert wire.view(space, "sooner")["view-uuid"] == uuid
    assert wire.get(object_path("views", space, "later")).status_code == 404
    assert spark(f"SELECT count(*) FROM {space}.sooner") == [[2]]


def test_a_view_is_not_renamed_onto_a_table(spark: SparkSql, space: str, view: str) -> None:
    spark(f"CREATE TABLE {space}.taken (id BIGINT)")
    with pytest.raises(SqlFailed, match="ALREADY_EXISTS"):
        spark(f"ALTER VIEW {view} RENAME TO {space}.taken")
    assert spark(f"SELECT count(*) FROM {view}") == [[2]]


def test_views_are_shown_apart_from_tables(spark: SparkSql, space: str, view: str) -> None:
    spark(f"CREATE TABLE {space}.t (id BIGINT)")
    assert spark(f"SHOW VIEWS IN {space}") == [[space, "later", False]]
    assert spark(f"SHOW TABLES IN {space}") == [[space, "t", False]]


def test_a_view_describes_itself(spark: SparkSql, view: str) -> None:
    described = {name: (kind, comment) for name, kind, comment in spark(f"DESCRIBE EXTENDED {view}")}
    assert described["id"][0] == "bigint"
    assert described["Comment"][0] == "the later ones"
    assert "'team' = 'tide'" in described["View Properties"][0]
    assert f"CREATE VIEW ice.{view}" in spark(f"SHOW CREATE TABLE {view}")[0][0]


def test_a_name_is_taken_once_by_a_view_or_a_table(spark: SparkSql, space: str, view: str) -> None:
    spark(f"CREATE TABLE {space}.t (id BIGINT)")
    with pytest.raises(SqlFailed, match="VIEW_ALREADY_EXISTS"):
        spark(f"CREATE VIEW {view} AS SELECT 1 AS id")
    with pytest.raises(SqlFailed, match="VIEW_ALREADY_EXISTS"):
        spark(f"CREATE VIEW {space}.t AS SELECT 1 AS id")
    with pytest.raises(SqlFailed, match="ALREADY_EXISTS"):
        spark(f"CREATE TABLE {view} (id BIGINT)")
    spark(f"CREATE VIEW IF NOT EXISTS {view} AS SELECT 1 AS id")
    assert spark(f"SELECT count(*) FROM {view}") == [[2]]


def test_a_view_is_dropped_and_only_as_a_view(spark: SparkSql, wire: OnWire, space: str, view: str) -> None:
    with pytest.raises(SqlFailed, match="NOT_FOUND"):
        spark(f"DROP TABLE {view}")
    spark(f"DROP VIEW {view}")
    assert wire.get(object_path("views", space, "later")).status_code == 404
    with pytest.raises(SqlFailed, match="VIEW_NOT_FOUND"):
        spark(f"DROP VIEW {view}")
    spark(f"DROP VIEW IF EXISTS {view}")
    with pytest.raises(SqlFailed, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark(f"SELECT * FROM {view}")


def test_a_replace_that_would_lose_a_dialect_is_refused(spark: SparkSql, wire: OnWire, space: str) -> None:
    add_trino_view(wire, space, {})
    with pytest.raises(SqlFailed, match="due to loss of view dialects"):
        spark(f"CREATE OR REPLACE VIEW {space}.later AS SELECT 2 AS id")
    assert current_of(wire.view(space, "later"))["representations"][0]["dialect"] == "trino"


def test_a_replace_may_lose_a_dialect_where_the_view_allows_it(
    spark: SparkSql, wire: OnWire, space: str
) -> None:
    add_trino_view(wire, space, {"replace.drop-dialect.allowed": "true"})
    spark(f"CREATE OR REPLACE VIEW {space}.later AS SELECT 2 AS id")
    assert spark(f"SELECT * FROM {space}.later") == [[2]]
    assert [part["dialect"] for part in current_of(wire.view(space, "later"))["representations"]] == ["spark"]
