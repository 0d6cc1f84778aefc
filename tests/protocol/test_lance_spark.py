"""Spark SQL through the Lance connector as it is published: namespaces, tables, rows, versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace

from tests.conftest import RunningServer
from tests.interop.lance_spark import ConnectorMissing, SparkSql, SqlFailed, fetched
from tests.protocol.wire import TableOnWire

# The first test may have to fetch the connector and its Spark.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

READING = ("DescribeTable", "ListTableVersions")
WRITING = (*READING, "CreateTableVersion")
MANY = 130


@pytest.fixture(scope="module")
def spark(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    try:
        connector = fetched()
    except ConnectorMissing as missing:
        pytest.skip(str(missing))
    sql = SparkSql(connector, server.url, tmp_path_factory.mktemp("spark") / "spark.log")
    yield sql
    sql.stop()


@pytest.fixture
def people(spark: SparkSql, namespace: str) -> str:
    """A table of three people in two versions: one without rows, one with all."""
    name = f"lance.{namespace}.people"
    spark(f"CREATE TABLE {name} (id BIGINT NOT NULL, name STRING)")
    spark(f"INSERT INTO {name} VALUES (1, 'ann'), (2, 'bob'), (3, 'cy')")
    return name


@pytest.fixture
def on_wire(http: httpx.Client, namespace: str) -> TableOnWire:
    return TableOnWire(http, namespace, "people")


def rows_of(spark: SparkSql, name: str) -> list[list[Any]]:
    return spark(f"SELECT * FROM {name} ORDER BY id")


def tables_in(spark: SparkSql, namespace: str) -> list[str]:
    return [name for _, name, _ in spark(f"SHOW TABLES IN lance.{namespace}")]


@pytest.mark.operation("ListNamespaces", "CreateNamespace", "NamespaceExists", client="spark")
def test_namespaces_are_created_and_shown(spark: SparkSql, namespace: str) -> None:
    spark(f"CREATE NAMESPACE lance.{namespace}.inner")
    assert [namespace] in spark("SHOW NAMESPACES IN lance")
    assert spark(f"SHOW NAMESPACES IN lance.{namespace}") == [[f"{namespace}.inner"]]


@pytest.mark.operation("CreateNamespace", "DescribeNamespace", client="spark")
def test_a_namespace_keeps_its_properties(spark: SparkSql, namespace: str) -> None:
    spark(f"CREATE NAMESPACE lance.{namespace}.inner WITH PROPERTIES ('team' = 'tide')")
    described = spark(f"DESCRIBE NAMESPACE EXTENDED lance.{namespace}.inner")
    assert ["Properties", "((team,tide))"] in described


@pytest.mark.operation("CreateNamespace", "NamespaceExists", client="spark")
def test_a_namespace_is_created_once(spark: SparkSql, namespace: str) -> None:
    with pytest.raises(SqlFailed, match="SCHEMA_ALREADY_EXISTS"):
        spark(f"CREATE NAMESPACE lance.{namespace}")
    spark(f"CREATE NAMESPACE IF NOT EXISTS lance.{namespace}")


@pytest.mark.operation("DropNamespace", client="spark")
def test_a_namespace_with_tables_is_dropped_only_by_cascade(
    spark: SparkSql, namespace: str, people: str
) -> None:
    with pytest.raises(SqlFailed, match="not empty"):
        spark(f"DROP NAMESPACE lance.{namespace}")
    assert rows_of(spark, people) == [[1, "ann"], [2, "bob"], [3, "cy"]]
    spark(f"DROP NAMESPACE lance.{namespace} CASCADE")
    assert [namespace] not in spark("SHOW NAMESPACES IN lance")


@pytest.mark.operation("DeclareTable", "TableExists", *WRITING, client="spark")
def test_rows_are_inserted_and_found_by_a_condition(spark: SparkSql, people: str) -> None:
    assert spark(f"SELECT name FROM {people} WHERE id > 1 ORDER BY id") == [["bob"], ["cy"]]
    spark(f"INSERT INTO {people} VALUES (4, NULL)")
    assert rows_of(spark, people)[-1] == [4, None]
    assert spark(f"SELECT count(*) FROM {people} WHERE name IS NULL") == [[1]]


@pytest.mark.operation("DescribeTable", client="spark")
def test_a_table_is_described_with_its_columns(spark: SparkSql, people: str) -> None:
    assert spark(f"DESCRIBE TABLE {people}")[:2] == [["id", "bigint", None], ["name", "string", None]]


@pytest.mark.operation("TableExists", "DeclareTable", client="spark")
def test_a_table_is_created_once(spark: SparkSql, people: str) -> None:
    with pytest.raises(SqlFailed, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark(f"CREATE TABLE {people} (other INT)")
    spark(f"CREATE TABLE IF NOT EXISTS {people} (other INT)")
    assert len(rows_of(spark, people)) == 3


@pytest.mark.operation("DescribeTable", client="spark")
def test_a_table_that_does_not_exist_is_not_found(spark: SparkSql, namespace: str) -> None:
    with pytest.raises(SqlFailed, match=r"TABLE_OR_VIEW_NOT_FOUND|does not exist"):
        spark(f"SELECT * FROM lance.{namespace}.nowhere")


@pytest.mark.operation("DescribeTable", "DescribeTableVersion", client="spark")
def test_older_versions_can_be_read(spark: SparkSql, people: str) -> None:
    spark(f"INSERT INTO {people} VALUES (4, 'di')")
    counts = [spark(f"SELECT count(*) FROM {people} VERSION AS OF {number}") for number in (1, 2, 3)]
    assert counts == [[[0]], [[3]], [[4]]]


@pytest.mark.operation("DescribeTable", client="spark")
def test_a_version_that_does_not_exist_is_refused(spark: SparkSql, people: str) -> None:
    with pytest.raises(SqlFailed, match="has no version 99"):
        spark(f"SELECT count(*) FROM {people} VERSION AS OF 99")


@pytest.mark.operation(*WRITING, client="spark")
def test_rows_are_updated_deleted_and_merged(spark: SparkSql, people: str, on_wire: TableOnWire) -> None:
    spark(f"UPDATE {people} SET name = 'eve' WHERE id = 1")
    spark(f"DELETE FROM {people} WHERE id = 2")
    spark(
        f"MERGE INTO {people} t USING (SELECT 3L AS id, 'moe' AS name UNION ALL SELECT 9L, 'nan') s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows_of(spark, people) == [[1, "eve"], [3, "moe"], [9, "nan"]]
    assert on_wire.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.operation("DeclareTable", *WRITING, client="spark")
def test_a_table_is_made_from_a_query_and_overwritten(spark: SparkSql, namespace: str) -> None:
    name = f"lance.{namespace}.numbers"
    spark(f"CREATE TABLE {name} AS SELECT id, id * 2 AS twice FROM range(10)")
    assert spark(f"SELECT count(*), sum(twice) FROM {name}") == [[10, 90]]
    spark(f"INSERT OVERWRITE {name} SELECT id, id * 3 FROM range(3)")
    assert rows_of(spark, name) == [[0, 0], [1, 3], [2, 6]]


@pytest.mark.operation("ListTables", client="spark")
def test_all_tables_are_shown(spark: SparkSql, http: httpx.Client, namespace: str) -> None:
    names = [f"t{number:03}" for number in range(MANY)]
    for name in names:
        TableOnWire(http, namespace, name).asked("declare", {})
    assert tables_in(spark, namespace) == names


@pytest.mark.operation("DeregisterTable", client="spark")
def test_a_dropped_table_keeps_its_data(
    spark: SparkSql, namespace: str, people: str, on_wire: TableOnWire
) -> None:
    directory = on_wire.directory
    spark(f"DROP TABLE {people}")
    assert tables_in(spark, namespace) == []
    assert on_wire.post("describe").status_code == 404
    assert lance.dataset(str(directory)).to_table()["id"].to_pylist() == [1, 2, 3]


@pytest.mark.operation("DropTable", client="spark")
def test_a_purged_table_is_gone_with_its_data(
    spark: SparkSql, namespace: str, people: str, on_wire: TableOnWire
) -> None:
    directory = on_wire.directory
    spark(f"DROP TABLE {people} PURGE")
    assert tables_in(spark, namespace) == []
    assert not directory.exists()
    spark(f"CREATE TABLE {people} (id BIGINT)")
    assert rows_of(spark, people) == []


@pytest.mark.operation("RenameTable", client="http")
def test_a_renamed_table_is_found_under_its_new_name_only(
    spark: SparkSql, namespace: str, people: str, on_wire: TableOnWire
) -> None:
    on_wire.asked("rename", {"new_table_name": "folk"})
    assert tables_in(spark, namespace) == ["folk"]
    spark(f"INSERT INTO lance.{namespace}.folk VALUES (4, 'di')")
    assert [number for number, _ in rows_of(spark, f"lance.{namespace}.folk")] == [1, 2, 3, 4]
    with pytest.raises(SqlFailed):
        rows_of(spark, people)


@pytest.mark.operation("RegisterTable", client="http")
def test_a_dropped_table_can_be_registered_again(
    spark: SparkSql, namespace: str, people: str, on_wire: TableOnWire
) -> None:
    directory = on_wire.directory
    spark(f"DROP TABLE {people}")
    on_wire.asked("register", {"location": str(directory)})
    spark(f"INSERT INTO {people} VALUES (4, 'di')")
    assert [number for number, _ in rows_of(spark, people)] == [1, 2, 3, 4]


@pytest.mark.operation(*WRITING, client="spark")
@pytest.mark.operation(*WRITING, client="pylance")
def test_spark_and_pylance_write_in_turns(
    spark: SparkSql, people: str, rest: RestNamespace, on_wire: TableOnWire
) -> None:
    more = pa.table({"id": pa.array([4], pa.int64()), "name": ["di"]}, schema=_schema())
    lance.write_dataset(more, namespace_client=rest, table_id=on_wire.levels, mode="append")
    assert rows_of(spark, people)[-1] == [4, "di"]
    spark(f"DELETE FROM {people} WHERE id < 3")
    opened = lance.dataset(namespace_client=rest, table_id=on_wire.levels)
    opened.update({"name": "upper(name)"}, where="id = 3")
    spark(f"INSERT INTO {people} VALUES (5, 'ed')")
    assert rows_of(spark, people) == [[3, "CY"], [4, "di"], [5, "ed"]]
    assert on_wire.numbers() == [1, 2, 3, 4, 5, 6]


@pytest.mark.operation(*READING, client="spark")
@pytest.mark.operation("CreateTable", client="http")
def test_a_table_made_over_http_is_read_and_written_by_spark(
    spark: SparkSql, http: httpx.Client, namespace: str
) -> None:
    made = TableOnWire(http, namespace, "made")
    made.create(pa.table({"id": [1, 2], "name": ["ann", "bob"]}))
    name = f"lance.{namespace}.made"
    assert rows_of(spark, name) == [[1, "ann"], [2, "bob"]]
    spark(f"UPDATE {name} SET name = 'eve' WHERE id = 2")
    assert made.post("count_rows", {"predicate": "name = 'eve'"}).json() == 1


def _schema() -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
