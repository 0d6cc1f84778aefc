"""Versions and scalar indexes through the client generated from the specification."""

from __future__ import annotations

import time

import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, IndexApi, TableApi, TransactionApi
from lance_namespace_urllib3_client.models import (
    CreateTableIndexRequest,
    CreateTableVersionRequest,
    DescribeTableIndexStatsRequest,
    DescribeTableVersionRequest,
    DescribeTransactionRequest,
)

from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, final_name, key_of

INDEX_TIMEOUT_SECONDS = 240

operation = pytest.mark.operation


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


def commit(tables: TableApi, table: TableOnWire, version: int) -> str:
    """Stages a manifest and asks for the version; says where the manifest is now."""
    staged = table.stage(version)
    request = CreateTableVersionRequest(
        version=version,
        manifest_path=key_of(staged),
        manifest_size=staged.stat().st_size,
        naming_scheme="V2",
    )
    answer = tables.create_table_version_with_http_info("$".join(table.levels), request)
    assert answer.status_code == 200
    assert answer.data.version is not None
    assert answer.data.version.version == version
    return answer.data.version.manifest_path


@operation("CreateTableVersion", client="urllib3")
def test_a_staged_manifest_becomes_a_version(tables: TableApi, table: TableOnWire) -> None:
    assert commit(tables, table, 2) == key_of(table.directory / "_versions" / final_name(2))
    assert table.numbers() == [1, 2]


@operation("CreateTableVersion", client="urllib3")
def test_a_version_belongs_to_the_first_who_asks(tables: TableApi, table: TableOnWire) -> None:
    commit(tables, table, 2)
    with pytest.raises(ApiException) as raised:
        commit(tables, table, 2)
    assert refusal(raised) == (409, 14)
    assert table.numbers() == [1, 2]


@operation("ListTableVersions", client="urllib3")
def test_versions_are_listed_in_pages_and_both_ways(tables: TableApi, table: TableOnWire) -> None:
    for version in (2, 3):
        commit(tables, table, version)
    name = "$".join(table.levels)
    first = tables.list_table_versions(name, limit=2)
    second = tables.list_table_versions(name, limit=2, page_token=first.page_token)
    newest = tables.list_table_versions(name, limit=1, descending=True)
    found = [[version.version for version in page.versions] for page in (first, second, newest)]
    assert (found, second.page_token) == ([[1, 2], [3], [3]], None)


@operation("DescribeTableVersion", client="urllib3")
def test_a_version_is_described(tables: TableApi, table: TableOnWire) -> None:
    path = commit(tables, table, 2)
    name = "$".join(table.levels)
    first = tables.describe_table_version(name, DescribeTableVersionRequest(version=1)).version
    latest = tables.describe_table_version(name, DescribeTableVersionRequest()).version
    assert (first.version, latest.version, latest.manifest_path) == (1, 2, path)
    with pytest.raises(ApiException) as raised:
        tables.describe_table_version(name, DescribeTableVersionRequest(version=9))
    assert refusal(raised) == (404, 11)


@operation("CreateTableScalarIndex", "DescribeTransaction", "DescribeTableIndexStats", client="urllib3")
def test_a_scalar_index_is_built(generated: ApiClient, table: TableOnWire) -> None:
    indexes, name = IndexApi(generated), "$".join(table.levels)
    request = CreateTableIndexRequest(column="id", index_type="BTREE", name="by_id")
    transaction = indexes.create_table_scalar_index(name, request).transaction_id
    assert transaction is not None
    give_up_at = time.monotonic() + INDEX_TIMEOUT_SECONDS
    while (status := _status(generated, transaction)) in ("QUEUED", "RUNNING"):
        assert time.monotonic() < give_up_at
        time.sleep(0.2)
    stats = indexes.describe_table_index_stats(name, "by_id", DescribeTableIndexStatsRequest())
    assert (status, stats.index_type, stats.num_indexed_rows) == ("SUCCEEDED", "BTREE", 3)


def _status(generated: ApiClient, transaction: str) -> str:
    described = TransactionApi(generated).describe_transaction(transaction, DescribeTransactionRequest())
    return described.status.upper()
