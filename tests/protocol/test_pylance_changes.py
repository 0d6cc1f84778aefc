"""pylance's namespace client with columns, indexes and transactions."""

from __future__ import annotations

import time

import pytest
from lance.namespace import RestNamespace
from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAlterColumnsRequest,
    AlterTableDropColumnsRequest,
    CreateTableIndexRequest,
    DescribeTableIndexStatsRequest,
    DescribeTransactionRequest,
    DropTableIndexRequest,
    ListTableIndicesRequest,
)
from lance_namespace.errors import TableColumnNotFoundError, TableIndexNotFoundError
from lance_namespace_urllib3_client.models import AddColumnsEntry, AlterColumnsEntry

from tests.protocol.wire import TableOnWire


@pytest.mark.operation(
    "AlterTableAddColumns", "AlterTableAlterColumns", "AlterTableDropColumns", client="pylance"
)
def test_columns_change(rest: RestNamespace, table: TableOnWire) -> None:
    entries = [AddColumnsEntry(name="twice", expression="id * 2")]
    added = rest.alter_table_add_columns(AlterTableAddColumnsRequest(id=table.levels, new_columns=entries))
    alterations = [AlterColumnsEntry(path="twice", rename="double")]
    altered = rest.alter_table_alter_columns(
        AlterTableAlterColumnsRequest(id=table.levels, alterations=alterations)
    )
    dropped = rest.alter_table_drop_columns(AlterTableDropColumnsRequest(id=table.levels, columns=["text"]))
    assert [answer.version for answer in (added, altered, dropped)] == [2, 3, 4]
    assert table.asked("count_rows", {"predicate": "double = id * 2"}) == 3


def test_a_missing_column_is_known_by_its_error(rest: RestNamespace, table: TableOnWire) -> None:
    with pytest.raises(TableColumnNotFoundError):
        rest.alter_table_drop_columns(AlterTableDropColumnsRequest(id=table.levels, columns=["nope"]))


@pytest.mark.operation(
    "CreateTableIndex",
    "ListTableIndices",
    "DescribeTableIndexStats",
    "DropTableIndex",
    "DescribeTransaction",
    client="pylance",
)
def test_an_index_lives_and_dies(rest: RestNamespace, table: TableOnWire) -> None:
    created = rest.create_table_index(
        CreateTableIndexRequest(id=table.levels, column="id", index_type="BTREE")
    )
    assert created.transaction_id is not None
    asked = DescribeTransactionRequest(id=[created.transaction_id])
    deadline = time.monotonic() + 90
    while rest.describe_transaction(asked).status in ("QUEUED", "RUNNING") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert rest.describe_transaction(asked).status == "SUCCEEDED"
    (index,) = rest.list_table_indices(ListTableIndicesRequest(id=table.levels)).indexes
    assert (index.index_name, index.status) == ("id_idx", "SUCCEEDED")
    stats = rest.describe_table_index_stats(
        DescribeTableIndexStatsRequest(id=table.levels, index_name="id_idx")
    )
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (3, 0)
    drop = DropTableIndexRequest(id=table.levels, index_name="id_idx")
    rest.drop_table_index(drop)
    with pytest.raises(TableIndexNotFoundError):
        rest.drop_table_index(drop)
