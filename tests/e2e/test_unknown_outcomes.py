"""A server that loses PostgreSQL at COMMIT: no client is told anything that is not so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException

from tests.conftest import RunningServer, start_server
from tests.faulty_database import Fault, FaultyPostgres
from tests.iceberg_mutations import MUTATIONS, Lake, check_found_out, check_unknown
from tests.postgres import PostgresCluster, PostgresMissing

FAULTS = [Fault.BEFORE, Fault.AFTER]
ROWS = pa.table({"x": pa.array([1, 2, 3], pa.int64())})
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


@dataclass(frozen=True)
class Faulty:
    server: RunningServer
    database: FaultyPostgres


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    cluster.create_database("unknown")
    proxy = FaultyPostgres(cluster.url("unknown"))
    root = tmp_path_factory.mktemp("unknown")
    # Failed requests are audited after the response: that commit could be the one that a fault is meant for.
    server = start_server(root, "--no-worker", TIDEMILL_DATABASE_URL=proxy.url, TIDEMILL_AUDIT_ROWS="false")
    yield Faulty(server, proxy)
    proxy.faults.recover()
    server.stop()
    proxy.close()
    cluster.stop()


@pytest.fixture
def lake(faulty: Faulty) -> Iterator[Lake]:
    faulty.database.faults.recover()
    faulty.database.faults.count = 0
    with httpx.Client(base_url=faulty.server.url, timeout=60) as http:
        made = Lake(http, faulty.database.faults, f"n{uuid4().hex[:12]}")
        made.prepare()
        yield made
    faulty.database.faults.recover()


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", MUTATIONS)
def test_an_outcome_is_found_out_when_the_database_answers_again(
    lake: Lake, name: str, fault: Fault, keyed: bool
) -> None:
    check_found_out(lake, name, fault, keyed=keyed)


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", MUTATIONS)
def test_an_outcome_is_called_unknown_while_the_database_is_away(
    lake: Lake, name: str, fault: Fault, keyed: bool
) -> None:
    check_unknown(lake, name, fault, keyed=keyed)


@pytest.fixture
def catalog(faulty: Faulty) -> RestCatalog:
    return RestCatalog("unknown", uri=f"{faulty.server.url}/iceberg", warehouse="tidemill")


@pytest.mark.parametrize("fault", FAULTS)
def test_pyiceberg_appends_once_through_a_lost_commit(lake: Lake, catalog: RestCatalog, fault: Fault) -> None:
    table = catalog.create_table((lake.name, "p"), schema=ROWS.schema)
    lake.faults.fail_commit(fault)
    table.append(ROWS)
    assert catalog.load_table((lake.name, "p")).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_pyiceberg_is_told_that_the_state_is_unknown(lake: Lake, catalog: RestCatalog, fault: Fault) -> None:
    table = catalog.create_table((lake.name, "p"), schema=ROWS.schema)
    lake.faults.fail_commit(fault, stays_down=True)
    with pytest.raises(CommitStateUnknownException):
        table.append(ROWS)
    lake.faults.recover()
    rows = catalog.load_table((lake.name, "p")).scan().to_arrow().num_rows
    assert rows == (3 if fault is Fault.AFTER else 0)


def streamed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def lance_post(lake: Lake, action: str, **options: Any) -> httpx.Response:
    return lake.http.post(f"/v1/table/{lake.name}$l/{action}", **options)


@pytest.fixture
def lance_table(lake: Lake) -> Lake:
    created = lance_post(lake, "create", content=streamed(ROWS), headers=ARROW)
    assert created.status_code == 200, created.text
    return lake


def count_rows(lake: Lake) -> int:
    answer = lance_post(lake, "count_rows", json={})
    assert answer.status_code == 200, answer.text
    return int(answer.json())


@pytest.mark.parametrize("skipped", [0, 1])
@pytest.mark.parametrize("stays_down", [False, True], ids=["back", "away"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_insert_is_never_acknowledged_and_absent_nor_refused_and_present(
    lance_table: Lake, fault: Fault, stays_down: bool, skipped: int
) -> None:
    lake = lance_table
    lake.faults.fail_commit(fault, stays_down=stays_down, skipped=skipped)
    answer = lance_post(lake, "insert", content=streamed(ROWS), headers=ARROW)
    lake.faults.recover()
    rows = count_rows(lake)
    assert rows in (3, 6)
    if answer.is_success:
        assert rows == 6
    if answer.is_client_error or answer.status_code == 503:
        assert rows == 3, answer.text


@pytest.mark.parametrize("stays_down", [False, True], ids=["back", "away"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_version_is_never_acknowledged_and_absent_nor_refused_and_present(
    lance_table: Lake, faulty: Faulty, fault: Fault, stays_down: bool
) -> None:
    """pylance commits through version/create."""
    lake = lance_table
    rest = RestNamespace(uri=faulty.server.url)
    lake.faults.fail_commit(fault, stays_down=stays_down)
    problem: Exception | None = None
    try:
        lance.write_dataset(ROWS, namespace_client=rest, table_id=[lake.name, "l"], mode="append")
    except Exception as error:  # noqa: BLE001 # pylance raises whatever its Rust side made of the answer
        problem = error
    lake.faults.recover()
    rows = count_rows(lake)
    assert rows in (3, 6)
    if problem is None:
        assert rows == 6
    elif rows == 6:
        assert "unknown" in str(problem), problem
