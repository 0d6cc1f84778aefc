"""Clients in Python, each with the scenario of its name in `scenarios/` and an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients.client import Client, KnownFault, Protocol, python_environment
from tests.interop.geneva import run as geneva

SCENARIOS: Final = Path(__file__).parent / "scenarios"


def python_client(
    name: str,
    protocol: Protocol,
    *packages: str,
    scenario: str | None = None,
    known_faults: tuple[KnownFault, ...] = (),
    needs_worker: bool = False,
    timeout_seconds: int = 300,
    server_settings: Mapping[str, str] | None = None,
    replayed_by: str | None = None,
) -> Client:
    """A client whose version is that of the first package."""
    program = SCENARIOS / f"{scenario or name.replace('-', '_')}_scenario.py"

    def prepare(folder: Path) -> Sequence[str]:
        return [str(python_environment(folder, *packages)), str(program)]

    version = packages[0].partition("==")[2]
    settings = server_settings or {}
    return Client(
        name, version, protocol, prepare, known_faults, timeout_seconds, needs_worker, settings, replayed_by
    )


CLIENTS: Final = (
    python_client(
        "chdb",
        "iceberg",
        "chdb==4.4.0",
        known_faults=(
            KnownFault(
                "read a table on a local disk",
                "ClickHouse",
                "it reads tables of a catalog from S3 and Azure only",
                "https://clickhouse.com/docs/engines/database-engines/datalakecatalog",
            ),
        ),
    ),
    python_client("daft", "iceberg", "daft==0.7.26", "pyiceberg[pyarrow]==0.12.0"),
    python_client(
        "duckdb-iceberg",
        "iceberg",
        "duckdb-extension-iceberg==1.5.5",
        "duckdb==1.5.5",
        "duckdb-extensions==1.5.5",
        "duckdb-extension-avro==1.5.5",
        "duckdb-extension-httpfs==1.5.5",
        "pytz",
    ),
    python_client(
        "duckdb-lance",
        "lance",
        "duckdb-extension-lance==1.5.5",
        "duckdb==1.5.5",
        "duckdb-extensions==1.5.5",
        "duckdb-extension-httpfs==1.5.5",
        known_faults=(
            KnownFault(
                "a table is there as soon as it is created",
                "lance-duckdb",
                "a new table is seen only after the namespace is attached again",
                "https://github.com/lance-format/lance-duckdb/pull/243",
            ),
            KnownFault(
                "create table as, before anything else is asked of the namespace",
                "lance-duckdb",
                "it declares the table and writes an empty first version; no row is ever sent",
                "searched its issues for CREATE TABLE AS and empty tables: nothing found",
            ),
            KnownFault(
                "drop a table below the root",
                "lance-duckdb",
                "it drops the table of that name in the root: the request has no namespace",
                "searched its issues for DROP TABLE and namespaces: nothing found",
            ),
            KnownFault(
                "add column with a default",
                "lance-duckdb",
                "not implemented: it takes the statement for an explicit transaction",
                "searched its issues for explicit transactions: nothing found",
            ),
        ),
    ),
    python_client(
        "geneva",
        "lance",
        "geneva==0.17.0",
        needs_worker=True,
        timeout_seconds=1800,
        server_settings=geneva.SETTINGS,
        replayed_by="tests/protocol/test_recorded_geneva.py",
    ),
    python_client(
        "lance-namespace",
        "lance",
        "lance-namespace-urllib3-client==0.13.0",
        "pyarrow==26.0.1",
        needs_worker=True,
        timeout_seconds=600,
    ),
    python_client("lancedb", "lance", "lancedb==0.40.0", "pylance==14.0.2", "lance-namespace==0.13.0"),
    python_client("polars", "iceberg", "polars==2.1.0", "pyiceberg[pyarrow]==0.12.0"),
    python_client("pyiceberg", "iceberg", "pyiceberg[pyarrow,pyiceberg-core]==0.12.0"),
    python_client("pylance", "lance", "pylance==14.0.2", "lance-namespace==0.13.0"),
    python_client("pysail", "iceberg", "pysail==0.7.2", "pyspark-client==4.1.0", "pandas"),
)
