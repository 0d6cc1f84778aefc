"""How Iceberg's protocol says no."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from starlette.datastructures import Headers

from tidemill.catalog.errors import NamespaceAlreadyExists, NamespaceNotEmpty, NamespaceNotFound
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.errors import ErrorCode, InvalidInput, TidemillError
from tidemill.protocols.http.app import Refusal
from tidemill.protocols.iceberg.errors import ICEBERG_ERRORS, render_error

PATH = NamespacePath(("a", "b"))


def rendered(code: ErrorCode, operation: str = "", error: TidemillError | None = None) -> dict[str, Any]:
    refusal = Refusal(code, "as we say it", "r", Headers(), error, operation)
    response = render_error(refusal)
    body: dict[str, Any] = orjson.loads(response.body)
    assert body.keys() == {"error"}
    assert body["error"]["code"] == response.status_code
    return dict(body["error"])


def test_every_error_has_an_iceberg_answer() -> None:
    assert ICEBERG_ERRORS.keys() == set(ErrorCode)


def test_no_error_looks_like_success() -> None:
    assert all(400 <= error.status < 600 for error in ICEBERG_ERRORS.values())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NamespaceNotFound(PATH), "Namespace does not exist: a.b"),
        (NamespaceAlreadyExists(PATH), "Namespace already exists: a.b"),
        (NamespaceNotEmpty(PATH), "Namespace a.b is not empty."),
        (InvalidInput("name", "is missing"), "name: is missing"),
    ],
)
def test_errors_of_the_catalog_are_told_in_the_words_of_iceberg(error: TidemillError, message: str) -> None:
    assert rendered(error.code, error=error)["message"] == message


@pytest.mark.parametrize(
    "path",
    [
        "/iceberg/v1/namespaces/{namespace}/tables/{table}",
        "/iceberg/v1/{prefix}/namespaces/{namespace}/views/{view}",
        "/iceberg/v1/{prefix}/transactions/commit",
    ],
)
def test_a_fault_in_a_commit_leaves_its_state_unknown(path: str) -> None:
    assert rendered(ErrorCode.INTERNAL, f"POST {path}") == {
        "message": "as we say it",
        "type": "CommitStateUnknownException",
        "code": 500,
    }


@pytest.mark.parametrize(
    "operation",
    [
        "GET /iceberg/v1/namespaces/{namespace}/tables/{table}",
        "POST /iceberg/v1/namespaces/{namespace}/tables",
        "POST /iceberg/v1/views/rename",
        "POST ",
    ],
)
def test_a_fault_elsewhere_is_an_internal_error(operation: str) -> None:
    assert rendered(ErrorCode.INTERNAL, operation)["type"] == "InternalServerError"


def test_a_commit_that_was_refused_for_now_is_to_be_sent_again() -> None:
    operation = "POST /iceberg/v1/namespaces/{namespace}/tables/{table}"
    assert rendered(ErrorCode.UNAVAILABLE, operation)["code"] == 503


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_an_unknown_outcome_is_told_as_such_on_every_route(method: str) -> None:
    operation = f"{method} /iceberg/v1/namespaces/{{namespace}}/tables/{{table}}"
    answer = rendered(ErrorCode.COMMIT_STATE_UNKNOWN, operation)
    assert (answer["type"], answer["code"]) == ("CommitStateUnknownException", 500)
