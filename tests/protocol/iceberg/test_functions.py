"""Functions that are registered elsewhere, as Iceberg's clients see them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from lancedb import udf
from lancedb.remote.db import RemoteDBConnection

import tidemill
from tests.protocol.iceberg.wire import Space, check_error, check_form
from tests.protocol.remote import database

__all__ = ["database"]


def triple(x: float) -> float:
    return x * 3


def halved(x: float) -> float:
    return x / 2


def function_name() -> str:
    return f"f{uuid4().hex[:12]}"


def loaded(space: Space, name: str) -> Any:
    answer = space.http.get(space.at("functions", name))
    return check_form(answer, "LoadFunctionResult")["metadata"]


def listed(space: Space, **query: str) -> list[list[str]]:
    answer = space.http.get(space.at("functions"), params=query)
    found: list[list[str]] = check_form(answer, "ListFunctionsResponse")["identifiers"]
    return found


@pytest.fixture
def registered(database: RemoteDBConnection) -> str:
    name = function_name()
    database.create_function(udf(name=name)(triple))
    return name


def test_a_function_of_lancedb_is_listed_in_every_namespace(space: Space, registered: str) -> None:
    assert [space.name, registered] in listed(space)


def test_a_function_of_lancedb_is_told_by_its_source(space: Space, registered: str) -> None:
    metadata = loaded(space, registered)
    [definition] = metadata["definitions"]
    [version] = definition["versions"]
    assert definition["current-version-id"] == version["version-id"]
    assert [parameter["name"] for parameter in definition["parameters"]] == ["x"]
    assert (definition["function-type"], definition["return-type"]) == ("udf", "double")
    assert "return x * 3" in version["representations"][0]["sql"]


def test_a_function_that_is_registered_again_has_another_version(
    space: Space, database: RemoteDBConnection, registered: str
) -> None:
    before = loaded(space, registered)
    database.create_function(udf(name=registered)(halved))
    after = loaded(space, registered)
    assert after["function-uuid"] == before["function-uuid"]
    [definition] = after["definitions"]
    assert len(definition["versions"]) == len(after["definition-log"]) == 2
    current = {version["version-id"]: version for version in definition["versions"]}
    newest = current[definition["current-version-id"]]
    assert "return x / 2" in newest["representations"][0]["sql"]


def test_a_function_of_ours_is_loaded(space: Space, lake: tidemill.Lake) -> None:
    name = function_name()

    @tidemill.udf(name=name)
    def doubled(number: int) -> int:
        return number * 2

    digest = lake.register(doubled)
    metadata = loaded(space, name)
    assert metadata["properties"]["tidemill.digest"] == digest
    [definition] = metadata["definitions"]
    assert [parameter["name"] for parameter in definition["parameters"]] == ["number"]
    assert definition["return-type"] == "long"


def test_functions_are_listed_page_by_page(space: Space, database: RemoteDBConnection) -> None:
    wanted = sorted(function_name() for _ in range(3))
    for name in wanted:
        database.create_function(udf(name=name)(triple))
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        answer = space.http.get(space.at("functions"), params={"pageSize": "2", "pageToken": token})
        page = check_form(answer, "ListFunctionsResponse")
        assert len(page["identifiers"]) <= 2
        found += [levels[-1] for levels in page["identifiers"]]
        token = page["next-page-token"]
    assert found == sorted(set(found))
    assert set(wanted) <= set(found)


def test_a_function_that_is_missing_is_not_found(space: Space) -> None:
    check_error(space.http.get(space.at("functions", function_name())), 404, "NoSuchFunctionException")


def test_functions_of_a_missing_namespace_are_not_an_empty_list(space: Space, registered: str) -> None:
    for path in ("functions", f"functions/{registered}"):
        check_error(space.http.get(f"namespaces/nowhere/{path}"), 404, "NoSuchNamespaceException")
