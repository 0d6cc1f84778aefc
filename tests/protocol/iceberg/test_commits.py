"""Commits of tables over the wire."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.protocol.iceberg.wire import SCHEMA, Space, check_error, check_form, properties_of, set_properties

ASSERT_CREATE = {"type": "assert-create"}


def assert_uuid(uuid: str) -> dict[str, Any]:
    return {"type": "assert-table-uuid", "uuid": uuid}


def transaction(space: Space, *changes: Mapping[str, Any]) -> httpx.Response:
    return space.http.post("transactions/commit", json={"table-changes": changes})


def change(space: Space, name: str, *updates: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"identifier": space.ident(name), "requirements": [], "updates": list(updates), **fields}


def creation(location: str) -> list[dict[str, Any]]:
    """What a client sends to make the table it has staged."""
    return [
        {"action": "assign-uuid", "uuid": "1b6b6f46-6f0c-4f9e-9d5f-0f0f0f0f0f0f"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
    ]


def test_a_commit_makes_a_new_state(space: Space) -> None:
    made = space.made_table()
    requirements = [assert_uuid(made["metadata"]["table-uuid"])]
    answer = space.commit(space.table(), set_properties(a="1"), requirements=requirements)
    told = check_form(answer, "CommitTableResponse")
    assert told.keys() == {"metadata-location", "metadata"}
    assert properties_of(answer) == {"a": "1"}
    assert told["metadata-location"] != made["metadata-location"]


def test_the_tag_of_a_commit_is_that_of_the_state_it_made(space: Space) -> None:
    space.made_table()
    committed, loaded = (
        space.commit(space.table(), set_properties(a="1")),
        space.http.get(space.table()),
    )
    assert committed.headers["etag"] == loaded.headers["etag"]
    assert loaded.json() == committed.json() | {"config": {}}


def test_a_commit_that_changes_nothing_makes_no_new_state(space: Space) -> None:
    made = space.made_table()
    assert space.commit(space.table()).json()["metadata-location"] == made["metadata-location"]


def test_a_requirement_that_does_not_hold_fails_the_commit(space: Space) -> None:
    space.made_table()
    requirements = [assert_uuid("00000000-0000-0000-0000-000000000000")]
    answer = space.commit(space.table(), set_properties(a="1"), requirements=requirements)
    check_error(answer, 409, "CommitFailedException", "Requirement failed: UUID does not match")
    assert properties_of(space.http.get(space.table())) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"updates": [{"action": "make-coffee"}]},
        {"updates": [{}]},
        {"updates": [set_properties(a="1"), {"action": "set-current-schema", "schema-id": 9}]},
        {"updates": [], "requirements": [{"type": "assert-weather"}]},
        {"updates": [], "requirements": [{"type": "assert-view-uuid", "uuid": "x"}]},
    ],
)
def test_a_commit_that_is_not_understood_has_no_effect(space: Space, fields: dict[str, Any]) -> None:
    made = space.made_table()
    answer = space.http.post(space.table(), json=fields)
    assert answer.status_code == 400, answer.text
    check_form(answer, "IcebergErrorResponse", 400)
    assert space.http.get(space.table()).json() == made


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "updates"),
        ({"updates": None}, "updates"),
        ({"updates": {}}, "updates"),
        ({"updates": [1]}, "updates"),
        ({"updates": [], "requirements": "none"}, "requirements"),
        ({"updates": [], "identifier": []}, "identifier"),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_name(
    space: Space, fields: dict[str, Any], field: str
) -> None:
    space.made_table()
    check_error(space.http.post(space.table(), json=fields), 400, "BadRequestException", f"{field}: ")


def test_a_body_may_name_the_table_of_the_path_and_no_other(space: Space) -> None:
    space.made_table()
    update = set_properties(a="1")
    assert space.commit(space.table(), update, identifier=space.ident("t")).status_code == 200
    answer = space.commit(space.table(), update, identifier=space.ident("u"))
    check_error(answer, 400, "BadRequestException", "identifier: ")


def test_a_table_that_is_missing_is_not_committed_to(space: Space) -> None:
    message = f"Table does not exist: {space.name}.t"
    check_error(space.commit(space.table()), 404, "NoSuchTableException", message)


def test_a_staged_table_is_made_by_its_commit(space: Space) -> None:
    location = space.made_table(**{"stage-create": True})["metadata"]["location"]
    answer = space.commit(space.table(), *creation(location), requirements=[ASSERT_CREATE])
    told = check_form(answer, "CommitTableResponse")
    assert told["metadata"]["location"] == location
    assert space.http.get(space.table()).json()["metadata"] == told["metadata"]


def test_a_staged_table_is_made_once(space: Space) -> None:
    location = space.made_table(**{"stage-create": True})["metadata"]["location"]
    space.made_table()
    answer = space.commit(space.table(), *creation(location), requirements=[ASSERT_CREATE])
    check_error(answer, 409, "CommitFailedException", "Requirement failed: table already exists")


def test_tables_are_committed_to_together(space: Space) -> None:
    space.made_table("a")
    space.made_table("b")
    changes = [change(space, name, set_properties(x="1")) for name in "ab"]
    answer = transaction(space, *changes)
    assert (answer.status_code, answer.content) == (204, b"")
    for name in "ab":
        assert properties_of(space.http.get(space.table(name))) == {"x": "1"}


def test_tables_are_committed_to_together_or_not_at_all(space: Space) -> None:
    made = space.made_table("a")
    space.made_table("b")
    wrong = assert_uuid(made["metadata"]["table-uuid"])
    answer = transaction(
        space,
        change(space, "a", set_properties(x="1")),
        change(space, "b", set_properties(x="1"), requirements=[wrong]),
    )
    check_error(answer, 409, "CommitFailedException", "Requirement failed: UUID does not match")
    assert space.http.get(space.table("a")).json() == made


def test_a_transaction_with_a_missing_table_is_refused(space: Space) -> None:
    made = space.made_table("a")
    answer = transaction(space, change(space, "a", set_properties(x="1")), change(space, "b"))
    check_error(answer, 404, "NoSuchTableException", f"Table does not exist: {space.name}.b")
    assert space.http.get(space.table("a")).json() == made


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "table-changes"),
        ({"table-changes": {}}, "table-changes"),
        ({"table-changes": [{"requirements": [], "updates": []}]}, "table-changes[0].identifier"),
        ({"table-changes": [{"identifier": {"name": "t"}}]}, "table-changes[0].identifier.namespace"),
    ],
)
def test_every_change_of_a_transaction_names_its_table(
    iceberg: httpx.Client, body: dict[str, Any], field: str
) -> None:
    answer = iceberg.post("transactions/commit", json=body)
    check_error(answer, 400, "BadRequestException", f"{field}: ")


def test_commits_that_do_not_contradict_each_other_all_succeed(space: Space) -> None:
    space.made_table()
    with ThreadPoolExecutor(8) as threads:
        updates = [set_properties(**{f"k{number}": "1"}) for number in range(16)]
        answers = list(threads.map(lambda update: space.commit(space.table(), update), updates))
    assert {answer.status_code for answer in answers} == {200}
    properties = properties_of(space.http.get(space.table()))
    assert properties == {f"k{number}": "1" for number in range(16)}


@pytest.mark.parametrize("kind", ["table", "view"])
def test_an_update_that_is_none_is_told_before_anything_that_could_be_tried_again(
    space: Space, kind: str
) -> None:
    """With 409, Java would send the same again, four times."""
    path = space.table() if kind == "table" else space.view()
    _ = space.made_table() if kind == "table" else space.made_view()
    requirements = [{"type": f"assert-{kind}-uuid", "uuid": "another"}]
    answer = space.commit(path, {"action": "set-location"}, requirements=requirements)
    check_error(answer, 400, "IllegalArgumentException", "Cannot parse missing string")
