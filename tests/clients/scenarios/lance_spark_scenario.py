"""The Lance connector for Spark on a REST namespace with an API key, in Spark SQL."""

import json
import sys

from pyspark.sql import Row, SparkSession
from trying import CREDENTIAL, URL, check, operation, refused

SETTINGS = json.loads(sys.argv[1])
KEY = "spark.sql.catalog"


def catalog(name, credential):
    return {
        f"{KEY}.{name}": "org.lance.spark.LanceNamespaceSparkCatalog",
        f"{KEY}.{name}.impl": "rest",
        f"{KEY}.{name}.uri": URL,
        f"{KEY}.{name}.header.x-api-key": credential,
    }


def main(spark):
    def sql(statement):
        return [tuple(row) for row in spark.sql(statement).collect()]

    def fails(statement, *words):
        refused(lambda: sql(statement), *words)

    with operation("wrong API key"):
        fails("SHOW NAMESPACES IN stranger")
    with operation("create and show namespaces"):
        sql("CREATE NAMESPACE lance.shop WITH PROPERTIES ('team' = 'red')")
        sql("CREATE NAMESPACE lance.shop.eu")
        sql("CREATE NAMESPACE IF NOT EXISTS lance.shop")
        fails("CREATE NAMESPACE lance.shop", "SCHEMA_ALREADY_EXISTS")
        check(sql("SHOW NAMESPACES IN lance"), [("shop",)])
        check(sql("SHOW NAMESPACES IN lance.shop"), [("shop.eu",)])
        assert ("Properties", "((team,red))") in sql("DESCRIBE NAMESPACE EXTENDED lance.shop")
    with operation("create table"):
        sql("CREATE TABLE lance.shop.users (id BIGINT NOT NULL, name STRING, score DOUBLE)")
        fails("CREATE TABLE lance.shop.users (id BIGINT)", "ALREADY_EXISTS")
        sql("CREATE TABLE IF NOT EXISTS lance.shop.users (id BIGINT)")
        check([name for _, name, _ in sql("SHOW TABLES IN lance.shop")], ["users"])
        check(sql("DESCRIBE TABLE lance.shop.users")[0][:2], ("id", "bigint"))
    with operation("insert and select"):
        sql("INSERT INTO lance.shop.users VALUES (1, 'ann', 1.5), (2, 'bob', 2.5), (3, NULL, 3.5)")
        check(sql("SELECT name FROM lance.shop.users WHERE id > 1 ORDER BY id"), [("bob",), (None,)])
        check(sql("SELECT count(*), sum(score) FROM lance.shop.users"), [(3, 7.5)])
    with operation("create table as select and overwrite"):
        sql("CREATE TABLE lance.shop.numbers AS SELECT id, id * 2 AS twice FROM range(10)")
        check(sql("SELECT count(*), sum(twice) FROM lance.shop.numbers"), [(10, 90)])
        sql("INSERT OVERWRITE lance.shop.numbers SELECT id, id * 3 FROM range(3)")
        check(sql("SELECT twice FROM lance.shop.numbers ORDER BY id"), [(0,), (3,), (6,)])
    with operation("DataFrameWriterV2"):
        frame = spark.createDataFrame([Row(id=4, name="dee", score=4.5)])
        frame.writeTo("lance.shop.users").append()
        check(spark.table("lance.shop.users").count(), 4)
    with operation("update, delete and merge"):
        sql("UPDATE lance.shop.users SET name = 'eve' WHERE id = 1")
        sql("DELETE FROM lance.shop.users WHERE id = 2")
        sql(
            "MERGE INTO lance.shop.users t USING (SELECT 3L AS id, 'moe' AS name, 1D AS score"
            " UNION ALL SELECT 9L, 'nan', 2D) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
        )
        found = sql("SELECT id, name FROM lance.shop.users ORDER BY id")
        check(found, [(1, "eve"), (3, "moe"), (4, "dee"), (9, "nan")])
    with operation("time travel"):
        check(sql("SELECT count(*) FROM lance.shop.users VERSION AS OF 2"), [(3,)])
        fails("SELECT count(*) FROM lance.shop.users VERSION AS OF 99", "99")
    with operation("drop table"):
        sql("DROP TABLE lance.shop.numbers PURGE")
        fails("SELECT * FROM lance.shop.numbers")
        sql("DROP TABLE lance.shop.users")
        check(sql("SHOW TABLES IN lance.shop"), [])
    with operation("drop namespace"):
        fails("DROP NAMESPACE lance.shop")
        sql("DROP NAMESPACE lance.shop CASCADE")
        check(sql("SHOW NAMESPACES IN lance"), [])


settings = SETTINGS | catalog("lance", CREDENTIAL) | catalog("stranger", f"{CREDENTIAL}x")
session = SparkSession.builder.config(map=settings).getOrCreate()
try:
    main(session)
finally:
    session.stop()
