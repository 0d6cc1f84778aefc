"""Refusals that are the same for every operation of Iceberg's protocol."""

from __future__ import annotations

import httpx
import pytest

from tests.protocol.iceberg.wire import Space, check_error


@pytest.mark.parametrize("path", ["", "nothing", "namespaces/a/b", "tidemill/namespaces/a/tables/t/x"])
def test_a_path_without_an_operation_is_not_found(iceberg: httpx.Client, path: str) -> None:
    assert iceberg.get(path).status_code == 404
    assert iceberg.get(path).json()["error"]["code"] == 404


def test_a_method_that_is_not_served_is_told_with_those_that_are(space: Space) -> None:
    answer = space.http.put(space.view(), json={})
    check_error(answer, 405, "MethodNotAllowedException")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, POST"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"x"', b"\xff", b'{"namespace": ' + b"[" * 100 + b"]" * 100 + b"}"]
)
def test_a_body_that_is_no_object_is_refused(iceberg: httpx.Client, body: bytes) -> None:
    answer = iceberg.post("namespaces", content=body)
    assert answer.status_code == 400
    check_error(answer, 400, "BadRequestException")


def test_a_body_that_is_too_large_is_refused(iceberg: httpx.Client) -> None:
    body = b'{"namespace": ["' + b"x" * 2**20 + b'"]}'
    check_error(iceberg.post("namespaces", content=body), 413, "PayloadTooLargeException")


def test_a_commit_may_be_larger_than_other_requests(space: Space) -> None:
    space.made_view()
    update = {"action": "set-properties", "updates": {"a": "x" * 2**20}}
    assert space.commit(space.view(), update).status_code == 200


@pytest.mark.parametrize("path", ["namespaces/%FF", "namespaces/a%1F", "namespaces/a/tables/%0A"])
def test_a_name_that_is_no_text_is_refused(iceberg: httpx.Client, path: str) -> None:
    check_error(iceberg.get(path), 400, "BadRequestException")


def test_a_client_without_a_token_may_say_so(iceberg: httpx.Client) -> None:
    """What pyiceberg sends when it has none."""
    assert iceberg.get("namespaces", headers={"Authorization": "Bearer None"}).status_code == 200


def test_an_answer_names_its_request(iceberg: httpx.Client) -> None:
    answer = iceberg.get("namespaces/nowhere", headers={"X-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("path", ["tables/t", "tables/t/credentials", "views/v"])
def test_the_views_through_which_something_is_loaded_have_to_be_named_right(space: Space, path: str) -> None:
    space.made_table()
    space.made_view()
    for views in (
        "{0}%1Fv",
        "{0}%1Fv,{0}%1Fw",
        "{0}%2Cx%1Fv",
        "{0}%2Cx%1Fv,{0}%1Fa%2Cb",
        "{0}%1Fv%2C{0}%1Fw",
    ):
        right = space.http.get(f"{space.at(path)}?referenced-by={views.format(space.name)}")
        assert right.status_code == 200, right.text
    check_error(
        space.http.get(f"{space.at(path)}?referenced-by=v"), 400, "BadRequestException", "referenced-by: "
    )
