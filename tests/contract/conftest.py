"""The stores that every suite here runs on, and the one Spark session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.postgres import PostgresCluster, PostgresMissing
from tidemill.jobs.ports import JobStore
from tidemill.spark.cluster import open_session, warm_up
from tidemill.spark.target import SparkTarget
from tidemill.store.engine import SqlStore, open_store

SHARED = "shared"
# Emptying one database is ten times as fast as making another. The root namespace belongs to the schema.
EMPTY_DATABASE = """
    DELETE FROM audit_events; DELETE FROM workers; DELETE FROM transactions;
    DELETE FROM secrets; DELETE FROM stored_queries;
    DELETE FROM row_errors; DELETE FROM environments; DELETE FROM receipts; DELETE FROM iceberg_purges;
    DELETE FROM job_parts; DELETE FROM job_events; DELETE FROM jobs; DELETE FROM coverage;
    DELETE FROM materialized_views; DELETE FROM computed_columns; DELETE FROM functions;
    DELETE FROM clients; DELETE FROM roles; DELETE FROM grants;
    DELETE FROM table_versions; DELETE FROM tables; DELETE FROM namespaces WHERE parent_id IS NOT NULL;
"""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    try:
        cluster.create_database(SHARED)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'catalog.db'}"
        return
    cluster: PostgresCluster = request.getfixturevalue("postgres")
    yield cluster.url(SHARED)
    cluster.execute(EMPTY_DATABASE, SHARED)


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that nobody has opened yet, and so without a schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
        return
    cluster: PostgresCluster = request.getfixturevalue("postgres")
    cluster.create_database("new")
    yield cluster.url("new")
    cluster.drop_database("new")


@pytest.fixture
def sql_store(store_url: str) -> Iterator[SqlStore]:
    opened = open_store(store_url)
    yield opened
    opened.close()


@pytest.fixture
def store(sql_store: SqlStore) -> JobStore:
    return sql_store


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = open_session(SparkTarget("local[2]", tmp_path_factory.mktemp("spark")))
    warm_up(session)
    yield session
    session.stop()
