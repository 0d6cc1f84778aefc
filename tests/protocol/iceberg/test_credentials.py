"""Credentials and signatures on a local disk, where nobody needs them."""

from __future__ import annotations

import httpx
import pytest

from tests.protocol.iceberg.wire import Space, check_error, check_form

SIGN = {"region": "us-east-1", "method": "GET", "uri": "https://s3.amazonaws.com/b/k", "headers": {}}


def sign(space: Space, **fields: object) -> httpx.Response:
    return space.http.post(f"{space.table()}/sign", json={**SIGN, **fields})


def test_there_are_no_credentials(space: Space) -> None:
    space.made_table()
    told = check_form(space.http.get(f"{space.table()}/credentials"), "LoadCredentialsResponse")
    assert told == {"storage-credentials": []}


def test_credentials_of_a_missing_table_are_not_found(space: Space) -> None:
    message = f"Table does not exist: {space.name}.t"
    check_error(space.http.get(f"{space.table()}/credentials"), 404, "NoSuchTableException", message)


def test_nothing_is_signed(space: Space) -> None:
    space.made_table()
    check_error(sign(space), 406, "UnsupportedOperationException")


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_client_that_asks_for_signatures_is_not_told_of_any(space: Space, method: str) -> None:
    space.made_table()
    headers = {"X-Iceberg-Access-Delegation": "remote-signing"}
    loaded = space.http.get(space.table(), headers=headers).json()
    assert loaded["config"] == {}
    check_error(sign(space, method=method), 406, "UnsupportedOperationException")


@pytest.mark.parametrize(
    ("field", "value"), [("method", "TRACE"), ("method", None), ("uri", 1), ("headers", []), ("region", None)]
)
def test_a_request_to_sign_has_a_form(space: Space, field: str, value: object) -> None:
    space.made_table()
    check_error(sign(space, **{field: value}), 400, "BadRequestException", f"{field}: ")


def test_another_store_is_not_signed_for(space: Space) -> None:
    space.made_table()
    check_error(sign(space, provider="gcs"), 406, "UnsupportedOperationException", "provider: ")
