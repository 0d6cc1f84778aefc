"""Tables over the wire, apart from commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from tests.protocol.iceberg.wire import SCHEMA, Space, check_error, check_form, properties_of, set_properties


def file_of(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))


def test_a_table_is_made_and_loaded(space: Space) -> None:
    made = space.create_table(properties={"a": "1"})
    told = check_form(made, "LoadTableResult")
    assert properties_of(made) == {"a": "1"}
    assert file_of(told["metadata-location"]).exists()
    loaded = space.http.get(space.table())
    assert check_form(loaded, "LoadTableResult") == told
    assert loaded.headers["etag"] == made.headers["etag"]


def test_the_least_that_makes_a_table_is_a_name_and_a_schema(space: Space) -> None:
    answer = space.create_table(**{"partition-spec": None, "write-order": None, "extra": 1})
    assert check_form(answer, "LoadTableResult")["metadata"]["current-schema-id"] == 0
    assert properties_of(answer) == {}


def test_a_partition_may_have_more_keys_than_the_specification(space: Space) -> None:
    field = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id", "extra": True}
    answer = space.create_table(**{"partition-spec": {"spec-id": 0, "type": "struct", "fields": [field]}})
    assert check_form(answer, "LoadTableResult")["metadata"]["partition-specs"][0]["fields"]


def test_a_table_is_in_the_listing_and_a_view_is_not(space: Space) -> None:
    space.made_table("b")
    space.made_table("a")
    space.made_view("v")
    told = check_form(space.http.get(space.at("tables")), "ListTablesResponse")
    assert told == {"next-page-token": None, "identifiers": [space.ident("a"), space.ident("b")]}


def test_tables_are_listed_page_by_page(space: Space) -> None:
    for name in "abc":
        space.made_table(name)
    first = space.http.get(space.at("tables"), params={"pageSize": 2, "pageToken": ""}).json()
    assert [entry["name"] for entry in first["identifiers"]] == ["a", "b"]
    query = {"pageSize": 2, "pageToken": first["next-page-token"]}
    assert space.http.get(space.at("tables"), params=query).json() == {
        "next-page-token": None,
        "identifiers": [space.ident("c")],
    }


def test_tables_of_a_missing_namespace_are_not_an_empty_list(iceberg: httpx.Client) -> None:
    answer = iceberg.get("namespaces/nowhere/tables")
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


def test_a_table_is_there_or_not(space: Space) -> None:
    space.made_table()
    there, missing = space.http.head(space.table()), space.http.head(space.table("other"))
    assert (there.status_code, there.content) == (204, b"")
    assert (missing.status_code, missing.content) == (404, b"")


def test_a_view_is_no_table(space: Space) -> None:
    space.made_view("v")
    message = f"Table does not exist: {space.name}.v"
    check_error(space.http.get(space.table("v")), 404, "NoSuchTableException", message)
    assert space.http.head(space.table("v")).status_code == 404
    check_error(space.http.delete(space.table("v")), 404, "NoSuchTableException", message)


def test_names_of_tables_may_have_any_characters(space: Space) -> None:
    space.made_table("a/b c+d%20")
    for spelling in ("a%2Fb%20c%2Bd%2520", "a%2Fb+c%2Bd%2520"):
        assert space.http.get(space.at("tables", spelling)).status_code == 200
    assert space.names("tables") == ["a/b c+d%20"]


def test_a_name_is_taken_once(space: Space) -> None:
    space.made_table("t")
    space.made_view("v")
    message = f"Table already exists: {space.name}.t"
    check_error(space.create_table("t"), 409, "AlreadyExistsException", message)
    message = f"View with same name already exists: {space.name}.v"
    check_error(space.create_table("v"), 409, "AlreadyExistsException", message)
    check_error(space.create_table("v", **{"stage-create": True}), 409, "AlreadyExistsException", message)


def test_a_table_needs_its_namespace(iceberg: httpx.Client) -> None:
    answer = Space(iceberg, "nowhere").create_table()
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


def test_a_staged_table_is_described_and_not_there(space: Space) -> None:
    staged = space.create_table(**{"stage-create": True})
    told = check_form(staged, "LoadTableResult")
    assert "metadata-location" not in told
    assert "etag" not in staged.headers
    assert told["metadata"]["table-uuid"]
    assert space.names("tables") == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": ["t"]}, "name"),
        ({"name": ".."}, "name"),
        ({"schema": None}, "schema"),
        ({"schema": "struct"}, "schema"),
        ({"partition-spec": []}, "partition-spec"),
        ({"write-order": "none"}, "write-order"),
        ({"location": 1}, "location"),
        ({"properties": {"a": None}}, "properties.a"),
        ({"properties": [1]}, "properties"),
        ({"stage-create": "yes"}, "stage-create"),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(
    space: Space, fields: dict[str, Any], field: str
) -> None:
    answer = space.http.post(space.at("tables"), json={"name": "t", "schema": SCHEMA, **fields})
    check_error(answer, 400, "BadRequestException", f"{field}: ")
    assert space.names("tables") == []


def test_a_client_that_has_the_state_is_not_sent_it_again(space: Space) -> None:
    space.made_table()
    tag = space.http.get(space.table()).headers["etag"]
    known = space.http.get(space.table(), headers={"If-None-Match": f'"x", {tag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
    space.commit(space.table(), set_properties(a="1"))
    assert space.http.get(space.table(), headers={"If-None-Match": tag}).status_code == 200


def test_any_tag_is_refused(space: Space) -> None:
    space.made_table()
    answer = space.http.get(space.table(), headers={"If-None-Match": "*"})
    check_error(answer, 400, "BadRequestException", "If-None-Match: ")


def test_a_form_with_fewer_snapshots_has_a_tag_of_its_own(space: Space) -> None:
    space.made_table()
    whole = space.http.get(space.table(), params={"snapshots": "all"})
    fewer = space.http.get(space.table(), params={"snapshots": "refs"})
    assert check_form(fewer, "LoadTableResult")["metadata-location"] == whole.json()["metadata-location"]
    assert whole.headers["etag"] != fewer.headers["etag"]
    known = space.http.get(space.table(), headers={"If-None-Match": fewer.headers["etag"]})
    assert known.status_code == 200


def test_snapshots_of_another_kind_are_refused(space: Space) -> None:
    space.made_table()
    answer = space.http.get(space.table(), params={"snapshots": "some"})
    check_error(answer, 400, "BadRequestException", "snapshots: ")


def test_asking_for_credentials_where_none_are_needed_changes_nothing(space: Space) -> None:
    made = space.made_table()
    answer = space.http.get(
        space.table(), headers={"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
    )
    assert answer.json() == made


def test_a_dropped_table_keeps_its_files(space: Space) -> None:
    location = space.made_table()["metadata-location"]
    answer = space.http.delete(space.table(), params={"purgeRequested": "false"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert file_of(location).exists()
    message = f"Table does not exist: {space.name}.t"
    check_error(space.http.delete(space.table()), 404, "NoSuchTableException", message)


def test_a_purged_table_loses_its_files(space: Space) -> None:
    location = space.made_table()["metadata-location"]
    assert space.http.delete(space.table(), params={"purgeRequested": "True"}).status_code == 204
    assert not file_of(location).exists()


def rename(space: Space, source: str, target: dict[str, Any]) -> httpx.Response:
    return space.http.post("tables/rename", json={"source": space.ident(source), "destination": target})


def test_a_renamed_table_is_the_same_table(space: Space) -> None:
    made = space.made_table("a")
    answer = rename(space, "a", space.ident("b"))
    assert (answer.status_code, answer.content) == (204, b"")
    assert space.http.get(space.table("b")).json() == made
    assert space.names("tables") == ["b"]


def test_a_table_that_is_missing_is_not_renamed(space: Space) -> None:
    message = f"Table does not exist: {space.name}.a"
    check_error(rename(space, "a", space.ident("b")), 404, "NoSuchTableException", message)


def test_a_table_is_not_moved_to_a_namespace_that_is_missing(space: Space) -> None:
    space.made_table("a")
    answer = rename(space, "a", {"namespace": ["nowhere"], "name": "b"})
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")


@pytest.mark.parametrize("noun", ["Table", "View"])
def test_a_table_is_not_renamed_to_a_name_that_is_taken(space: Space, noun: str) -> None:
    space.made_table("a")
    space.made_table("b") if noun == "Table" else space.made_view("b")
    message = f"Cannot rename {space.name}.a to {space.name}.b. {noun} already exists"
    check_error(rename(space, "a", space.ident("b")), 409, "AlreadyExistsException", message)


def test_a_rename_names_two_tables(space: Space) -> None:
    answer = space.http.post("tables/rename", json={"source": space.ident("a")})
    check_error(answer, 400, "BadRequestException", "destination: ")


REPORT = {
    "report-type": "commit-report",
    "table-name": "t",
    "snapshot-id": 7,
    "sequence-number": 1,
    "operation": "append",
    "metrics": {"attempts": {"unit": "count", "value": 1}},
}


def test_metrics_of_a_table_are_taken(space: Space) -> None:
    space.made_table()
    answer = space.http.post(f"{space.table()}/metrics", json=REPORT)
    assert (answer.status_code, answer.content) == (204, b"")


def test_metrics_say_what_they_are(space: Space) -> None:
    space.made_table()
    answer = space.http.post(f"{space.table()}/metrics", json=REPORT | {"report-type": None})
    check_error(answer, 400, "BadRequestException", "report-type: ")


def test_metrics_of_a_missing_table_are_refused(space: Space) -> None:
    answer = space.http.post(f"{space.table()}/metrics", json=REPORT)
    check_error(answer, 404, "NoSuchTableException")


def test_a_warehouse_that_is_away_is_not_a_table_that_is_missing(space: Space) -> None:
    told = space.create_table().json()
    warehouse = Path(str(file_of(told["metadata-location"])).rpartition("/iceberg/")[0])
    away = warehouse.rename(warehouse.with_name(f"{warehouse.name}.away"))
    try:
        assert space.http.get(space.table()).status_code == 503
        change = {"requirements": [], "updates": [set_properties(a="1")]}
        assert space.http.post(space.table(), json=change).status_code == 503
        assert space.create_table("other").status_code == 503
        assert not warehouse.exists()
    finally:
        away.rename(warehouse)
    assert space.http.get(space.table()).json() == told
