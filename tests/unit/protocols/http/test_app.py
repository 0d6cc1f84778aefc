"""The way of a request: ids, bodies, callers, errors."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers
from structlog.testing import capture_logs

from tests.unit.protocols.stand import Stand
from tidemill.catalog.model.callers import Caller
from tidemill.errors import PermissionDenied, Unavailable
from tidemill.protocols.http.call import Limits


def test_a_request_id_is_given_back() -> None:
    answer = Stand().get("/v1/namespace/$/list", headers={"x-request-id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("path", ["/v1/namespace/$/list", "/nowhere", "/api/v1/nowhere"])
def test_every_answer_has_a_request_id(path: str) -> None:
    first, second = Stand().get(path), Stand().get(path)
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_a_request_id_that_could_forge_log_lines_is_replaced() -> None:
    answer = Stand().get("/v1/namespace/$/list", headers={"x-request-id": "a b{}"})
    assert answer.headers["x-request-id"] != "a b{}"


def test_a_fault_of_ours_is_answered_without_its_details_and_logged_with_them() -> None:
    stand = Stand()
    stand.namespaces.fault = ZeroDivisionError("a secret")
    with capture_logs() as logs:
        answer = stand.get("/v1/namespace/$/list", headers={"x-request-id": "abc-1"})
    assert answer.status_code == 500
    assert answer.json()["code"] == 18
    assert "abc-1" in answer.json()["error"]
    assert "a secret" not in answer.text
    assert any(entry.get("exc_info") and entry["request_id"] == "abc-1" for entry in logs)


def test_a_request_leaves_one_line_without_credentials() -> None:
    with capture_logs() as logs:
        Stand().post(
            "/v1/namespace/a/exists",
            headers={"x-api-key": "top-secret", "x-request-id": "abc-1"},
            json={"id": ["a"]},
        )
    (entry,) = logs
    assert entry.pop("duration_ms") >= 0
    assert entry == {
        "event": "request",
        "log_level": "info",
        "method": "POST",
        "route": "/v1/namespace/{id}/exists",
        "status": 404,
        "request_id": "abc-1",
        "caller": "local",
    }


def test_a_body_over_its_limit_is_refused_when_announced_and_when_it_grows() -> None:
    stand = Stand(Limits(json_bytes=100))

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 10

    announced = stand.post("/v1/namespace/a/create", content=b" " * 101)
    growing = stand.post("/v1/namespace/a/create", content=chunks())
    assert announced.status_code == growing.status_code == 413
    assert announced.json()["code"] == growing.json()["code"] == 13
    assert stand.post("/v1/namespace/a/create", content=b" " * 100).status_code == 200


def test_an_encoded_body_is_refused() -> None:
    answer = Stand().post("/v1/namespace/a/create", content=b"{}", headers={"content-encoding": "gzip"})
    assert answer.status_code == 400
    assert "content-encoding" in answer.json()["error"]


def test_a_wrong_method_is_told_the_right_one() -> None:
    answer = Stand().get("/v1/namespace/a/create")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["code"] == 13


def test_unavailable_says_when_to_come_back() -> None:
    stand = Stand()
    stand.namespaces.fault = Unavailable("the database is away")
    answer = stand.get("/v1/namespace/$/list")
    assert (answer.status_code, answer.json()["code"]) == (503, 17)
    assert answer.headers["retry-after"] == "1"


def test_the_caller_is_found_in_one_place() -> None:
    async def refuse(headers: Headers, _: str) -> Caller:
        raise PermissionDenied(headers["x-api-key"], "read", "anything")

    answer = Stand(callers=refuse).get("/v1/namespace/$/list", headers={"x-api-key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (403, 15)


def test_each_protocol_answers_unknown_paths_in_its_own_words() -> None:
    lance, management = Stand().get("/v1/nowhere"), Stand().get("/api/v1/nowhere")
    assert lance.status_code == management.status_code == 404
    assert isinstance(lance.json()["code"], int)
    assert management.json()["error"]["code"] == "route_not_found"
