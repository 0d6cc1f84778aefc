"""Namespaces over the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.protocol.iceberg.wire import Space, check_error, check_form


def create(iceberg: httpx.Client, *levels: str, **properties: str) -> httpx.Response:
    return iceberg.post("namespaces", json={"namespace": levels, "properties": properties})


def test_a_namespace_is_made_with_its_properties(iceberg: httpx.Client) -> None:
    name = f"i{uuid4().hex}"
    answer = create(iceberg, name, owner="me")
    told = check_form(answer, "CreateNamespaceResponse")
    location = told["properties"]["location"]
    assert told == {"namespace": [name], "properties": {"owner": "me", "location": location}}
    assert check_form(iceberg.get(f"namespaces/{name}"), "GetNamespaceResponse") == told


def properties(iceberg: httpx.Client, *levels: str) -> dict[str, str]:
    """Without the location, which every namespace has."""
    told = iceberg.get(f"namespaces/{'%1F'.join(levels)}").json()["properties"]
    return {key: value for key, value in told.items() if key != "location"}


def test_a_namespace_without_properties_has_only_a_location(space: Space) -> None:
    assert properties(space.http, space.name) == {}


def test_a_namespace_is_there_or_not(space: Space) -> None:
    there, missing = space.http.head(space.at()), space.http.head("namespaces/nowhere")
    assert (there.status_code, there.content) == (204, b"")
    assert (missing.status_code, missing.content) == (404, b"")


def test_a_namespace_can_be_made_once(space: Space) -> None:
    message = f"Namespace already exists: {space.name}"
    check_error(create(space.http, space.name), 409, "AlreadyExistsException", message)


def test_a_namespace_that_is_missing_is_not_loaded(iceberg: httpx.Client) -> None:
    message = "Namespace does not exist: a.b"
    check_error(iceberg.get("namespaces/a%1Fb"), 404, "NoSuchNamespaceException", message)


def test_levels_of_a_namespace_may_have_any_characters(space: Space) -> None:
    assert create(space.http, space.name, "a/b c+d.e%").status_code == 200
    for spelling in ("a%2Fb%20c%2Bd.e%25", "a%2Fb+c%2Bd%2Ee%25"):
        answer = space.http.get(f"namespaces/{space.name}%1F{spelling}")
        assert answer.json()["namespace"] == [space.name, "a/b c+d.e%"]


def test_only_direct_children_are_listed(space: Space) -> None:
    create(space.http, space.name, "b")
    create(space.http, space.name, "a")
    create(space.http, space.name, "a", "deep")
    answer = space.http.get("namespaces", params={"parent": space.name})
    told = check_form(answer, "ListNamespacesResponse")
    assert told == {"next-page-token": None, "namespaces": [[space.name, "a"], [space.name, "b"]]}
    deeper = space.http.get("namespaces", params={"parent": f"{space.name}\x1fa"})
    assert deeper.json()["namespaces"] == [[space.name, "a", "deep"]]


@pytest.mark.parametrize("query", [{}, {"parent": ""}])
def test_without_a_parent_the_topmost_are_listed(space: Space, query: dict[str, str]) -> None:
    listed = space.http.get("namespaces", params=query).json()["namespaces"]
    assert [space.name] in listed
    assert all(len(levels) == 1 for levels in listed)


def test_children_of_a_missing_namespace_are_not_an_empty_list(iceberg: httpx.Client) -> None:
    answer = iceberg.get("namespaces", params={"parent": "nowhere"})
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


def test_namespaces_are_listed_page_by_page(space: Space) -> None:
    for name in "abc":
        create(space.http, space.name, name)
    query = {"parent": space.name, "pageSize": "2"}
    first = space.http.get("namespaces", params=query).json()
    assert first["namespaces"] == [[space.name, "a"], [space.name, "b"]]
    second = space.http.get("namespaces", params=query | {"pageToken": first["next-page-token"]}).json()
    assert second == {"next-page-token": None, "namespaces": [[space.name, "c"]]}


def test_an_empty_namespace_is_dropped(space: Space) -> None:
    answer = space.http.delete(space.at())
    assert (answer.status_code, answer.content) == (204, b"")
    check_error(space.http.delete(space.at()), 404, "NoSuchNamespaceException")


CONTENTS: dict[str, Callable[[Space], Any]] = {
    "namespace": lambda space: create(space.http, space.name, "child"),
    "table": lambda space: space.made_table(),
    "view": lambda space: space.made_view(),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_namespace_that_holds_something_is_not_dropped(space: Space, content: str) -> None:
    CONTENTS[content](space)
    message = f"Namespace {space.name} is not empty."
    check_error(space.http.delete(space.at()), 409, "NamespaceNotEmptyException", message)


def test_properties_are_set_and_removed(iceberg: httpx.Client) -> None:
    name = f"i{uuid4().hex}"
    create(iceberg, name, a="1", b="2")
    body = {"removals": ["a", "missing"], "updates": {"b": "3", "c": "4"}}
    answer = iceberg.post(f"namespaces/{name}/properties", json=body)
    told = check_form(answer, "UpdateNamespacePropertiesResponse")
    assert told == {"updated": ["b", "c"], "removed": ["a"], "missing": ["missing"]}
    assert properties(iceberg, name) == {"b": "3", "c": "4"}


def test_a_property_cannot_be_set_and_removed_at_once(space: Space) -> None:
    body = {"removals": ["a"], "updates": {"a": "1"}}
    answer = space.http.post(space.at("properties"), json=body)
    message = "Invalid namespace update: cannot simultaneously set and remove keys: "
    check_error(answer, 422, "UnprocessableEntityException", message)


def test_properties_of_a_missing_namespace_are_not_set(iceberg: httpx.Client) -> None:
    answer = iceberg.post("namespaces/nowhere/properties", json={"updates": {"a": "1"}})
    check_error(answer, 404, "NoSuchNamespaceException")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "namespace"),
        ({"namespace": []}, "namespace"),
        ({"namespace": "a"}, "namespace"),
        ({"namespace": ["a", ""]}, "namespace"),
        ({"namespace": ["a\u001fb"]}, "namespace"),
        ({"namespace": ["new"], "properties": {"a": 1}}, "properties.a"),
    ],
)
def test_a_namespace_without_a_usable_name_is_refused(
    iceberg: httpx.Client, body: dict[str, Any], field: str
) -> None:
    check_error(iceberg.post("namespaces", json=body), 400, "BadRequestException", f"{field}: ")
