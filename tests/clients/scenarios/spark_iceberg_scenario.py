"""Spark SQL with Iceberg's runtime: a REST catalog with OAuth2, as Iceberg's manual configures it."""

import os
import sys

from pyspark.sql import Row, SparkSession
from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

JAVA_HOME, JARS = sys.argv[1:3]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.jars": JARS,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.defaultCatalog": "lake",
    "spark.sql.warehouse.dir": "/nonexistent",
}


def catalog(name, credential, **options):
    key = f"spark.sql.catalog.{name}"
    given = {
        "type": "rest",
        "uri": ICEBERG_URL,
        "warehouse": WAREHOUSE,
        "rest.auth.type": "oauth2",
        "credential": credential,
        "oauth2-server-uri": f"{ICEBERG_URL}/v1/oauth/tokens",
        **options,
    }
    return {key: "org.apache.iceberg.spark.SparkCatalog", **{f"{key}.{one}": to for one, to in given.items()}}


def main(spark):
    def sql(statement):
        return [tuple(row) for row in spark.sql(statement).collect()]

    def fails(statement, *words):
        refused(lambda: sql(statement), *words)

    with operation("wrong OAuth2 credential"):
        fails("SHOW NAMESPACES IN stranger", "NotAuthorized")
    with operation("create namespace"):
        sql("CREATE NAMESPACE sales COMMENT 'of all' WITH PROPERTIES ('floor' = 'two')")
        sql("CREATE NAMESPACE sales.eu")
        sql("CREATE NAMESPACE IF NOT EXISTS sales")
        check(sql("SHOW NAMESPACES"), [("sales",)])
        check(sql("SHOW NAMESPACES IN sales"), [("sales.eu",)])
    with operation("alter and describe namespace"):
        sql("ALTER NAMESPACE sales SET PROPERTIES ('team' = 'red')")
        described = dict(sql("DESCRIBE NAMESPACE EXTENDED sales"))
        check(described["Comment"], "of all")
        assert "(team,red)" in described["Properties"], described
    with operation("create table"):
        sql(
            "CREATE TABLE sales.orders (id BIGINT NOT NULL COMMENT 'key', day DATE, amount DECIMAL(9,2),"
            " note STRING) USING iceberg PARTITIONED BY (days(day), bucket(4, id))"
            " TBLPROPERTIES ('format-version' = '2')"
        )
        fails("CREATE TABLE sales.orders (id BIGINT) USING iceberg", "already exists")
        check([name for _, name, _ in sql("SHOW TABLES IN sales")], ["orders"])
    with operation("insert"):
        sql(
            "INSERT INTO sales.orders VALUES (1, DATE '2026-01-01', 10.5, 'first'),"
            " (2, DATE '2026-01-02', 20, NULL), (3, DATE '2026-02-01', 30, 'third')"
        )
        check(sql("SELECT count(*), sum(id), max(note) FROM sales.orders"), [(3, 6, "third")])
        sql("INSERT OVERWRITE sales.orders SELECT 3, DATE '2026-02-01', 33, 'over'")
    with operation("create table as select"):
        sql("CREATE TABLE sales.copied USING iceberg AS SELECT id, note FROM sales.orders")
        check(sql("SELECT * FROM sales.copied"), [(3, "over")])
        sql("CREATE OR REPLACE TABLE sales.copied USING iceberg AS SELECT 7 AS id, 'x' AS note")
        sql("REPLACE TABLE sales.copied USING iceberg AS SELECT 8 AS id, 'y' AS note")
        check(sql("SELECT * FROM sales.copied"), [(8, "y")])
    with operation("DataFrameWriterV2"):
        frame = spark.createDataFrame([Row(id=9, note="z")])
        frame.writeTo("sales.frames").using("iceberg").tableProperty("owner", "ann").create()
        frame.writeTo("sales.frames").append()
        frame.writeTo("sales.frames").overwritePartitions()
        check(spark.table("sales.frames").count(), 1)
    with operation("update, delete and merge"):
        sql("INSERT INTO sales.orders VALUES (1, DATE '2026-01-01', 1, 'a'), (2, DATE '2026-01-02', 2, 'b')")
        sql("UPDATE sales.orders SET note = 'updated' WHERE id = 2")
        sql("DELETE FROM sales.orders WHERE id = 1")
        sql(
            "MERGE INTO sales.orders t USING (SELECT 2 AS id, 'merged' AS note UNION ALL SELECT 4, 'new') s"
            " ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.note = s.note"
            " WHEN NOT MATCHED THEN INSERT (id, day, note) VALUES (s.id, DATE '2026-03-01', s.note)"
        )
        found = sql("SELECT id, note FROM sales.orders ORDER BY id")
        check(found, [(2, "merged"), (3, "over"), (4, "new")])
    with operation("merge-on-read deletes"):
        sql("ALTER TABLE sales.orders SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        sql("DELETE FROM sales.orders WHERE note = 'new'")
        check(sql("SELECT id FROM sales.orders ORDER BY id"), [(2,), (3,)])
    with operation("format version 3"):
        sql(
            "CREATE TABLE sales.third (id BIGINT, v VARIANT, at TIMESTAMP) USING iceberg TBLPROPERTIES"
            " ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        sql("""INSERT INTO sales.third SELECT id, parse_json('{"a": ' || id || '}'), now() FROM range(4)""")
        sql("DELETE FROM sales.third WHERE id = 2")
        found = sql("SELECT id, variant_get(v, '$.a', 'int'), _row_id FROM sales.third ORDER BY id")
        check([(one, value) for one, value, _ in found], [(0, 0), (1, 1), (3, 3)])
        check(len({row for _, _, row in found}), 3)
    with operation("alter table: columns"):
        sql(
            "ALTER TABLE sales.orders ADD COLUMNS"
            " (qty INT COMMENT 'pieces', place STRUCT<x: DOUBLE, y: DOUBLE>)"
        )
        sql("ALTER TABLE sales.orders RENAME COLUMN note TO remark")
        sql("ALTER TABLE sales.orders ALTER COLUMN qty TYPE BIGINT")
        sql("ALTER TABLE sales.orders ALTER COLUMN qty FIRST")
        sql("ALTER TABLE sales.orders ALTER COLUMN id DROP NOT NULL")
        sql("ALTER TABLE sales.orders ADD COLUMN place.z DOUBLE")
        sql("ALTER TABLE sales.orders DROP COLUMN amount")
        check(spark.table("sales.orders").columns, ["qty", "id", "day", "remark", "place"])
        check(sql("SELECT remark, qty FROM sales.orders WHERE id = 2"), [("merged", None)])
    with operation("alter table: partitions and order"):
        sql("ALTER TABLE sales.orders DROP PARTITION FIELD days(day)")
        sql("ALTER TABLE sales.orders ADD PARTITION FIELD truncate(2, remark)")
        sql("ALTER TABLE sales.orders WRITE ORDERED BY id")
        sql("INSERT INTO sales.orders (id, remark) VALUES (6, 'six')")
        check(len(sql("SELECT DISTINCT spec_id FROM sales.orders.files")), 2)
    with operation("metadata tables"):
        assert len(sql("SELECT snapshot_id FROM sales.orders.snapshots")) >= 6
        assert sql("SELECT * FROM sales.orders.history")
        assert sql("SELECT * FROM sales.orders.manifests")
        check(sql("SELECT name, type FROM sales.orders.refs"), [("main", "BRANCH")])
        assert sql("SELECT file FROM sales.orders.metadata_log_entries")
    with operation("time travel"):
        first = sql("SELECT snapshot_id FROM sales.orders.snapshots ORDER BY committed_at")[0][0]
        check(sql(f"SELECT count(*) FROM sales.orders VERSION AS OF {first}"), [(3,)])
        check(sql("SELECT count(*) FROM sales.orders TIMESTAMP AS OF current_timestamp()"), [(3,)])
    with operation("branches and tags"):
        sql(f"ALTER TABLE sales.orders CREATE TAG first AS OF VERSION {first} RETAIN 7 DAYS")
        sql("ALTER TABLE sales.orders CREATE BRANCH audit")
        sql("INSERT INTO sales.orders.branch_audit (id) VALUES (7)")
        check(sql("SELECT count(*) FROM sales.orders VERSION AS OF 'audit'"), [(4,)])
        check(sql("SELECT count(*) FROM sales.orders VERSION AS OF 'first'"), [(3,)])
        sql("CALL lake.system.fast_forward('sales.orders', 'main', 'audit')")
        check(sql("SELECT count(*) FROM sales.orders"), [(4,)])
        sql("ALTER TABLE sales.orders DROP BRANCH audit")
        sql("ALTER TABLE sales.orders DROP TAG first")
    with operation("procedures"):
        sql(f"CALL lake.system.rollback_to_snapshot('sales.orders', {first})")
        check(sql("SELECT count(*) FROM sales.orders"), [(3,)])
        sql(
            "CALL lake.system.rewrite_data_files("
            "table => 'sales.orders', options => map('rewrite-all', 'true'))"
        )
        sql("CALL lake.system.rewrite_manifests('sales.orders')")
        sql(
            "CALL lake.system.expire_snapshots(table => 'sales.orders', retain_last => 1,"
            " older_than => TIMESTAMP '2999-01-01 00:00:00')"
        )
        check(sql("SELECT count(*) FROM sales.orders"), [(3,)])
        check(len(sql("SELECT * FROM sales.orders.snapshots")), 1)
    with operation("views"):
        sql(
            "CREATE VIEW sales.notes (key COMMENT 'id', remark) COMMENT 'short'"
            " AS SELECT id, note FROM sales.copied"
        )
        check(sql("SELECT * FROM sales.notes"), [(8, "y")])
        sql("CREATE OR REPLACE VIEW sales.notes AS SELECT count(*) AS n FROM sales.copied")
        sql("ALTER VIEW sales.notes SET TBLPROPERTIES ('team' = 'red')")
        check(sql("SELECT n FROM sales.notes"), [(1,)])
        check([name for _, name, _ in sql("SHOW VIEWS IN sales")], ["notes"])
        assert ("team", "red") in sql("SHOW TBLPROPERTIES sales.notes")
        sql("ALTER VIEW sales.notes RENAME TO sales.counted")
        sql("DROP VIEW sales.counted")
        fails("SELECT * FROM sales.counted", "cannot be found")
    with operation("scan planned by the server"):
        check(sql("SELECT id FROM planned.sales.orders WHERE id > 1 ORDER BY id"), [(2,), (3,)])
    with operation("rename table"):
        sql("ALTER TABLE sales.copied RENAME TO sales.eu.moved")
        check(sql("SELECT id FROM sales.eu.moved"), [(8,)])
        fails("SELECT * FROM sales.copied", "cannot be found")
    with operation("register table"):
        last = sql("SELECT file FROM sales.eu.moved.metadata_log_entries ORDER BY timestamp DESC")[0][0]
        sql("DROP TABLE sales.eu.moved")
        sql(f"CALL lake.system.register_table(table => 'sales.eu.again', metadata_file => '{last}')")
        check(sql("SELECT id FROM sales.eu.again"), [(8,)])
    with operation("drop table and namespace"):
        fails("DROP NAMESPACE sales", "not empty")
        for table in ("orders", "frames", "third", "eu.again"):
            sql(f"DROP TABLE sales.{table} PURGE")
        fails("SELECT * FROM sales.orders", "cannot be found")
        sql("DROP NAMESPACE sales.eu")
        sql("DROP NAMESPACE sales")
        check(sql("SHOW NAMESPACES"), [])


os.environ["JAVA_HOME"] = JAVA_HOME
os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[1]")
settings = SETTINGS | catalog("lake", CREDENTIAL) | catalog("stranger", f"{CREDENTIAL}x")
for key, value in (settings | catalog("planned", CREDENTIAL, **{"scan-planning-mode": "server"})).items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
try:
    main(session)
finally:
    session.stop()
