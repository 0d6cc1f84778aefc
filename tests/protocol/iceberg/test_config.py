"""What clients are told before anything else."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

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


def test_an_address_that_ends_in_a_slash_is_the_same(iceberg: httpx.Client) -> None:
    assert iceberg.get("config/").json() == config(iceberg)
