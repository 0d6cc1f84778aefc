"""Spark with Iceberg's runtime as it is published, in a process of its own.

The server is catalog `ice`, and catalog `planned` where it plans the scans; a server with an object store is
catalog `signed`, where Spark has no keys.
"""

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
    """Iceberg's jars for Spark and for S3, for the pyspark of this project."""

    folder: Path = Path()
    signing_uri: str = ""

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
            **_catalog("ice", uri),
            **_catalog("planned", uri, **{"scan-planning-mode": "server"}),
            **_catalog(
                "signed", self.signing_uri, **{"header.X-Iceberg-Access-Delegation": "remote-signing"}
            ),
            "spark.sql.defaultCatalog": "ice",
        }


def _catalog(name: str, uri: str, **properties: str) -> dict[str, str]:
    key = f"spark.sql.catalog.{name}"
    # Another client changes tables in between; Spark is to look each time.
    given = {"type": "rest", "uri": uri, "cache-enabled": "false", **properties}
    return {
        key: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{key}.{option}": value for option, value in given.items()},
    }


def iceberg_spark_sql(uri: str, signing_uri: str, log: Path) -> SparkSql:
    """A session to send SQL to; raises JarsMissing."""
    runtime = IcebergRuntime(
        "iceberg-spark-runtime-4.1_2.13", VERSION, None, spark_runtime_jars(), signing_uri
    )
    return SparkSql(runtime, uri, log)
