"""The Lance connector for Spark as it is published, and a Spark of its own to run it in."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".cache" / "lance-spark"
DRIVER: Final = Path(__file__).with_name("sql_driver.py")
# Set to a version of the bundle for Spark 4.1 to run the tests with it, on the Spark of this project.
BUNDLE: Final = os.environ.get("TIDEMILL_LANCE_SPARK_BUNDLE")
# Spark brings an older Arrow; the connector's own has to be found first.
NEWER_THAN_SPARKS: Final = ("arrow-", "flatbuffers-", "netty-")
FETCH_TIMEOUT_SECONDS: Final = 900
POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidemill</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.lance</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


class ConnectorMissing(Exception):
    """The connector cannot be had here; says why."""


class SqlFailed(Exception):
    """Spark refused a statement."""


@dataclass(frozen=True)
class Connector:
    """An artifact with all it needs, and the pyspark it is made for; none means the project's own."""

    artifact: str
    version: str
    pyspark: str | None

    @property
    def jars(self) -> Path:
        return CACHE / f"{self.artifact}-{self.version}"

    @property
    def python(self) -> Path:
        return CACHE / f"pyspark-{self.pyspark}" / "bin" / "python" if self.pyspark else Path(sys.executable)

    def settings(self, uri: str) -> dict[str, str]:
        jars = sorted(str(path) for path in self.jars.glob("*.jar"))
        first = [jar for jar in jars if Path(jar).name.startswith(NEWER_THAN_SPARKS)]
        return {
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.jars": ",".join(jars),
            "spark.driver.extraClassPath": ":".join(first),
            "spark.sql.extensions": "org.lance.spark.extensions.LanceSparkSessionExtensions",
            "spark.sql.catalog.lance": "org.lance.spark.LanceNamespaceSparkCatalog",
            "spark.sql.catalog.lance.impl": "rest",
            "spark.sql.catalog.lance.uri": uri,
        }


# The newest release whose parts were found where this was written; it is made for Spark 3.5.
PUBLISHED: Final = Connector("lance-spark-3.5_2.12", "0.4.0", "3.5.9")


def fetched() -> Connector:
    """The connector with its files in the cache."""
    connector = Connector("lance-spark-bundle-4.1_2.13", BUNDLE, None) if BUNDLE else PUBLISHED
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not connector.jars.exists():
            _fetch_jars(connector)
        if not connector.python.exists():
            _make_environment(connector)
    return connector


def _fetch_jars(connector: Connector) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectorMissing("no Maven (mvn) on PATH to fetch the Lance connector for Spark with")
    with _built_aside(connector.jars) as folder:
        pom = folder / "pom.xml"
        pom.write_text(POM.format(artifact=connector.artifact, version=connector.version))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        _run([maven, "-B", "-q", "-f", str(pom), *goal], f"Maven cannot fetch {connector.artifact}")


def _make_environment(connector: Connector) -> None:
    uv = str(Path(sys.prefix) / "bin" / "uv")
    with _built_aside(connector.python.parents[1]) as folder:
        _run([uv, "venv", "-q", "--python", sys.executable, str(folder)], "no environment for pyspark")
        # pyspark 3.5 still asks for what Python 3.12 took out of its library.
        packages = [f"pyspark=={connector.pyspark}", "setuptools<81"]
        install = [uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python"), *packages]
        _run(install, f"pyspark {connector.pyspark} cannot be installed")


@contextmanager
def _built_aside(target: Path) -> Iterator[Path]:
    """A folder that gets its name when it is complete."""
    folder = target.with_name(f"{target.name}.part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    folder.rename(target)


def _run(command: list[str], failure: str) -> None:
    # Maven's answer comes on its standard output.
    ended = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=FETCH_TIMEOUT_SECONDS,
    )
    if ended.returncode != 0:
        raise ConnectorMissing(f"{failure}: {ended.stdout.strip()[:600]}")


class SparkSql:
    """A Spark session in a process of its own, with the server as catalog `lance`."""

    def __init__(self, connector: Connector, uri: str, log: Path) -> None:
        self._log = log
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [str(connector.python), str(DRIVER), json.dumps(connector.settings(uri))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=log.parent,
                env={**environment, "PYSPARK_PYTHON": str(connector.python)},
            )

    def __call__(self, statement: str) -> list[list[Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Spark ended with {self._process.wait(60)}: {self._log.read_text()[-2000:]}"
        answer = json.loads(line)
        if "error" in answer:
            raise SqlFailed(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
