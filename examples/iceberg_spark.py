"""Iceberg with Spark: Spark SQL writes, merges and travels in time through the catalog of the server.

Spark needs Java 17 to 21 (on the PATH or as JAVA_HOME) and downloads Iceberg's runtime on the first run.
"""

import sys
from tempfile import TemporaryDirectory

from pyspark import SparkConf
from pyspark.sql import SparkSession

import tidemill

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def session(url: str) -> SparkSession:
    settings = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.jars.packages": RUNTIME,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": f"{url}/iceberg",
        "spark.sql.catalog.lake.warehouse": "tidemill",
        "spark.sql.defaultCatalog": "lake",
    }
    return SparkSession.builder.config(conf=SparkConf().setAll(list(settings.items()))).getOrCreate()


def main(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE stock")
    spark.sql("CREATE TABLE stock.grain (kind STRING, tonnes INT) USING iceberg")
    spark.sql("INSERT INTO stock.grain VALUES ('rye', 10), ('wheat', 25)")
    first = spark.sql("SELECT snapshot_id FROM stock.grain.snapshots").first()
    assert first is not None

    spark.sql("""
        MERGE INTO stock.grain AS stored
        USING (SELECT * FROM VALUES ('wheat', 5), ('oats', 8) AS delivery (kind, tonnes)) AS delivered
        ON stored.kind = delivered.kind
        WHEN MATCHED THEN UPDATE SET tonnes = stored.tonnes + delivered.tonnes
        WHEN NOT MATCHED THEN INSERT *
    """)
    spark.sql("CREATE VIEW stock.plenty AS SELECT kind FROM stock.grain WHERE tonnes >= 10")

    rows = spark.sql("SELECT kind, tonnes FROM stock.grain ORDER BY kind").collect()
    print(rows)
    assert [tuple(row) for row in rows] == [("oats", 8), ("rye", 10), ("wheat", 30)]
    before = spark.sql(f"SELECT sum(tonnes) FROM stock.grain VERSION AS OF {first.snapshot_id}").collect()
    print(f"Before the merge: {before[0][0]} tonnes")
    assert before[0][0] == 35
    assert spark.sql("SELECT kind FROM stock.plenty").count() == 2


if __name__ == "__main__":
    # The lake is temporary unless you give the address of a running server.
    with (
        TemporaryDirectory() as folder,
        tidemill.connect(sys.argv[1] if len(sys.argv) > 1 else folder) as lake,
        session(lake.url) as spark,
    ):
        main(spark)
