"""Sail, a Spark Connect server: the catalog by its configuration, Spark SQL on it."""

import json
import os
import urllib.parse
import urllib.request

from trying import CREDENTIAL, ICEBERG_URL, WAREHOUSE, check, operation, refused

identity, secret = CREDENTIAL.split(":")
form = {"grant_type": "client_credentials", "client_id": identity, "client_secret": secret}
asked = urllib.request.urlopen(f"{ICEBERG_URL}/v1/oauth/tokens", urllib.parse.urlencode(form).encode())
token = json.load(asked)["access_token"]
os.environ["SAIL_CATALOG__LIST"] = (
    f'[{{type="iceberg-rest", name="lake", uri="{ICEBERG_URL}", warehouse="{WAREHOUSE}", '
    f'oauth_access_token="{token}"}}]'
)
os.environ["SAIL_CATALOG__DEFAULT_CATALOG"] = "lake"

from pysail.spark import SparkConnectServer  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

server = SparkConnectServer("127.0.0.1", 0)
server.start()
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()


def rows(query):
    return sorted(tuple(row) for row in spark.sql(query).collect())


with operation("create namespace"):
    spark.sql("CREATE DATABASE sales")
    spark.sql("CREATE DATABASE IF NOT EXISTS sales")
    refused(lambda: spark.sql("CREATE DATABASE sales"), "409")
with operation("list namespaces"):
    assert "sales" in [one.name for one in spark.catalog.listDatabases()]
with operation("create table"):
    spark.sql("CREATE TABLE sales.people (id BIGINT, name STRING) USING iceberg")
    check(rows("SELECT * FROM sales.people"), [])
with operation("insert"):
    spark.sql("INSERT INTO sales.people VALUES (1, 'ann'), (2, 'bob')")
    check(rows("SELECT * FROM sales.people"), [(1, "ann"), (2, "bob")])
with operation("insert again"):
    spark.sql("INSERT INTO sales.people VALUES (3, 'cy')")
    check(rows("SELECT name FROM sales.people WHERE id > 1"), [("bob",), ("cy",)])
with operation("create table as"):
    spark.sql("CREATE TABLE sales.copy USING iceberg AS SELECT * FROM sales.people")
    check(len(rows("SELECT * FROM sales.copy")), 3)
with operation("overwrite"):
    spark.sql("INSERT OVERWRITE sales.people VALUES (9, 'zoe')")
    check(rows("SELECT * FROM sales.people"), [(9, "zoe")])
with operation("delete"):
    spark.sql("INSERT INTO sales.people VALUES (4, 'dan')")
    spark.sql("DELETE FROM sales.people WHERE id = 4")
    check(rows("SELECT * FROM sales.people"), [(9, "zoe")])
with operation("merge"):
    spark.sql(
        "MERGE INTO sales.people AS old USING (SELECT 9 AS id, 'zed' AS name) AS new ON old.id = new.id "
        "WHEN MATCHED THEN UPDATE SET name = new.name WHEN NOT MATCHED THEN INSERT *"
    )
    check(rows("SELECT * FROM sales.people"), [(9, "zed")])
with operation("data frame writer"):
    frame = spark.createDataFrame([(5, "eve")], "id BIGINT, name STRING")
    frame.writeTo("sales.frames").using("iceberg").create()
    check([tuple(row) for row in spark.table("sales.frames").collect()], [(5, "eve")])
with operation("list tables"):
    assert "people" in [one.name for one in spark.catalog.listTables("sales")]
with operation("bad input"):
    refused(lambda: rows("SELECT * FROM sales.nobody"), "nobody")
with operation("drop table"):
    spark.sql("DROP TABLE sales.people")
    refused(lambda: rows("SELECT * FROM sales.people"))
with operation("views"):
    spark.sql("CREATE VIEW sales.shown AS SELECT 1 AS id")
    check(rows("SELECT * FROM sales.shown"), [(1,)])
    spark.sql("DROP VIEW sales.shown")
spark.stop()
server.stop()
