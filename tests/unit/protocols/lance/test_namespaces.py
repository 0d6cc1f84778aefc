"""Namespaces over the Lance protocol."""

from __future__ import annotations

import pytest

from tests.unit.protocols.stand import Stand


@pytest.fixture
def stand() -> Stand:
    stand = Stand()
    for name in ("a", "b", "c"):
        stand.post(f"/v1/namespace/{name}/create", json={"properties": {"owner": name}})
    return stand


def test_a_created_namespace_is_described(stand: Stand) -> None:
    assert stand.post("/v1/namespace/a/describe").json() == {"properties": {"owner": "a"}}


def test_exists_answers_with_nothing(stand: Stand) -> None:
    answer = stand.post("/v1/namespace/a/exists", content=b"null")
    assert (answer.status_code, answer.content) == (200, b"")


def test_drop_answers_with_an_empty_object(stand: Stand) -> None:
    answer = stand.post("/v1/namespace/a/drop", json={"mode": "skip", "behavior": "CASCADE"})
    assert (answer.status_code, answer.json()) == (200, {})


def test_a_missing_namespace_has_its_code(stand: Stand) -> None:
    answer = stand.post("/v1/namespace/missing/describe", headers={"x-request-id": "abc-1"})
    assert answer.status_code == 404
    assert answer.json() == {"error": "Namespace missing does not exist", "code": 1, "instance": "abc-1"}


def test_pages_end_without_a_token(stand: Stand) -> None:
    first = stand.get("/v1/namespace/$/list?limit=2").json()
    assert first == {"namespaces": ["a", "b"], "page_token": "b"}
    assert stand.get("/v1/namespace/$/list?limit=2&page_token=b").json() == {"namespaces": ["c"]}


@pytest.mark.parametrize(("limit", "names"), [("0", []), ("-1", ["a", "b", "c"]), ("3", ["a", "b", "c"])])
def test_unusual_limits(stand: Stand, limit: str, names: list[str]) -> None:
    assert stand.get(f"/v1/namespace/$/list?limit={limit}").json() == {"namespaces": names}


@pytest.mark.parametrize(
    "path", ["/v1/namespace/list?delimiter=.", "/v1/namespace/%24/list", "/v1//namespace/$/list/"]
)
def test_the_root_is_reached_in_every_spelling(stand: Stand, path: str) -> None:
    assert stand.get(path).json() == {"namespaces": ["a", "b", "c"]}


def test_the_id_of_the_body_has_to_be_that_of_the_path(stand: Stand) -> None:
    assert stand.post("/v1/namespace/a/describe", json={"id": ["a"]}).status_code == 200
    answer = stand.post("/v1/namespace/a/describe", json={"id": ["b"]})
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert answer.json()["error"].startswith("id: ")


def test_the_id_of_the_body_may_be_written_as_in_the_path(stand: Stand) -> None:
    """As DuckDB does."""
    assert stand.post("/v1/namespace/a$b/create", json={"id": ["a$b"]}).status_code == 200
    assert stand.post("/v1/namespace/a.c/create?delimiter=.", json={"id": ["a.c"]}).status_code == 200
    assert ("a", "b") in stand.namespaces.properties
    assert stand.post("/v1/namespace/a$b/describe", json={"id": ["a$c"]}).status_code == 400


def test_the_id_of_the_body_may_hold_what_a_path_encodes(stand: Stand) -> None:
    answer = stand.post("/v1/namespace/x+y%2Fz%24deep/create", json={"id": ["x y/z", "deep"]})
    assert answer.status_code == 200
    assert ("x y/z", "deep") in stand.namespaces.properties


@pytest.mark.parametrize("path", ["a$$b", "$a", "a$..", "a%00"])
def test_ids_with_unusable_parts_are_refused(stand: Stand, path: str) -> None:
    answer = stand.post(f"/v1/namespace/{path}/create")
    assert (answer.status_code, answer.json()["code"]) == (400, 13)


def test_an_unknown_mode_is_refused(stand: Stand) -> None:
    answer = stand.post("/v1/namespace/d/create", json={"mode": "Upsert"})
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
