"""The server's refusals as exceptions."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.errors import ErrorCode
from tidemill.sdk import errors
from tidemill.sdk.errors import request_error


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, {"error": "Table a does not exist", "code": 4}, errors.NotFound),
        (409, {"error": "Table a already exists", "code": 5}, errors.AlreadyExists),
        (409, {"error": "Namespace a is not empty", "code": 3}, errors.Conflict),
        (409, {"error": "changed meanwhile", "code": 14}, errors.Conflict),
        (400, {"error": "column: is missing", "code": 13}, errors.InvalidRequest),
        (406, {"error": "not served", "code": 0}, errors.NotSupported),
        (404, {"error": {"code": "job_not_found", "message": "no job"}}, errors.NotFound),
        (409, {"error": {"code": "table_already_exists", "message": "is there"}}, errors.AlreadyExists),
        (409, {"error": {"code": "job_already_active", "message": "busy"}}, errors.Conflict),
        (401, None, errors.Unauthenticated),
        (403, None, errors.Forbidden),
        (413, None, errors.RequestTooLarge),
        (429, None, errors.TooManyRequests),
        (503, None, errors.ServerUnavailable),
        (502, None, errors.ServerFault),
        (418, None, errors.InvalidRequest),
    ],
)
def test_a_refusal_has_a_type(status: int, body: Any, kind: type[Exception]) -> None:
    error = request_error(status, body, "as text")
    assert type(error) is kind
    assert error.status == status


def test_the_message_is_the_servers() -> None:
    assert str(request_error(404, {"error": {"code": "x", "message": "no job 7"}}, "")) == "no job 7"
    assert str(request_error(404, {"error": "no table", "code": 4}, "")) == "no table"
    assert str(request_error(500, None, "<html>")) == "<html>"
    assert str(request_error(500, None, "")) == "The server answered 500"


def test_every_already_exists_of_the_core_is_known() -> None:
    for code in ErrorCode:
        error = request_error(409, {"error": {"code": code.value, "message": ""}}, "")
        assert isinstance(error, errors.AlreadyExists) == code.name.endswith("_ALREADY_EXISTS")
