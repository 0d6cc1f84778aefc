"""Scans that the server plans: with pyiceberg's own client, and step by step over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table

from tests.conftest import RunningServer
from tests.protocol.iceberg.clients import pyiceberg_on
from tests.protocol.iceberg.wire import Space, check_error, check_form
from tests.unit.iceberg.planning.lakes import (
    BY_DAY,
    SCHEMA,
    data_file,
    entry,
    metadata_with,
    rows,
    write_manifest,
    write_manifest_list,
)

MISSING = 4711
GARBLED = "bm90IGEgcGxhbg"


@pytest.fixture(scope="module")
def catalog(server: RunningServer) -> Iterator[RestCatalog]:
    with pyiceberg_on(f"{server.url}/iceberg") as connected:
        yield connected


@pytest.fixture(scope="module")
def planning(server: RunningServer) -> Iterator[RestCatalog]:
    """A client that has its scans planned by the server."""
    with pyiceberg_on(f"{server.url}/iceberg", **{"scan-planning-mode": "server"}) as connected:
        assert connected.supports_server_side_planning()
        yield connected


@pytest.fixture
def table(catalog: RestCatalog, space: Space) -> Table:
    made: Table = catalog.create_table((space.name, "t"), SCHEMA, partition_spec=BY_DAY)
    made.append(rows(*range(6)))
    made.append(rows(6, 7, 8))
    return made


def plan(space: Space, name: str = "t", **body: Any) -> Any:
    return check_form(ask(space, name, **body), "PlanTableScanResult")


def ask(space: Space, name: str = "t", **body: Any) -> httpx.Response:
    fields = {key.replace("_", "-"): value for key, value in body.items()}
    return space.http.post(f"{space.table(name)}/plan", json=fields)


def fetch(space: Space, plan_id: str, name: str = "t") -> httpx.Response:
    return space.http.get(f"{space.table(name)}/plan/{plan_id}")


def cancel(space: Space, plan_id: str, name: str = "t") -> httpx.Response:
    return space.http.delete(f"{space.table(name)}/plan/{plan_id}")


def tasks(space: Space, token: str, name: str = "t") -> httpx.Response:
    return space.http.post(f"{space.table(name)}/tasks", json={"plan-task": token})


def paths_of(answer: Any) -> set[str]:
    return {task["data-file"]["file-path"] for task in answer["file-scan-tasks"]}


FILTERS = [
    "id > 3",
    "id is null",
    "day = '2024-01-02'",
    "day = '2024-01-02' and id > 3",
    "not (day = '2024-01-01' or name is null)",
    "name like 'row 1%' or id in (2, 7)",
    "score >= 2.5",
    "id = 99",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_a_client_reads_the_same_rows_whoever_plans(
    planning: RestCatalog, table: Table, condition: str
) -> None:
    by_server = planning.load_table(table.name()).scan(row_filter=condition)
    by_client = table.scan(row_filter=condition)
    assert by_server.to_arrow().sort_by("id").equals(by_client.to_arrow().sort_by("id"))
    planned = {task.file.file_path for task in by_server.plan_files()}
    assert planned == {task.file.file_path for task in by_client.plan_files()}


def test_a_client_selects_columns_and_reads_an_earlier_state(planning: RestCatalog, table: Table) -> None:
    first = table.history()[0].snapshot_id
    scan = planning.load_table(table.name()).scan(snapshot_id=first, selected_fields=("id",))
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(6))


def test_a_client_reads_an_empty_table(planning: RestCatalog, catalog: RestCatalog, space: Space) -> None:
    catalog.create_table((space.name, "empty"), SCHEMA)
    assert planning.load_table((space.name, "empty")).scan().to_arrow().num_rows == 0


def test_a_plan_is_made_fetched_and_cancelled(space: Space, table: Table) -> None:
    made = plan(space)
    assert made["status"] == "completed"
    fetched = check_form(fetch(space, made["plan-id"]), "FetchPlanningResult")
    assert fetched["file-scan-tasks"] == made["file-scan-tasks"]
    assert paths_of(made) == {task.file.file_path for task in table.scan().plan_files()}
    cancelled = cancel(space, made["plan-id"])
    assert (cancelled.status_code, cancelled.content) == (204, b"")


def test_a_plan_stays_what_it_was_when_the_table_moves_on(space: Space, table: Table) -> None:
    made = plan(space)
    table.append(rows(9))
    assert paths_of(check_form(fetch(space, made["plan-id"]), "FetchPlanningResult")) == paths_of(made)
    assert paths_of(plan(space)) > paths_of(made)


def test_a_filter_leaves_out_files_and_is_told_as_far_as_it_is_left(space: Space, table: Table) -> None:
    wanted = {
        "type": "and",
        "left": {"type": "eq", "term": "day", "value": "2024-01-02"},
        "right": {"type": "gt", "term": "id", "value": 3},
    }
    made = plan(space, filter=wanted, stats_fields=["id"])
    [task, other] = sorted(made["file-scan-tasks"], key=lambda task: task["data-file"]["record-count"])
    assert {tuple(found["data-file"]["partition"]) for found in (task, other)} == {("2024-01-02",)}
    assert task["residual-filter"] == {"type": "gt", "term": "id", "value": 3}
    assert task["data-file"]["lower-bounds"] == {"keys": [1], "values": [7]}


def test_what_was_appended_between_two_snapshots_is_planned(space: Space, table: Table) -> None:
    first, last = (entry.snapshot_id for entry in table.history())
    made = plan(space, start_snapshot_id=first, end_snapshot_id=last)
    assert sum(task["data-file"]["record-count"] for task in made["file-scan-tasks"]) == 3


def test_rows_of_a_day_are_looked_for_in_the_files_of_that_day(space: Space, table: Table) -> None:
    day = {"type": "eq", "term": "day", "value": str(date(2024, 1, 1))}
    assert {task["data-file"]["partition"][0] for task in plan(space, filter=day)["file-scan-tasks"]} == {
        "2024-01-01"
    }


@pytest.fixture(scope="module")
def many(iceberg: httpx.Client, server: RunningServer) -> Space:
    """A table of format three with 2,500 files, a deletion vector for the first, deletes for the last."""
    iceberg.post("namespaces", json={"namespace": ["many-files"]})
    space, place = Space(iceberg, "many-files"), server.root / "warehouse" / "many-files"
    place.mkdir()
    files = [entry(data_file(f"{place}/{number:05d}.parquet")) for number in range(2500)]
    data = write_manifest(place / "data.avro", files, ManifestContent.DATA, first_row_id=0)
    vector = data_file(
        f"{place}/vectors.puffin",
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat.PUFFIN,
        referenced_data_file=f"{place}/00000.parquet",
        content_offset=4,
        content_size_in_bytes=40,
    )
    last = data_file(
        f"{place}/positions.parquet",
        content=DataFileContent.POSITION_DELETES,
        referenced_data_file=f"{place}/02499.parquet",
    )
    deletes = write_manifest(
        place / "deletes.avro", [entry(vector, 2), entry(last, 2)], ManifestContent.DELETES
    )
    write_manifest_list(place / "list.avro", [data, deletes])
    metadata = place / "00000-many.metadata.json"
    metadata.write_bytes(metadata_with(place, str(place / "list.avro")))
    body = {"name": "t", "metadata-location": str(metadata)}
    assert space.http.post(space.at("register"), json=body).status_code == 200
    return space


def unchecked(answer: httpx.Response) -> Any:
    """A thousand tasks are all alike, and slow to check."""
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_long_plan_comes_in_parts_that_make_up_the_whole(many: Space) -> None:
    made = unchecked(ask(many))
    assert len(made["plan-tasks"]) == 2
    parts = [made, *(unchecked(tasks(many, token)) for token in made["plan-tasks"])]
    names = [Path(task["data-file"]["file-path"]).stem for part in parts for task in part["file-scan-tasks"]]
    assert names == [f"{number:05d}" for number in range(2500)]
    assert [len(part.get("delete-files", ())) for part in parts] == [1, 0, 1]
    [vector] = made["delete-files"]
    assert (vector["content-offset"], vector["content-size-in-bytes"]) == (4, 40)
    assert made["file-scan-tasks"][0]["delete-file-references"] == [0]
    assert made["file-scan-tasks"][1]["data-file"]["first-row-id"] == 10
    assert parts[2]["file-scan-tasks"][-1]["delete-file-references"] == [0]


def test_a_client_follows_all_parts(many: Space, planning: RestCatalog) -> None:
    planned = planning.load_table((many.name, "t")).scan().plan_files()
    assert sum(1 for _ in planned) == 2500


def test_no_more_than_the_wanted_rows_are_planned(many: Space) -> None:
    made = plan(many, min_rows_requested=25)
    rows_of = [task["data-file"]["record-count"] for task in made["file-scan-tasks"]]
    assert (len(rows_of), "plan-tasks" in made) == (4, False)


def test_a_token_is_of_one_table_and_one_kind(many: Space, space: Space, table: Table) -> None:
    long = unchecked(ask(many))
    made = plan(space)
    for answer in (
        tasks(space, long["plan-tasks"][0]),
        tasks(many, long["plan-id"]),
        tasks(many, GARBLED),
        tasks(many, long["plan-tasks"][0] + "A"),
    ):
        check_error(answer, 404, "NoSuchPlanTaskException")
    for token in (long["plan-id"], GARBLED, made["plan-id"][1:]):
        check_error(fetch(space, token), 404, "NoSuchPlanIdException")
        check_error(cancel(space, token), 404, "NoSuchPlanIdException")
    check_error(fetch(many, long["plan-tasks"][0]), 404, "NoSuchPlanIdException")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"snapshot_id": MISSING}, f"snapshot-id: Cannot find snapshot with ID {MISSING}"),
        ({"start_snapshot_id": 1}, "end-snapshot-id: "),
        ({"snapshot_id": 1, "start_snapshot_id": 1, "end_snapshot_id": 2}, "snapshot-id: "),
        ({"filter": {"type": "eq", "term": "nothing", "value": 1}}, "filter"),
        ({"filter": {"type": "sounds-like", "term": "id", "value": 1}}, "filter"),
        ({"filter": None}, "filter"),
        ({"min_rows_requested": -1}, "min-rows-requested: "),
    ],
)
def test_a_scan_of_what_is_not_there_is_refused(
    space: Space, table: Table, body: dict[str, Any], message: str
) -> None:
    check_error(ask(space, **body), 400, "BadRequestException", message)


def test_scans_of_a_missing_table_are_not_found(space: Space) -> None:
    for answer in (ask(space), fetch(space, GARBLED), cancel(space, GARBLED), tasks(space, GARBLED)):
        check_error(answer, 404, "NoSuchTableException")


def test_a_task_of_an_expired_snapshot_is_not_found(space: Space, table: Table) -> None:
    first = table.history()[0].snapshot_id
    made = plan(space, snapshot_id=first)
    updates = {"action": "remove-snapshots", "snapshot-ids": [first]}
    assert space.commit(space.table(), updates).status_code == 200
    check_error(fetch(space, made["plan-id"]), 404, "NoSuchPlanIdException")


def test_a_manifest_that_is_none_leaves_the_planning_to_the_client(space: Space, table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    Path(urlsplit(snapshot.manifest_list).path).write_bytes(b"no manifest")
    check_error(ask(space), 406, "UnsupportedOperationException", "The scan cannot be planned here")
