"""Options of ours in Iceberg's words, and requests to be signed."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers

from tidemill.catalog.model.identifiers import table_ident
from tidemill.catalog.ports import SignedRequest, SignRequest
from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.iceberg.responses import (
    read_sign_request,
    signed_json,
    signing_config,
    storage_config,
    storage_credentials,
    wants_only_signing,
    without_secrets,
)

SESSION = {
    "aws_access_key_id": "id",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "expires_at_millis": "1700000000000",
    "aws_region": "eu-west-1",
}
STORE = {"aws_endpoint": "http://store:9000", "aws_region": "us-east-1", "allow_http": "true"}
REQUEST = {
    "region": "eu-west-1",
    "uri": "https://b.s3.amazonaws.com/t/f",
    "method": "GET",
    "headers": {"A": ["b"]},
}


def test_a_session_is_told_in_icebergs_names() -> None:
    assert storage_config(SESSION) == {
        "s3.access-key-id": "id",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.session-token-expires-at-ms": "1700000000000",
        "client.region": "eu-west-1",
        "s3.region": "eu-west-1",
    }


def test_stores_with_an_endpoint_have_buckets_in_their_paths() -> None:
    assert storage_config(STORE) == {
        "s3.endpoint": "http://store:9000",
        "client.region": "us-east-1",
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
    }


def test_a_local_table_needs_nothing() -> None:
    assert (storage_config({}), storage_credentials("/lake/t", {})) == ({}, [])


def test_credentials_are_told_for_the_location_where_there_are_secrets() -> None:
    assert storage_credentials("s3://b/t", STORE) == []
    assert storage_credentials("s3://b/t", SESSION) == [
        {"prefix": "s3://b/t", "config": storage_config(SESSION)}
    ]


@pytest.mark.parametrize("asked", [["remote-signing"], [" Remote-Signing ,"], ["remote-signing", ""]])
def test_a_client_may_want_nothing_but_signatures(asked: list[str]) -> None:
    headers = Headers(raw=[(b"x-iceberg-access-delegation", one.encode()) for one in asked])
    assert wants_only_signing(headers)


@pytest.mark.parametrize("asked", [None, "", "vended-credentials", "vended-credentials,remote-signing"])
def test_a_client_that_takes_credentials_gets_them(asked: str | None) -> None:
    headers = Headers({} if asked is None else {"X-Iceberg-Access-Delegation": asked})
    assert not wants_only_signing(headers)


def test_without_secrets_the_store_is_still_known() -> None:
    assert without_secrets({**STORE, **SESSION}) == {**STORE, "aws_region": "eu-west-1"}


def test_old_and_new_clients_are_sent_to_the_same_signer() -> None:
    config = signing_config(table_ident(("a", "b c", "t/1")))
    endpoint = "v1/namespaces/a%1Fb%20c/tables/t%2F1/sign"
    assert config == {
        "s3.remote-signing-enabled": "true",
        "s3.signer": "S3V4RestSigner",
        "s3.signer.endpoint": endpoint,
        "signer.endpoint": endpoint,
    }


def test_a_request_to_sign_is_read() -> None:
    assert read_sign_request(Fields({**REQUEST, "provider": "s3", "body": "x"})) == SignRequest(
        "eu-west-1", "GET", "https://b.s3.amazonaws.com/t/f", {"A": ("b",)}, "x"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"headers": None}, "headers: is missing"),
        ({"headers": {"A": "b"}}, "headers.A: must be a list of strings"),
        ({"method": "TRACE"}, "method: 'TRACE' is not one of"),
        ({"uri": ""}, "uri: is missing"),
        ({"region": None}, "region: is missing"),
        ({"body": 3}, "body: must be a string"),
    ],
)
def test_a_request_that_is_none_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_sign_request(Fields({**REQUEST, **change}))
    assert str(caught.value).startswith(problem)


def test_other_stores_than_s3_are_not_supported() -> None:
    with pytest.raises(Unsupported, match="'gcs'"):
        read_sign_request(Fields({**REQUEST, "provider": "gcs"}))


def test_what_is_signed_is_told_with_lists_of_values() -> None:
    assert signed_json(SignedRequest("u", {"a": ("b",)})) == {"uri": "u", "headers": {"a": ["b"]}}
