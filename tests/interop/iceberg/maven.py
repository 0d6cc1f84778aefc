"""Apache Iceberg's own jars, fetched once with Maven: compatibility kit, server, Spark runtime."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CACHE: Final = ROOT / ".cache"
VERSION: Final = "1.12.0"
# The newest one of which the tests and the reference server were published.
KIT_VERSION: Final = "1.11.0"
FETCH_TIMEOUT_SECONDS: Final = 900
# The kit's own description names nothing that it needs, so all of it is said here.
KIT: Final = (
    f"org.apache.iceberg:iceberg-open-api:{KIT_VERSION}:tests",
    f"org.apache.iceberg:iceberg-open-api:{KIT_VERSION}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{KIT_VERSION}",
    f"org.apache.iceberg:iceberg-core:{KIT_VERSION}:tests",
    f"org.apache.iceberg:iceberg-api:{KIT_VERSION}",
    f"org.apache.iceberg:iceberg-api:{KIT_VERSION}:tests",
    f"org.apache.iceberg:iceberg-common:{KIT_VERSION}",
    "org.apache.hadoop:hadoop-client-api:3.4.3",
    "org.apache.hadoop:hadoop-client-runtime:3.4.3",
    "org.junit.jupiter:junit-jupiter:5.14.4",
    "org.junit.platform:junit-platform-suite:1.14.4",
    "org.junit.platform:junit-platform-console:1.14.4",
    "org.assertj:assertj-core:3.27.7",
    "org.mockito:mockito-core:4.11.0",
    "org.awaitility:awaitility:4.3.0",
    "org.slf4j:slf4j-simple:2.0.17",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.8",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.8",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.8",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
SPARK_RUNTIME: Final = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{VERSION}",
    f"org.apache.iceberg:iceberg-aws-bundle:{VERSION}",
)
POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidemill</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""


class JarsMissing(Exception):
    """The jars cannot be had here; says why."""


def kit_jars() -> Path:
    """The folder with the compatibility kit, the reference server and all that they need."""
    return fetched_jars(CACHE / f"iceberg-{KIT_VERSION}-kit", KIT)


def spark_runtime_jars() -> Path:
    return fetched_jars(CACHE / f"iceberg-{VERSION}-spark", SPARK_RUNTIME)


def java() -> str:
    """The Java that Spark runs on here, which runs these jars too."""
    asked = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "java_home.py")], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        raise JarsMissing(asked.stderr.strip())
    return str(Path(asked.stdout.strip()) / "bin" / "java")


def java_environment() -> dict[str, str]:
    """The environment without what the kit and the server would take for settings of a catalog."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CATALOG_")}


def fetched_jars(target: Path, coordinates: Sequence[str]) -> Path:
    """The folder, with these jars and all that they need; raises JarsMissing."""
    pom = POM.format(dependencies="".join(map(_dependency, coordinates)))
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as guard:
        # Two runs may start at once; the second waits and then finds the work done.
        fcntl.flock(guard, fcntl.LOCK_EX)
        stamp = target / "pom.xml"
        if not stamp.exists() or stamp.read_text() != pom:
            _fetch(target, pom)
    return target


def _fetch(target: Path, pom: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing("no Maven (mvn) on PATH to fetch the jars of Apache Iceberg with")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "pom.xml").write_text(pom)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    # Maven's answer comes on its standard output.
    ended = subprocess.run(
        [maven, "-B", "-q", "-f", str(part / "pom.xml"), *goal],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=FETCH_TIMEOUT_SECONDS,
    )
    if ended.returncode != 0:
        raise JarsMissing(f"Maven cannot fetch {target.name}: {ended.stdout.strip()[:600]}")
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def _dependency(coordinates: str) -> str:
    tags = ("groupId", "artifactId", "version", "classifier")
    parts = zip(tags, coordinates.split(":"), strict=False)
    return f"<dependency>{''.join(f'<{tag}>{text}</{tag}>' for tag, text in parts)}</dependency>"
