"""Deleting versions, and commits of several tables as one, through the generated client."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import lance
import pytest
from lance_namespace_urllib3_client import ApiClient
from lance_namespace_urllib3_client.api import TableApi
from lance_namespace_urllib3_client.models import (
    BatchCommitTablesRequest,
    BatchCreateTableVersionsRequest,
    BatchDeleteTableVersionsRequest,
    CommitTableOperation,
    CreateTableVersionEntry,
    CreateTableVersionRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    VersionRange,
)

from tests.protocol.wire import TableOnWire, check_refusal, final_name, key_of, some_rows


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def other(http: httpx.Client, namespace: str) -> TableOnWire:
    made = TableOnWire(http, namespace, "other")
    made.create(some_rows())
    return made


def id_of(table: TableOnWire) -> str:
    return "$".join(table.levels)


def entry(table: TableOnWire, version: int) -> CreateTableVersionEntry:
    return CreateTableVersionEntry(
        id=table.levels, version=version, manifest_path=key_of(table.stage(version)), naming_scheme="V2"
    )


def ranges(*pairs: tuple[int, int]) -> list[VersionRange]:
    return [VersionRange(start_version=start, end_version=end) for start, end in pairs]


@pytest.mark.operation("BatchDeleteTableVersions", client="urllib3")
def test_old_versions_are_deleted_and_the_table_stays(tables: TableApi, table: TableOnWire) -> None:
    for _ in range(4):
        table.insert(some_rows())
    request = BatchDeleteTableVersionsRequest(ranges=ranges((1, 2), (3, 5)))
    assert tables.batch_delete_table_versions(id_of(table), request).deleted_count == 3
    assert table.numbers() == [2, 5]
    assert sorted(v["version"] for v in lance.dataset(str(table.directory)).versions()) == [2, 5]
    check_refusal(table.post("version/describe", {"version": 3}), 404, 11)
    assert table.insert(some_rows())["version"] == 6


@pytest.mark.parametrize("pair", [(0, -1), (1, 3), (2, -1)])
def test_the_latest_version_is_not_deleted(table: TableOnWire, pair: tuple[int, int]) -> None:
    table.insert(some_rows())
    before = table.state()
    body = {"ranges": [{"start_version": pair[0], "end_version": pair[1]}]}
    check_refusal(table.post("version/delete", body), 409, 19)
    assert table.state() == before


def test_a_tagged_version_is_not_deleted(table: TableOnWire) -> None:
    table.insert(some_rows())
    assert table.post("tags/create", {"tag": "keep", "version": 1}).status_code == 200
    before = table.state()
    body = {"ranges": [{"start_version": 1, "end_version": 2}]}
    check_refusal(table.post("version/delete", body), 409, 19)
    assert table.state() == before


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ranges": []},
        {"ranges": [{"start_version": 1}]},
        {"ranges": [{"start_version": -1, "end_version": 2}]},
        {"ranges": [{"start_version": 3, "end_version": 1}]},
        {"ranges": [{"start_version": "1", "end_version": 2}]},
    ],
)
def test_a_range_has_to_make_sense(unchanged: TableOnWire, body: dict[str, Any]) -> None:
    check_refusal(unchanged.post("version/delete", body), 400, 13)


@pytest.mark.operation("BatchCreateTableVersions", client="urllib3")
def test_versions_of_two_tables_are_made_as_one(
    tables: TableApi, table: TableOnWire, other: TableOnWire
) -> None:
    entries = [entry(table, 2), entry(other, 2)]
    request = BatchCreateTableVersionsRequest(entries=entries)
    made = tables.batch_create_table_versions(request).versions
    assert [version.version for version in made] == [2, 2]
    assert made[0].manifest_path.endswith(".manifest")
    assert table.numbers() == other.numbers() == [1, 2]
    again = tables.batch_create_table_versions(request).versions
    assert again == made


def test_one_conflict_undoes_the_batch(http: httpx.Client, table: TableOnWire, other: TableOnWire) -> None:
    entries = [entry(table, 2).to_dict(), entry(other, 2).to_dict()]
    other.insert(some_rows())
    check_refusal(http.post("/v1/table/version/batch-create", json={"entries": entries}), 409, 14)
    assert table.numbers() == [1]
    assert other.numbers() == [1, 2]


@pytest.mark.operation("BatchCommitTables", client="urllib3")
def test_mixed_operations_are_committed_as_one(
    tables: TableApi, http: httpx.Client, table: TableOnWire, other: TableOnWire
) -> None:
    table.insert(some_rows())
    new = TableOnWire(http, table.namespace, "new")
    operations = [
        CommitTableOperation(declare_table=DeclareTableRequest(id=new.levels)),
        CommitTableOperation(
            create_table_version=CreateTableVersionRequest(
                id=table.levels, version=3, manifest_path=key_of(table.stage(3))
            )
        ),
        CommitTableOperation(
            delete_table_versions=BatchDeleteTableVersionsRequest(id=table.levels, ranges=ranges((1, 2)))
        ),
        CommitTableOperation(deregister_table=DeregisterTableRequest(id=other.levels)),
    ]
    location = other.directory
    results = tables.batch_commit_tables(BatchCommitTablesRequest(operations=operations)).results
    answers = [result.to_dict() for result in results]
    assert answers[0]["declare_table"]["location"]
    assert answers[1]["create_table_version"]["version"]["version"] == 3
    assert answers[2]["delete_table_versions"]["deleted_count"] == 1
    assert answers[3]["deregister_table"]["id"] == other.levels
    assert new.post("exists", {}).status_code == 200
    assert table.numbers() == [2, 3]
    check_refusal(other.post("describe", {}), 404, 4)
    assert lance.dataset(str(location)).count_rows() == 3


def test_a_table_and_its_first_version_come_as_one(http: httpx.Client, table: TableOnWire) -> None:
    """The writer chooses the place, puts the data there, and makes both known at once."""
    place = table.directory.parent / "chosen.lance"
    lance.write_dataset(some_rows(), str(place))
    (place / "_versions" / final_name(1)).rename(place / "_versions" / f"{final_name(1)}-{uuid4()}")
    staged = next((place / "_versions").glob("*.manifest-*"))
    new = TableOnWire(http, table.namespace, "new")
    operations = [
        {"declare_table": {"id": new.levels, "location": str(place)}},
        {"create_table_version": {"id": new.levels, "version": 1, "manifest_path": key_of(staged)}},
    ]
    answer = http.post("/v1/table/batch-commit", json={"operations": operations})
    assert answer.status_code == 200, answer.text
    assert new.numbers() == [1]
    assert new.asked("count_rows", {}) == 3


def test_a_batch_with_one_fault_changes_nothing(
    http: httpx.Client, table: TableOnWire, other: TableOnWire
) -> None:
    staged = table.stage(2)
    operations = [
        {"declare_table": {"id": [table.namespace, "new"]}},
        {"create_table_version": {"id": table.levels, "version": 2, "manifest_path": key_of(staged)}},
        {"deregister_table": {"id": other.levels}},
        {"declare_table": {"id": other.levels}},
        {"deregister_table": {"id": [table.namespace, "missing"]}},
    ]
    check_refusal(http.post("/v1/table/batch-commit", json={"operations": operations}), 404, 4)
    assert table.numbers() == [1]
    assert other.numbers() == [1]
    check_refusal(http.post(f"/v1/table/{table.namespace}$new/exists"), 404, 4)


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [{}],
        [{"declare_table": {"id": ["a"]}, "deregister_table": {"id": ["a"]}}],
        [{"declare_table": {}}],
        [{"declare_table": {"id": []}}],
        [{"unheard_of": {}}],
        "no list",
    ],
)
def test_an_operation_is_exactly_one_thing(http: httpx.Client, operations: Any) -> None:
    check_refusal(http.post("/v1/table/batch-commit", json={"operations": operations}), 400, 13)
