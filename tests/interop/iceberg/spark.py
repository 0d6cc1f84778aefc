"""Spark with Iceberg's runtime as it is published, in a process of its own; the server is catalog `ice`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.iceberg.maven import VERSION, spark_runtime_jars
from tests.interop.lance_spark import Connector, SparkSql

# Each statement runs once on a few rows: compiling well for many would take longer than it saves.
QUICK_START: Final = {
    "spark.default.parallelism": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True)
class IcebergRuntime(Connector):
    """The one jar of Iceberg for Spark, for the pyspark of this project."""

    folder: Path = Path()

    @property
    def jars(self) -> Path:
        return self.folder

    def settings(self, uri: str) -> dict[str, str]:
        ours = super().settings(uri)
        plain = {name: value for name, value in ours.items() if not name.startswith("spark.sql.catalog.")}
        return {
            **plain,
            **QUICK_START,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "rest",
            "spark.sql.catalog.ice.uri": uri,
            # Another client changes tables in between; Spark is to look each time.
            "spark.sql.catalog.ice.cache-enabled": "false",
            "spark.sql.defaultCatalog": "ice",
        }


def iceberg_spark_sql(uri: str, log: Path) -> SparkSql:
    """A session to send SQL to; raises JarsMissing."""
    runtime = IcebergRuntime("iceberg-spark-runtime-4.1_2.13", VERSION, None, spark_runtime_jars())
    return SparkSql(runtime, uri, log)
