"""Views over the wire."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.protocol.iceberg.wire import (
    SCHEMA,
    Space,
    check_error,
    check_form,
    new_version,
    set_properties,
    view_version,
)


def assert_uuid(uuid: str) -> dict[str, Any]:
    return {"type": "assert-view-uuid", "uuid": uuid}


def query_of(metadata: dict[str, Any]) -> str:
    [current] = [
        version for version in metadata["versions"] if version["version-id"] == metadata["current-version-id"]
    ]
    return str(current["representations"][0]["sql"])


def test_a_view_is_made_and_loaded(space: Space) -> None:
    told = check_form(space.create_view(properties={"a": "1"}), "LoadViewResult")
    assert told["metadata"]["properties"] == {"a": "1"}
    assert check_form(space.http.get(space.view()), "LoadViewResult") == told


def test_properties_may_be_left_out(space: Space) -> None:
    body = {"name": "v", "schema": SCHEMA, "view-version": view_version(), "extra": True}
    answer = space.http.post(space.at("views"), json=body)
    assert check_form(answer, "LoadViewResult")["metadata"]["current-version-id"] == 1


def test_a_view_is_in_the_listing_and_a_table_is_not(space: Space) -> None:
    space.made_view("b")
    space.made_view("a")
    space.made_table("t")
    told = check_form(space.http.get(space.at("views")), "ListTablesResponse")
    assert told == {"next-page-token": None, "identifiers": [space.ident("a"), space.ident("b")]}


def test_views_are_listed_page_by_page(space: Space) -> None:
    for name in "abc":
        space.made_view(name)
    first = space.http.get(space.at("views"), params={"pageSize": 2}).json()
    query = {"pageSize": 2, "pageToken": first["next-page-token"]}
    second = space.http.get(space.at("views"), params=query).json()
    assert [entry["name"] for entry in first["identifiers"] + second["identifiers"]] == ["a", "b", "c"]
    assert second["next-page-token"] is None


def test_views_of_a_missing_namespace_are_not_an_empty_list(iceberg: httpx.Client) -> None:
    check_error(iceberg.get("namespaces/nowhere/views"), 404, "NoSuchNamespaceException")


def test_a_view_is_there_or_not(space: Space) -> None:
    space.made_view()
    there, missing = space.http.head(space.view()), space.http.head(space.view("other"))
    assert (there.status_code, there.content) == (204, b"")
    assert (missing.status_code, missing.content) == (404, b"")


def test_a_table_is_no_view(space: Space) -> None:
    space.made_table("t")
    message = f"View does not exist: {space.name}.t"
    check_error(space.http.get(space.view("t")), 404, "NoSuchViewException", message)
    check_error(space.commit(space.view("t")), 404, "NoSuchViewException", message)
    check_error(space.http.delete(space.view("t")), 404, "NoSuchViewException", message)


def test_a_percent_sign_in_a_name_is_a_percent_sign(space: Space) -> None:
    space.made_view("v%201")
    assert space.http.get(space.view("v%201")).status_code == 200
    check_error(space.http.get(space.view("v 1")), 404, "NoSuchViewException")


def test_a_name_is_taken_once(space: Space) -> None:
    space.made_table("t")
    space.made_view("v")
    message = f"View already exists: {space.name}.v"
    check_error(space.create_view("v"), 409, "AlreadyExistsException", message)
    message = f"Table with same name already exists: {space.name}.t"
    check_error(space.create_view("t"), 409, "AlreadyExistsException", message)


def test_a_view_needs_its_namespace(iceberg: httpx.Client) -> None:
    answer = Space(iceberg, "nowhere").create_view()
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": None}, "name"),
        ({"schema": None}, "schema"),
        ({"view-version": None}, "view-version"),
        ({"view-version": "SELECT 1"}, "view-version"),
        ({"properties": "none"}, "properties"),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(
    space: Space, fields: dict[str, Any], field: str
) -> None:
    check_error(space.create_view(**{"name": "v", **fields}), 400, "BadRequestException", f"{field}: ")
    assert space.names("views") == []


def test_a_view_has_one_query_for_each_dialect(space: Space) -> None:
    twice = [{"type": "sql", "sql": "SELECT 1", "dialect": dialect} for dialect in ("trino", "TRINO")]
    answer = space.create_view(**{"view-version": view_version(representations=twice)})
    message = "Invalid view version: Cannot add multiple queries for dialect trino"
    check_error(answer, 400, "IllegalArgumentException", message)


def test_a_replaced_view_has_another_query(space: Space) -> None:
    made = space.made_view()
    requirements = [assert_uuid(made["metadata"]["view-uuid"])]
    answer = space.commit(space.view(), *new_version("SELECT 2 AS id"), requirements=requirements)
    told = check_form(answer, "LoadViewResult")
    assert query_of(told["metadata"]) == "SELECT 2 AS id"
    assert told["metadata"]["view-uuid"] == made["metadata"]["view-uuid"]
    assert told["metadata-location"] != made["metadata-location"]
    assert space.http.get(space.view()).json() == told


def test_requirements_and_an_identifier_may_be_left_out(space: Space) -> None:
    space.made_view()
    answer = space.http.post(space.view(), json={"updates": [set_properties(a="1")]})
    assert check_form(answer, "LoadViewResult")["metadata"]["properties"] == {"a": "1"}


def test_a_replacement_that_changes_nothing_makes_no_new_state(space: Space) -> None:
    made = space.made_view()
    assert space.commit(space.view()).json() == made
    current = made["metadata"]["versions"][0]
    same = new_version("SELECT 1 AS id", **{"schema-id": current["schema-id"]})
    assert space.commit(space.view(), *same).json() == made


def test_a_view_that_is_another_one_is_not_replaced(space: Space) -> None:
    made = space.made_view()
    requirements = [assert_uuid("00000000-0000-0000-0000-000000000000")]
    answer = space.commit(space.view(), *new_version("SELECT 2"), requirements=requirements)
    check_error(answer, 409, "CommitFailedException", "Requirement failed: view UUID does not match")
    assert space.http.get(space.view()).json() == made


def test_a_view_that_is_missing_is_not_replaced(space: Space) -> None:
    message = f"View does not exist: {space.name}.v"
    check_error(space.commit(space.view()), 404, "NoSuchViewException", message)


def test_a_view_in_a_missing_namespace_is_missing_too(iceberg: httpx.Client) -> None:
    answer = iceberg.post("namespaces/nowhere/views/v", json={"updates": []})
    check_error(answer, 404, "NoSuchViewException", "View does not exist: nowhere.v")


@pytest.mark.parametrize(
    "fields",
    [
        {"updates": [{"action": "make-coffee"}]},
        {"updates": [{"action": "add-snapshot", "snapshot": {}}]},
        {"updates": [set_properties(a="1"), {"action": "set-current-view-version", "view-version-id": 9}]},
        {"updates": new_version("SELECT 2", dialect="trino")},
        {"updates": [], "requirements": [{"type": "assert-weather"}]},
        {"updates": [], "requirements": [{"type": "assert-table-uuid", "uuid": "x"}]},
    ],
)
def test_a_replacement_that_is_not_understood_has_no_effect(space: Space, fields: dict[str, Any]) -> None:
    made = space.made_view()
    check_form(space.http.post(space.view(), json=fields), "IcebergErrorResponse", 400)
    assert space.http.get(space.view()).json() == made


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "updates"),
        ({"updates": "all"}, "updates"),
        ({"updates": [], "requirements": {}}, "requirements"),
        ({"updates": [], "identifier": {"namespace": ["x"], "name": "v"}}, "identifier"),
    ],
)
def test_a_replacement_of_another_form_is_refused_by_field(
    space: Space, body: dict[str, Any], field: str
) -> None:
    space.made_view()
    check_error(space.http.post(space.view(), json=body), 400, "BadRequestException", f"{field}: ")


def test_of_replacements_at_once_all_succeed(space: Space) -> None:
    space.made_view(properties={"version.history.num-entries": "20"})
    queries = [f"SELECT {number} AS id" for number in range(2, 10)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda sql: space.commit(space.view(), *new_version(sql)), queries))
    assert {answer.status_code for answer in answers} == {200}
    versions = space.http.get(space.view()).json()["metadata"]["versions"]
    assert sorted(version["version-id"] for version in versions) == list(range(1, 10))


def test_a_dropped_view_is_gone(space: Space) -> None:
    space.made_view()
    answer = space.http.delete(space.view())
    assert (answer.status_code, answer.content) == (204, b"")
    check_error(space.http.delete(space.view()), 404, "NoSuchViewException")


def rename(space: Space, source: str, target: dict[str, Any]) -> httpx.Response:
    return space.http.post("views/rename", json={"source": space.ident(source), "destination": target})


def test_a_renamed_view_is_the_same_view(space: Space) -> None:
    made = space.made_view("a")
    answer = rename(space, "a", space.ident("b"))
    assert (answer.status_code, answer.content) == (204, b"")
    assert space.http.get(space.view("b")).json() == made
    assert space.names("views") == ["b"]


def test_a_view_that_is_missing_is_not_renamed(space: Space) -> None:
    message = f"View does not exist: {space.name}.a"
    check_error(rename(space, "a", space.ident("b")), 404, "NoSuchViewException", message)


def test_a_view_is_not_moved_to_a_namespace_that_is_missing(space: Space) -> None:
    space.made_view("a")
    answer = rename(space, "a", {"namespace": ["nowhere"], "name": "b"})
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


@pytest.mark.parametrize("noun", ["Table", "View"])
def test_a_view_is_not_renamed_to_a_name_that_is_taken(space: Space, noun: str) -> None:
    space.made_view("a")
    space.made_table("b") if noun == "Table" else space.made_view("b")
    message = f"Cannot rename {space.name}.a to {space.name}.b. {noun} already exists"
    check_error(rename(space, "a", space.ident("b")), 409, "AlreadyExistsException", message)
