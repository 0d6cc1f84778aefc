"""Namespaces and tables as catalog objects, through pylance's REST namespace."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from lance.namespace import RestNamespace
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    GetTableStatsRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    NamespaceExistsRequest,
    RegisterTableRequest,
    RenameTableRequest,
    RestoreTableRequest,
    TableExistsRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from tests.protocol.wire import TableOnWire, some_rows


@pytest.mark.operation(
    "CreateNamespace",
    "ListNamespaces",
    "DescribeNamespace",
    "NamespaceExists",
    "DropNamespace",
    client="pylance",
)
def test_a_namespace_lives_and_ends(rest: RestNamespace, namespace: str) -> None:
    inner = [namespace, "in ner/+ü"]
    rest.create_namespace(CreateNamespaceRequest(id=inner, properties={"owner": "me"}))
    assert rest.list_namespaces(ListNamespacesRequest(id=[namespace])).namespaces == [inner[1]]
    assert rest.describe_namespace(DescribeNamespaceRequest(id=inner)).properties == {"owner": "me"}
    rest.namespace_exists(NamespaceExistsRequest(id=inner))
    with pytest.raises(NamespaceNotEmptyError):
        rest.drop_namespace(DropNamespaceRequest(id=[namespace]))
    rest.drop_namespace(DropNamespaceRequest(id=[namespace], behavior="Cascade"))
    with pytest.raises(NamespaceNotFoundError):
        rest.namespace_exists(NamespaceExistsRequest(id=inner))
    rest.drop_namespace(DropNamespaceRequest(id=[namespace], mode="Skip"))


@pytest.mark.operation("DeregisterTable", "RegisterTable", "DropTable", "TableExists", client="pylance")
def test_a_table_leaves_and_comes_back(rest: RestNamespace, table: TableOnWire) -> None:
    location, back = table.directory, [table.namespace, "back"]
    gone = rest.deregister_table(DeregisterTableRequest(id=table.levels))
    assert gone.location == str(location)
    with pytest.raises(TableNotFoundError):
        rest.table_exists(TableExistsRequest(id=table.levels))
    rest.register_table(RegisterTableRequest(id=back, location=str(location)))
    rest.table_exists(TableExistsRequest(id=back))
    assert lance.dataset(namespace_client=rest, table_id=back).count_rows() == 3
    with pytest.raises(InvalidInputError):
        rest.register_table(RegisterTableRequest(id=table.levels, location="/etc"))
    rest.drop_table(DropTableRequest(id=back))
    assert not location.exists()


@pytest.mark.operation("RenameTable", "ListTables", client="pylance")
def test_a_table_is_renamed_and_written_again(rest: RestNamespace, table: TableOnWire) -> None:
    opened = lance.dataset(namespace_client=rest, table_id=table.levels)
    rest.rename_table(RenameTableRequest(id=table.levels, new_table_name="u"))
    assert rest.list_tables(ListTablesRequest(id=[table.namespace])).tables == ["u"]
    renamed = [table.namespace, "u"]
    lance.write_dataset(some_rows(4), namespace_client=rest, table_id=renamed, mode="append")
    assert lance.dataset(namespace_client=rest, table_id=renamed).count_rows() == 6
    assert opened.count_rows() == 3
    rest.declare_table(DeclareTableRequest(id=table.levels))
    with pytest.raises(TableAlreadyExistsError):
        rest.rename_table(RenameTableRequest(id=table.levels, new_table_name="u"))


@pytest.mark.operation("RestoreTable", "GetTableStats", client="pylance")
def test_a_table_is_restored_and_measured(rest: RestNamespace, table: TableOnWire) -> None:
    table.insert(some_rows(4))
    assert rest.get_table_stats(GetTableStatsRequest(id=table.levels)).num_rows == 6
    rest.restore_table(RestoreTableRequest(id=table.levels, version=1))
    assert rest.get_table_stats(GetTableStatsRequest(id=table.levels)).num_rows == 3
    with pytest.raises(TableVersionNotFoundError):
        rest.restore_table(RestoreTableRequest(id=table.levels, version=99))


@pytest.mark.operation("DeclareTable", "DescribeTable", client="pylance")
def test_a_table_is_described_in_every_way(rest: RestNamespace, table: TableOnWire) -> None:
    lance.dataset(namespace_client=rest, table_id=table.levels).tags.create("gold", 1)
    table.insert(some_rows(4))
    asked = DescribeTableRequest(
        id=table.levels, tag="gold", with_table_uri=True, load_detailed_metadata=True, check_declared=True
    )
    found = rest.describe_table(asked)
    assert (found.version, found.table, found.namespace) == (1, "t", [table.namespace])
    assert (found.table_uri, found.is_only_declared) == (Path(table.directory).as_uri(), False)
    assert found.stats is not None
    assert found.stats.num_fragments == 1
    with pytest.raises(TableTagNotFoundError):
        rest.describe_table(DescribeTableRequest(id=table.levels, tag="lead"))
    declared = rest.declare_table(DeclareTableRequest(id=[table.namespace, "later"]))
    assert declared.managed_versioning
    later = rest.describe_table(DescribeTableRequest(id=[table.namespace, "later"], check_declared=True))
    assert (later.is_only_declared, later.version) == (True, None)
