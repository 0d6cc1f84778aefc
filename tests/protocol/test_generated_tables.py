"""Tables through the client generated from the specification: declared, filled, described, dropped."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, NamespaceApi, TableApi
from lance_namespace_urllib3_client.models import (
    CountTableRowsRequest,
    CreateNamespaceRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DescribeTableVersionRequest,
    QueryTableRequest,
    QueryTableRequestVector,
    TableExistsRequest,
)

from tests.conftest import RunningServer
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, some_rows, stream

pytestmark = pytest.mark.operation(
    "CreateTable",
    "DeclareTable",
    "DescribeTable",
    "TableExists",
    "ListTables",
    "ListAllTables",
    "DropTable",
    client="urllib3",
)


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def declared(tables: TableApi, namespace: str) -> str:
    path = f"{namespace}$declared"
    tables.declare_table(path, DeclareTableRequest(properties={"owner": "me"}))
    return path


def count(tables: TableApi, path: str) -> int:
    return tables.count_table_rows(path, CountTableRowsRequest())


def test_a_declared_table_has_a_location_and_no_data(tables: TableApi, namespace: str) -> None:
    path = f"{namespace}$t"
    answer = tables.declare_table_with_http_info(path, DeclareTableRequest(properties={"owner": "me"}))
    assert (answer.status_code, answer.data.managed_versioning) == (200, True)
    assert answer.data.properties == {"owner": "me"}
    described = tables.describe_table(path, DescribeTableRequest(), check_declared=True)
    assert (described.location, described.is_only_declared) == (answer.data.location, True)
    assert (described.version, described.var_schema) == (None, None)


def test_a_declared_table_exists(tables: TableApi, declared: str) -> None:
    answer = tables.table_exists_with_http_info(declared, TableExistsRequest())
    assert (answer.status_code, answer.raw_data) == (200, b"")


def test_a_declared_table_cannot_be_declared_again(tables: TableApi, declared: str) -> None:
    with pytest.raises(ApiException) as raised:
        tables.declare_table(declared, DeclareTableRequest())
    assert refusal(raised) == (409, 5)


def test_a_declared_table_has_no_rows_to_count(tables: TableApi, declared: str) -> None:
    with pytest.raises(ApiException) as raised:
        count(tables, declared)
    assert refusal(raised) == (409, 19)


def test_a_declared_table_has_no_rows_to_query(tables: TableApi, declared: str) -> None:
    with pytest.raises(ApiException) as raised:
        tables.query_table(declared, QueryTableRequest(k=1, vector=QueryTableRequestVector()))
    assert refusal(raised) == (409, 19)


def test_a_declared_table_has_no_versions(tables: TableApi, declared: str) -> None:
    assert tables.list_table_versions(declared).versions == []


def test_creating_a_declared_table_fills_it_in_place(tables: TableApi, declared: str) -> None:
    location = tables.describe_table(declared, DescribeTableRequest()).location
    answer = tables.create_table_with_http_info(declared, stream(some_rows()))
    assert (answer.status_code, answer.data.version, answer.data.location) == (200, 1, location)
    assert answer.data.properties == {"owner": "me"}
    assert count(tables, declared) == 3


def test_inserting_into_a_declared_table_fills_it(tables: TableApi, declared: str) -> None:
    answer = tables.insert_into_table_with_http_info(declared, stream(some_rows()))
    assert (answer.status_code, answer.data.num_inserted_rows, answer.data.version) == (200, 3, 1)
    described = tables.describe_table(declared, DescribeTableRequest(), check_declared=True)
    assert (described.is_only_declared, described.version) == (False, 1)


def test_declared_tables_are_listed_unless_left_out(
    tables: TableApi, table: TableOnWire, namespace: str
) -> None:
    tables.declare_table(f"{namespace}$declared", DeclareTableRequest())
    assert tables.list_tables(namespace).tables == ["declared", "t"]
    assert tables.list_tables(namespace, include_declared=True).tables == ["declared", "t"]
    assert tables.list_tables(namespace, include_declared=False).tables == ["t"]


@pytest.mark.parametrize(("include", "first"), [(True, ["a", "b"]), (False, ["b", "d"])])
def test_tables_come_sorted_and_in_pages(
    tables: TableApi, namespace: str, include: bool, first: list[str]
) -> None:
    for name in ("a", "c", "e"):
        tables.declare_table(f"{namespace}${name}", DeclareTableRequest())
    for name in ("b", "d", "f"):
        tables.create_table(f"{namespace}${name}", stream(some_rows()))
    page = tables.list_tables(namespace, limit=2, include_declared=include)
    assert page.tables == first
    rest = tables.list_tables(namespace, page_token=page.page_token, include_declared=include)
    assert (first + rest.tables, rest.page_token) == (list("abcdef") if include else list("bdf"), None)


def test_a_table_is_created_with_properties(tables: TableApi, namespace: str) -> None:
    path = f"{namespace}$t"
    tables.create_table(path, stream(some_rows()), properties=json.dumps({"owner": "me"}))
    assert tables.describe_table(path, DescribeTableRequest()).properties == {"owner": "me"}


def test_a_stream_without_rows_makes_an_empty_table(tables: TableApi, namespace: str) -> None:
    path = f"{namespace}$t"
    tables.create_table(path, stream(some_rows(count=0)))
    assert count(tables, path) == 0


@pytest.mark.parametrize(
    ("mode", "rows", "version"),
    [("ExistOk", 3, 1), ("exist_ok", 3, 1), ("Overwrite", 5, 2), ("overwrite", 5, 2)],
)
def test_the_mode_says_what_becomes_of_an_existing_table(
    tables: TableApi, table: TableOnWire, mode: str, rows: int, version: int
) -> None:
    path = "$".join(table.levels)
    answer = tables.create_table_with_http_info(path, stream(some_rows(count=5)), mode=mode)
    assert (answer.status_code, answer.data.version, count(tables, path)) == (200, version, rows)


def test_an_existing_table_is_not_created(tables: TableApi, still: TableOnWire) -> None:
    with pytest.raises(ApiException) as raised:
        tables.create_table("$".join(still.levels), stream(some_rows(count=5)))
    assert refusal(raised) == (409, 5)
    assert still.asked("count_rows") == 3


def test_a_table_needs_its_namespace(tables: TableApi, namespace: str) -> None:
    with pytest.raises(ApiException) as raised:
        tables.create_table(f"{namespace}$nowhere$t", stream(some_rows()))
    assert refusal(raised) == (404, 1)


@pytest.mark.parametrize(("mode", "rows"), [(None, 6), ("append", 6), ("Append", 6), ("overwrite", 3)])
def test_rows_are_inserted(tables: TableApi, table: TableOnWire, mode: str | None, rows: int) -> None:
    path = "$".join(table.levels)
    answer = tables.insert_into_table(path, stream(some_rows(4)), mode=mode)
    assert (answer.num_inserted_rows, answer.version, count(tables, path)) == (3, 2, rows)


def test_a_description_has_everything_clients_decide_by(tables: TableApi, still: TableOnWire) -> None:
    answer = tables.describe_table_with_http_info("$".join(still.levels), DescribeTableRequest())
    described = answer.data
    assert (answer.status_code, described.table, described.namespace) == (200, "t", [still.namespace])
    assert (described.version, described.managed_versioning) == (1, True)
    assert described.location == str(still.directory)
    assert (described.is_only_declared, described.table_uri) == (None, None)
    assert described.var_schema is not None
    assert [(field.name, field.type.type) for field in described.var_schema.fields] == [
        ("id", "int64"),
        ("text", "utf8"),
        ("vector", "fixed_size_list"),
    ]


def test_a_description_has_more_if_asked_for(tables: TableApi, still: TableOnWire) -> None:
    described = tables.describe_table(
        "$".join(still.levels), DescribeTableRequest(), with_table_uri=True, load_detailed_metadata=True
    )
    assert described.table_uri == f"file://{still.directory}"
    assert (described.metadata, described.version, described.table) == ({}, 1, "t")
    assert described.stats is not None
    assert (described.stats.num_deleted_rows, described.stats.num_fragments) == (0, 1)


def test_a_table_is_described_at_a_version(tables: TableApi, table: TableOnWire) -> None:
    path = "$".join(table.levels)
    tables.insert_into_table(path, stream(pa.table({"other": ["x"]})), mode="overwrite")
    first = tables.describe_table(path, DescribeTableRequest(version=1))
    assert first.var_schema is not None
    assert (first.version, first.var_schema.fields[0].name) == (1, "id")
    latest = tables.describe_table(path, DescribeTableRequest())
    assert latest.var_schema is not None
    assert (latest.version, latest.var_schema.fields[0].name) == (2, "other")


def test_a_missing_version_is_not_found(tables: TableApi, still: TableOnWire) -> None:
    path = "$".join(still.levels)
    for call in (
        lambda: tables.describe_table(path, DescribeTableRequest(version=9)),
        lambda: tables.table_exists(path, TableExistsRequest(version=9)),
        lambda: tables.describe_table_version(path, DescribeTableVersionRequest(version=9)),
        lambda: tables.count_table_rows(path, CountTableRowsRequest(version=9)),
        lambda: tables.query_table(path, QueryTableRequest(k=1, vector=QueryTableRequestVector(), version=9)),
    ):
        with pytest.raises(ApiException) as raised:
            call()
        assert refusal(raised) == (404, 11)


def test_a_missing_table_is_not_found(tables: TableApi, namespace: str) -> None:
    path = f"{namespace}$nowhere"
    for call in (
        lambda: tables.describe_table(path, DescribeTableRequest()),
        lambda: tables.table_exists(path, TableExistsRequest()),
        lambda: tables.drop_table(path),
        lambda: tables.insert_into_table(path, stream(some_rows())),
        lambda: count(tables, path),
        lambda: tables.query_table(path, QueryTableRequest(k=1, vector=QueryTableRequestVector())),
        lambda: tables.list_table_versions(path),
        lambda: tables.describe_table_version(path, DescribeTableVersionRequest()),
    ):
        with pytest.raises(ApiException) as raised:
            call()
        assert refusal(raised) == (404, 4)


def test_versions_are_listed_in_pages_and_in_both_orders(tables: TableApi, table: TableOnWire) -> None:
    path = "$".join(table.levels)
    for first in (4, 7):
        table.insert(some_rows(first))
    page = tables.list_table_versions(path, limit=2, descending=True)
    rest = tables.list_table_versions(path, limit=2, descending=True, page_token=page.page_token)
    assert [version.version for version in (*page.versions, *rest.versions)] == [3, 2, 1]
    assert rest.page_token is None
    assert [version.version for version in tables.list_table_versions(path).versions] == [1, 2, 3]


def test_a_dropped_table_is_gone_with_its_files(tables: TableApi, table: TableOnWire) -> None:
    files = table.directory
    answer = tables.drop_table_with_http_info("$".join(table.levels))
    assert (answer.status_code, answer.data.id) == (200, table.levels)
    assert answer.data.location == str(files)
    assert tables.list_tables(table.namespace).tables == []
    assert not files.exists()


def test_all_tables_are_listed_with_their_full_ids(
    tables: TableApi, generated: ApiClient, namespace: str
) -> None:
    NamespaceApi(generated).create_namespace(f"{namespace}$inner", CreateNamespaceRequest())
    tables.create_table(f"{namespace}$b", stream(some_rows()))
    tables.create_table(f"{namespace}$inner$a", stream(some_rows()))
    tables.declare_table(f"{namespace}$inner$later", DeclareTableRequest())

    def listed(delimiter: str, **options: Any) -> list[str]:
        """Page by page, those of this test."""
        names, token = [], None
        while True:
            page = tables.list_all_tables(delimiter=delimiter, limit=2, page_token=token, **options)
            assert len(page.tables) <= 2
            names += page.tables
            token = page.page_token
            if not token:
                return [name for name in names if name.startswith(namespace)]

    ids = [f"{namespace}$b", f"{namespace}$inner$a", f"{namespace}$inner$later"]
    assert listed("$") == ids
    assert listed(".") == [name.replace("$", ".") for name in ids]
    assert listed("$", include_declared=False) == ids[:2]
    assert tables.list_all_tables(limit=0).tables == []
    assert set(ids) <= set(tables.list_all_tables(limit=-1).tables)


def test_a_listing_goes_on_after_a_table_that_is_gone(tables: TableApi, namespace: str) -> None:
    for name in ("a", "b", "c"):
        tables.declare_table(f"{namespace}${name}", DeclareTableRequest())
    page = tables.list_tables(namespace, limit=2)
    tables.drop_table(f"{namespace}$b")
    assert tables.list_tables(namespace, limit=2, page_token=page.page_token).tables == ["c"]
    assert tables.list_tables(namespace, limit=0).tables == []
    assert tables.list_tables(namespace, limit=-1).tables == ["a", "c"]


def test_a_table_is_described_at_a_tag(tables: TableApi, table: TableOnWire) -> None:
    path = "$".join(table.levels)
    table.asked("tags/create", {"tag": "first", "version": 1})
    table.insert(some_rows(4))
    assert tables.describe_table(path, DescribeTableRequest(tag="first")).version == 1
    for request, expected in (
        (DescribeTableRequest(tag="nowhere"), (404, 8)),
        (DescribeTableRequest(tag="first", version=1), (400, 13)),
        (DescribeTableRequest(tag="first", branch="main"), (400, 13)),
    ):
        with pytest.raises(ApiException) as raised:
            tables.describe_table(path, request)
        assert refusal(raised) == expected


def test_a_table_is_described_on_a_branch(tables: TableApi, table: TableOnWire) -> None:
    path = "$".join(table.levels)
    table.asked("branches/create", {"name": "dev"})
    tables.update_table_schema_metadata(path, {"on": "dev"}, branch="dev")
    table.asked("tags/create", {"tag": "there", "version": 2, "branch": "dev"})
    for request in (DescribeTableRequest(branch="dev"), DescribeTableRequest(tag="there")):
        described = tables.describe_table(path, request, load_detailed_metadata=True)
        assert (described.version, described.metadata) == (2, {"on": "dev"})
        assert described.location == str(table.directory)
    assert tables.describe_table(path, DescribeTableRequest()).version == 1
    assert tables.describe_table(path, DescribeTableRequest(branch="dev", version=1)).version == 1
    with pytest.raises(ApiException) as raised:
        tables.describe_table(path, DescribeTableRequest(branch="nowhere"))
    assert refusal(raised) == (404, 22)


def test_an_overwritten_table_has_the_properties_of_the_new_one(tables: TableApi, declared: str) -> None:
    tables.create_table(declared, stream(some_rows()), properties=json.dumps({"team": "us"}))
    described = tables.describe_table(declared, DescribeTableRequest())
    assert described.properties == {"owner": "me", "team": "us"}
    tables.create_table(declared, stream(some_rows()), mode="Overwrite", properties=json.dumps({"a": "b"}))
    assert tables.describe_table(declared, DescribeTableRequest()).properties == {"a": "b"}


def test_writers_that_create_one_table_at_once_do_not_both_make_it(
    tables: TableApi, server: RunningServer, namespace: str
) -> None:
    def create(mode: str) -> int:
        answer = httpx.post(
            f"{server.url}/v1/table/{namespace}$t/create", params={"mode": mode}, content=stream(some_rows())
        )
        return answer.status_code

    before = set((server.root / "warehouse").iterdir())
    with ThreadPoolExecutor(6) as threads:
        outcomes = sorted(threads.map(create, ["Create"] * 3 + ["ExistOk"] * 3))
    assert outcomes.count(200) >= 1
    assert set(outcomes) <= {200, 409}
    assert outcomes.count(409) <= 3
    assert len(set((server.root / "warehouse").iterdir()) - before) == 1
    assert count(tables, f"{namespace}$t") == 3


def test_read_your_writes_headers_are_accepted(still: TableOnWire) -> None:
    headers = {
        "x-lancedb-min-timestamp": "2026-01-01T00:00:00Z",
        "x-lancedb-min-version": "1",
        "x-lance-ctx-trace": "abc",
    }
    answer = still.post("describe", {"context": {"trace": "abc"}}, headers=headers)
    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert "abc" not in str(answer.headers)


@pytest.mark.parametrize("vend", [None, True, False])
def test_credentials_may_be_asked_for_or_not(tables: TableApi, still: TableOnWire, vend: bool | None) -> None:
    described = tables.describe_table("$".join(still.levels), DescribeTableRequest(vend_credentials=vend))
    assert described.storage_options is None


def test_writers_that_fill_one_declared_table_at_once_do_not_both_do_it(
    tables: TableApi, server: RunningServer, declared: str
) -> None:
    def create(mode: str) -> int:
        url = f"{server.url}/v1/table/{declared}/create"
        return httpx.post(url, params={"mode": mode}, content=stream(some_rows())).status_code

    with ThreadPoolExecutor(6) as threads:
        outcomes = list(threads.map(create, ["Create", "ExistOk"] * 3))
    assert set(outcomes) <= {200, 409}
    assert set(outcomes[1::2]) == {200}
    assert (count(tables, declared), len(tables.list_table_versions(declared).versions)) == (3, 1)
