"""What clients are told before anything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.conftest import start_server
from tests.iceberg_requests import new_view
from tests.protocol.iceberg.wire import Space, check_error, check_form
from tests.specification.tables import ICEBERG

WAREHOUSE = "tidemill"
NOT_LISTED = {"GET /v1/config", "POST /v1/oauth/tokens"}


def config(iceberg: httpx.Client, **query: str) -> dict[str, Any]:
    return dict(check_form(iceberg.get("config", params=query), "CatalogConfig"))


def test_every_operation_of_the_specification_is_listed(iceberg: httpx.Client) -> None:
    operations = {str(operation) for operation in ICEBERG.operations.values()}
    assert len(operations) == 35
    assert set(config(iceberg)["endpoints"]) == operations - NOT_LISTED


def test_no_operation_is_listed_twice(iceberg: httpx.Client) -> None:
    endpoints = config(iceberg)["endpoints"]
    assert len(set(endpoints)) == len(endpoints) == 33


def test_keys_are_said_to_be_kept_for_half_an_hour(iceberg: httpx.Client) -> None:
    assert config(iceberg)["idempotency-key-lifetime"] == "PT30M"


def test_nothing_is_imposed_on_clients(iceberg: httpx.Client) -> None:
    told = config(iceberg)
    assert (told["defaults"], told["overrides"]) == ({}, {})


@pytest.mark.parametrize("name", [WAREHOUSE, ""])
def test_the_warehouse_is_known_by_its_name(iceberg: httpx.Client, name: str) -> None:
    assert config(iceberg, warehouse=name) == config(iceberg)


def test_the_warehouse_is_known_by_its_place(space: Space) -> None:
    place = space.made_table()["metadata"]["location"].rpartition("/iceberg/")[0]
    assert config(space.http, warehouse=f"{place}/") == config(space.http)


def test_another_warehouse_is_not_found(iceberg: httpx.Client) -> None:
    check_error(iceberg.get("config", params={"warehouse": "other"}), 404, "NoSuchWarehouseException")


def test_every_path_may_begin_with_the_name_of_the_warehouse(space: Space) -> None:
    answer = space.http.get(f"{WAREHOUSE}/{space.at()}")
    assert answer.json() == space.http.get(space.at()).json()
    check_form(answer, "GetNamespaceResponse")


def test_a_path_cannot_begin_with_another_name(space: Space) -> None:
    check_error(space.http.get(f"other/{space.at()}"), 404, "NoSuchWarehouseException")


@pytest.fixture(scope="module")
def dotted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose namespaces have dots between their levels."""
    root = tmp_path_factory.mktemp("dotted")
    server = start_server(root, "--no-worker", TIDEMILL_NAMESPACE_SEPARATOR=".")
    yield f"{server.url}/iceberg"
    server.stop()


def test_another_separator_is_advertised_and_understood(dotted: str) -> None:
    with httpx.Client(base_url=f"{dotted}/v1", timeout=60) as http:
        assert config(http)["overrides"] == {"namespace-separator": "%2E"}
        for levels in (["a"], ["a", "b"]):
            assert http.post("namespaces", json={"namespace": levels}).status_code == 200
        assert http.post("namespaces/a%2Eb/views", json=new_view("v")).status_code == 200
        for spelling in ("a.b", "a%2Eb", "a%1Fb"):
            assert http.get(f"namespaces/{spelling}").json()["namespace"] == ["a", "b"]
            listed = http.get(f"namespaces?parent={spelling}").json()
            assert listed["namespaces"] == []
            path = f"namespaces/{spelling}/views/v?referenced-by={spelling}.w,{spelling}%1Fx"
            assert http.get(path.replace(".w", "%1Fw" if "%1F" in spelling else ".w")).status_code == 200
        assert http.get("namespaces?parent=a").json()["namespaces"] == [["a", "b"]]
        refused = http.post("namespaces", json={"namespace": ["a", "c.d"]})
        check_error(refused, 400, "BadRequestException", "namespace: 'c.d' contains the namespace separator")


def test_pyiceberg_uses_the_separator_that_is_advertised(dotted: str) -> None:
    catalog = RestCatalog("dotted", uri=dotted)
    for levels in (("x",), ("x", "y")):
        catalog.create_namespace(levels)
    assert catalog.list_namespaces(("x",)) == [("x", "y")]
    catalog.create_table(("x", "y", "t"), pa.schema([pa.field("id", pa.int64())]))
    assert catalog.list_tables(("x", "y")) == [("x", "y", "t")]
    assert catalog.load_table(("x", "y", "t")).name() == ("x", "y", "t")


def test_an_address_that_ends_in_a_slash_is_the_same(iceberg: httpx.Client) -> None:
    assert iceberg.get("config/").json() == config(iceberg)
