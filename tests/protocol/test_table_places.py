"""Where a table lies, if its maker chooses."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import DeclareTableRequest

from tests.conftest import RunningServer
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

pytestmark = pytest.mark.operation("DeclareTable", client="urllib3")


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


def test_a_table_is_declared_at_a_chosen_place(
    tables: TableApi, server: RunningServer, namespace: str
) -> None:
    path, place = f"{namespace}$t", f"{namespace}/chosen"
    declared = tables.declare_table(path, DeclareTableRequest(location=place))
    assert declared.location == str(server.root / "warehouse" / place)
    answer = tables.create_table(path, stream(some_rows()))
    assert answer.location == declared.location
    tables.drop_table(path)
    assert not Path(declared.location).exists()


@pytest.mark.parametrize("place", ["/etc", "../x", "s3://bucket/t", "x.lance/inner", "file:///"])
def test_a_table_is_not_declared_at_any_place(tables: TableApi, namespace: str, place: str) -> None:
    with pytest.raises(ApiException) as raised:
        tables.declare_table(f"{namespace}$t", DeclareTableRequest(location=place))
    assert refusal(raised) == (400, 13)


def test_what_is_there_is_registered_and_not_declared(
    tables: TableApi, table: TableOnWire, namespace: str
) -> None:
    location = str(table.directory)
    with pytest.raises(ApiException) as raised:
        tables.declare_table(f"{namespace}$u", DeclareTableRequest(location=location))
    assert refusal(raised) == (409, 5)
    table.asked("deregister")
    with pytest.raises(ApiException) as raised:
        tables.declare_table(f"{namespace}$u", DeclareTableRequest(location=location))
    assert refusal(raised) == (400, 13)


def test_older_clients_choose_place_and_properties_in_headers(
    table: TableOnWire, server: RunningServer
) -> None:
    place = f"{table.namespace}/chosen"
    headers = {"x-lance-table-location": place, "x-lance-table-properties": '{"owner": "me"}'}
    another = TableOnWire(table.http, table.namespace, "another")
    made = another.asked("create", content=stream(some_rows()), headers=headers)
    assert made["location"] == str(server.root / "warehouse" / place)
    assert made["properties"] == {"owner": "me"}
    check_refusal(
        table.post("create?mode=overwrite", content=stream(some_rows()), headers=headers), 400, 13, "location"
    )
