"""A real Trino: its server and its Iceberg connector, with the scenario of `make clients`."""

from __future__ import annotations

import pytest

from tests.clients.run import all_clients, run_client

# It fetches 800 MB the first time, and Trino takes a minute to start.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(3600)]
CREATING = (
    "create schema",
    "create table",
    "create partitioned table with comment",
    "create table as select",
)


def test_trino_creates_tables_without_naming_a_location_and_does_all_else_of_its_manual() -> None:
    outcome = run_client(all_clients()["trino"], CREATING, keep_recording=False)
    if outcome.not_run is not None:
        pytest.skip(outcome.not_run)
    assert outcome.problems == []
