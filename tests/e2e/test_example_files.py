"""Every file in examples/ runs the way users run it, most of them against one server that is already warm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.processes import processes_with
from tests.interop.iceberg.maven import JarsMissing, java, spark_runtime_jars

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
RUN_SECONDS: Final = 240
# Each with something it prints; the examples check the rest of their results themselves.
ON_A_SERVER: Final = {
    "branches.py": "redesign: ['old-mills', 'grain-and-stone', 'tide-tables']",
    "chunks_and_search.py": "1 new document, 2 new embeddings",
    "errors_and_retries.py": "4 rows, 2 of them skipped",
    "iceberg_pyiceberg.py": "Lance: ['berths']",
    "images.py": "black: 640 × 480, thumbnail 32 × 24",
    "sql_views.py": "{'customer': 'ann', 'orders': 4, 'total': 725}",
    "stateful_function.py": "2,000 rows; the model was loaded",
    "table_function.py": "{'user': 'bob', 'start': 20, 'clicks': 2}",
}
STANDALONE: Final = {
    "computed_column.py": "The second backfill computed 2 rows and kept 2.",
    "tokens_and_grants.py": "Forbidden: ",
}
# With tests of their own.
OTHERS: Final = {"demo.py", "iceberg_spark.py"}
# Spark's downloads come from the folder that Maven filled.
IVY_SETTINGS: Final = """<ivysettings>
  <settings defaultResolver="jars"/>
  <resolvers>
    <filesystem name="jars"><artifact pattern="{jars}/[artifact]-[revision].[ext]"/></filesystem>
  </resolvers>
</ivysettings>
"""
SPARK_DEFAULTS: Final = """
spark.jars.ivy {folder}/ivy
spark.jars.ivySettings {folder}/ivysettings.xml
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
"""


@pytest.fixture
def own_namespaces(lake: tidemill.Lake) -> Iterator[None]:
    """Removes what an example leaves on the server for people to look at."""
    before = set(lake.list_namespaces())
    yield
    for name in set(lake.list_namespaces()) - before:
        lake.drop_namespace(name, cascade=True)


def run(name: str, *arguments: str, cwd: Path, **environment: str) -> str:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TIDEMILL_")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        cwd=cwd,
        env={**inherited, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("own_namespaces")
@pytest.mark.parametrize("name", ON_A_SERVER)
def test_an_example_runs_on_a_server(name: str, server: RunningServer, tmp_path: Path) -> None:
    assert ON_A_SERVER[name] in run(name, server.url, cwd=tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("name", STANDALONE)
def test_an_example_runs_alone_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    assert STANDALONE[name] in run(name, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert processes_with(str(tmp_path)) == []
    assert [path for path in tmp_path.iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.spark
@pytest.mark.usefixtures("own_namespaces")
def test_the_example_for_iceberg_in_spark_runs(server: RunningServer, tmp_path: Path) -> None:
    try:
        jars, java_home = spark_runtime_jars(), Path(java()).parents[1]
    except JarsMissing as missing:
        pytest.skip(str(missing))
    (tmp_path / "ivysettings.xml").write_text(IVY_SETTINGS.format(jars=jars))
    (tmp_path / "spark-defaults.conf").write_text(SPARK_DEFAULTS.format(folder=tmp_path))
    printed = run(
        "iceberg_spark.py",
        server.url,
        cwd=tmp_path,
        SPARK_CONF_DIR=str(tmp_path),
        JAVA_HOME=str(java_home),
    )
    assert "Before the merge: 35 tonnes" in printed


def test_no_example_is_without_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*ON_A_SERVER, *STANDALONE, *OTHERS}


def test_the_index_names_every_example() -> None:
    named = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(named) == sorted(path.name for path in EXAMPLES.glob("*.py"))
