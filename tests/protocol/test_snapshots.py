"""Single versions of a table: restored, measured, described anew."""

from __future__ import annotations

from pathlib import Path

import httpx
import lance
import lancedb
import pytest
from lance.namespace import RestNamespace
from lance_namespace import UpdateTableSchemaMetadataRequest
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import (
    DescribeTableRequest,
    GetTableStatsRequest,
    RestoreTableRequest,
)
from lancedb.remote.table import RemoteTable

import tidemill
from tests.conftest import RunningServer
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

restore = pytest.mark.operation("RestoreTable", client="urllib3")
stats = pytest.mark.operation("GetTableStats", client="urllib3")
metadata = pytest.mark.operation("UpdateTableSchemaMetadata", client="urllib3")


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def branched(table: TableOnWire) -> TableOnWire:
    """A table of six rows on main, and of three and then nine on the branch `dev`."""
    table.asked("branches/create", {"name": "dev"})
    table.insert(some_rows(4))
    location = f"{table.directory}/tree/dev"
    lance.write_dataset(some_rows(count=6), location, mode="append")
    return table


@tidemill.udf
def double(id: int) -> int:
    return id * 2


def path_of(table: TableOnWire) -> str:
    return "$".join(table.levels)


@restore
def test_an_old_version_comes_back_as_a_new_one(tables: TableApi, table: TableOnWire) -> None:
    table.insert(some_rows(4))
    answer = tables.restore_table_with_http_info(path_of(table), RestoreTableRequest(version=1))
    assert answer.status_code == 200
    assert (table.numbers(), table.asked("count_rows")) == ([1, 2, 3], 3)
    assert table.asked("count_rows", {"version": 2}) == 6
    table.insert(some_rows(7))
    assert table.asked("count_rows") == 6


@restore
def test_a_branch_is_restored_and_main_is_not(tables: TableApi, branched: TableOnWire) -> None:
    assert branched.asked("count_rows", {"branch": "dev"}) == 9
    tables.restore_table(path_of(branched), RestoreTableRequest(version=1, branch="dev"))
    assert branched.asked("describe", {"branch": "dev"})["version"] == 3
    assert branched.asked("count_rows", {"branch": "dev"}) == 3
    assert (branched.numbers(), branched.asked("count_rows")) == ([1, 2], 6)


@restore
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (RestoreTableRequest(version=9), (404, 11)),
        (RestoreTableRequest(version=0), (404, 11)),
        (RestoreTableRequest(version=1, branch="nowhere"), (404, 22)),
    ],
)
def test_what_is_not_there_is_not_restored(
    tables: TableApi, unchanged: TableOnWire, request_: RestoreTableRequest, expected: tuple[int, int]
) -> None:
    with pytest.raises(ApiException) as raised:
        tables.restore_table(path_of(unchanged), request_)
    assert refusal(raised) == expected


@pytest.mark.parametrize(
    "body", [{}, {"version": None}, {"version": "1"}, {"version": -1}, {"version": True}]
)
def test_a_restore_needs_a_version(unchanged: TableOnWire, body: dict[str, object]) -> None:
    check_refusal(unchanged.post("restore", body), 400, 13, "version")


def test_a_view_is_refreshed_and_not_restored(lake: tidemill.Lake, table: TableOnWire) -> None:
    lake.create_materialized_view([table.namespace, "v"], lake.table(table.levels).select("id"))
    view = TableOnWire(table.http, table.namespace, "v")
    check_refusal(view.post("restore", {"version": 1}), 409, 19)


@pytest.mark.parametrize(
    ("action", "body", "refused"),
    [
        ("stats", {}, (409, 19)),
        ("restore", {"version": 1}, (404, 11)),
        ("schema_metadata/update", {}, (409, 19)),
    ],
)
def test_a_declared_or_missing_table_has_nothing_to_show(
    http: httpx.Client, namespace: str, action: str, body: dict[str, int], refused: tuple[int, int]
) -> None:
    table = TableOnWire(http, namespace, "t")
    check_refusal(table.post(action, body), 404, 4)
    check_refusal(TableOnWire(http, f"{namespace}$nowhere", "t").post(action, body), 404, 1)
    table.asked("declare")
    check_refusal(table.post(action, body), *refused)


@stats
def test_a_table_is_measured(tables: TableApi, table: TableOnWire) -> None:
    table.insert(some_rows(4, count=5))
    answer = tables.get_table_stats_with_http_info(path_of(table), GetTableStatsRequest())
    found = answer.data
    assert (answer.status_code, found.num_rows, found.num_indices) == (200, 8, 0)
    assert found.total_bytes > 0
    fragments, lengths = found.fragment_stats, found.fragment_stats.lengths
    assert (fragments.num_fragments, fragments.num_small_fragments) == (2, 2)
    assert (lengths.min, lengths.max, lengths.mean) == (3, 5, 4)
    assert (lengths.p25, lengths.p50, lengths.p75, lengths.p99) == (3, 5, 5, 5)


def test_the_figures_are_those_of_lancedb_itself(table: TableOnWire) -> None:
    for first in range(4, 20, 3):
        table.insert(some_rows(first, count=first))
    local = lancedb.connect(table.directory.parent).open_table(table.directory.stem)
    assert table.asked("stats") == local.stats()


@stats
def test_an_empty_table_has_figures_too(tables: TableApi, namespace: str) -> None:
    path = f"{namespace}$t"
    tables.create_table(path, stream(some_rows(count=0)))
    found = tables.get_table_stats(path, GetTableStatsRequest())
    assert (found.num_rows, found.total_bytes, found.fragment_stats.num_fragments) == (0, 0, 0)
    assert found.fragment_stats.lengths.p99 == 0


@stats
def test_a_branch_is_measured_by_itself(tables: TableApi, branched: TableOnWire) -> None:
    assert tables.get_table_stats(path_of(branched), GetTableStatsRequest(branch="dev")).num_rows == 9
    assert tables.get_table_stats(path_of(branched), GetTableStatsRequest()).num_rows == 6
    with pytest.raises(ApiException) as raised:
        tables.get_table_stats(path_of(branched), GetTableStatsRequest(branch="nowhere"))
    assert refusal(raised) == (404, 22)


@pytest.mark.operation("GetTableStats", client="http")
def test_older_clients_ask_for_figures_with_get(still: TableOnWire) -> None:
    assert still.http.get(f"/v1/table/{path_of(still)}/stats").json() == still.asked("stats")


@pytest.mark.operation("GetTableStats", "RestoreTable", client="remote")
def test_lancedb_measures_and_restores_over_the_wire(server: RunningServer, namespace: str) -> None:
    database = lancedb.connect("db://x", api_key="k", host_override=server.url)
    table = database.create_table("t", some_rows(), namespace_path=[namespace])
    assert isinstance(table, RemoteTable)
    table.add(some_rows(4))
    assert table.stats()["num_rows"] == 6
    table.restore(1)
    assert (table.count_rows(), table.version) == (3, 3)


@metadata
def test_the_metadata_of_the_schema_is_replaced(tables: TableApi, table: TableOnWire) -> None:
    answer = tables.update_table_schema_metadata_with_http_info(path_of(table), {"a": "1", "b": "2"})
    assert (answer.status_code, answer.data) == (200, {"a": "1", "b": "2"})
    assert tables.update_table_schema_metadata(path_of(table), {"b": "3", "id": "free"}) == {
        "b": "3",
        "id": "free",
    }
    described = tables.describe_table(path_of(table), DescribeTableRequest(), load_detailed_metadata=True)
    assert (described.version, described.metadata) == (3, {"b": "3", "id": "free"})
    assert tables.update_table_schema_metadata(path_of(table), {}) == {}
    assert table.asked("count_rows") == 3
    assert table.numbers() == [1, 2, 3, 4]


@metadata
def test_a_branch_has_metadata_of_its_own(tables: TableApi, branched: TableOnWire) -> None:
    tables.update_table_schema_metadata(path_of(branched), {"on": "dev"}, branch="dev")
    body = {"load_detailed_metadata": True}
    assert branched.asked("describe", {**body, "branch": "dev"})["metadata"] == {"on": "dev"}
    assert branched.asked("describe", body)["metadata"] == {}
    assert branched.numbers() == [1, 2]
    with pytest.raises(ApiException) as raised:
        tables.update_table_schema_metadata(path_of(branched), {}, branch="nowhere")
    assert refusal(raised) == (404, 22)


@pytest.mark.operation("UpdateTableSchemaMetadata", client="pylance")
def test_pylance_replaces_the_metadata(rest: RestNamespace, table: TableOnWire) -> None:
    request = UpdateTableSchemaMetadataRequest(id=table.levels, metadata={"owner": "me"})
    rest.update_table_schema_metadata(request)
    opened = lance.dataset(namespace_client=rest, table_id=table.levels)
    assert opened.schema.metadata == {b"owner": b"me"}


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b'{"a": 1}', b'{"a": null}', b'{"": "x"}', b"{", b'"text"']
)
def test_metadata_that_is_no_map_of_texts_is_refused(unchanged: TableOnWire, content: bytes) -> None:
    answer = unchanged.post("schema_metadata/update", content=content)
    assert (answer.status_code, answer.json()["code"]) == (400, 13), answer.text
    assert answer.json()["error"].startswith("body")


def test_computed_columns_do_not_stand_in_the_way_of_an_overwrite_or_a_restore(
    lake: tidemill.Lake, table: TableOnWire
) -> None:
    sdk = lake.table(table.levels)
    sdk.add_column("double", double)
    sdk.backfill("double").wait(300)
    table.asked("create?mode=overwrite", content=stream(some_rows(count=5)))
    check_refusal(table.post("backfill_column", {"column": "double"}), 404, 12)
    sdk.add_column("double", double)
    sdk.backfill("double").wait(300)
    assert sdk.to_arrow()["double"].to_pylist() == [2, 4, 6, 8, 10]
    table.asked("restore", {"version": 3})
    sdk.backfill("double").wait(300)
    assert sorted(sdk.to_arrow()["double"].to_pylist()) == [2, 4, 6]


def test_a_table_whose_latest_manifest_is_gone_goes_on_from_the_one_before(table: TableOnWire) -> None:
    table.insert(some_rows(4))
    newest: Path = max(
        (table.directory / "_versions").glob("*.manifest"), key=lambda path: path.stat().st_mtime
    )
    newest.unlink()
    assert table.asked("describe")["version"] == 1
    assert table.asked("insert", content=stream(some_rows(7)))["version"] == 2
    assert (table.numbers(), table.asked("count_rows")) == ([1, 2], 6)
