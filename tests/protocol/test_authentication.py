"""A server with clients: who may come in, and what they may do there."""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import lance_namespace
import lancedb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

import tidemill
from tests.conftest import RunningServer, start_server
from tidemill.sdk.errors import Forbidden, Unauthenticated
from tidemill.server.access.authentication import TOKEN_KEY
from tidemill.server.access.cipher import InstallationCipher
from tidemill.server.access.tokens import TokenSigner
from tidemill.server.settings import load_settings

ATTACK_CLASS = "credentials of clients"
OWNER, READER = "owner:all-of-it-and-more", "reader:only-looking-here"
CLIENTS: Final[dict[str, Any]] = {
    "owner": {"secret": "all-of-it-and-more"},
    "reader": {"secret": "only-looking-here", "grants": {"": ["read"], "desk": ["manage"]}},
}
TOKENS = "/iceberg/v1/oauth/tokens"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
LIST = "/v1/namespace/$/list"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("guarded"),
        "--no-worker",
        "--host",
        "0.0.0.0",
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
        TIDEMILL_TOKEN_LIFETIME_SECONDS="900",
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def url(guarded: RunningServer) -> str:
    return guarded.url.replace("0.0.0.0", "127.0.0.1")


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"n{uuid4().hex[:12]}"


def token_of(http: httpx.Client, credential: str = OWNER) -> str:
    client_id, _, secret = credential.partition(":")
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
    answer = http.post(TOKENS, data=form)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def expired_token(root: Path, clients: dict[str, Any] = CLIENTS) -> str:
    """Of the owner, signed a day ago by a process that shares the server's key."""
    settings = load_settings(root=root, clients=clients)
    signer = TokenSigner(
        InstallationCipher(settings).derive(TOKEN_KEY),
        timedelta(hours=1),
        lambda: datetime.now(UTC) - timedelta(days=1),
    )
    return signer.sign("owner", settings.clients["owner"].digest).value


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", [LIST, "/api/v1/jobs", "/iceberg/v1/config"])
def test_every_protocol_asks_for_a_credential(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "x-api-key" in answer.text


def test_health_is_for_everybody(http: httpx.Client) -> None:
    assert http.get("/api/v1/health").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "owner:wrong"},
        {"x-api-key": "stranger:all-of-it-and-more"},
        {"authorization": "Bearer None"},
    ],
)
def test_a_wrong_credential_is_refused(http: httpx.Client, headers: dict[str, str]) -> None:
    assert http.get(LIST, headers=headers).status_code == 401


def test_a_body_is_not_looked_at_before_the_caller_is_known(http: httpx.Client, name: str) -> None:
    assert http.post(f"/v1/namespace/{name}/create", content=b"{" * 500_000).status_code == 401
    assert http.get("/api/v1/health").status_code == 200


def test_a_token_opens_every_protocol(http: httpx.Client, name: str) -> None:
    headers = bearer(token_of(http))
    assert http.post(f"/v1/namespace/{name}/create", json={}, headers=headers).status_code == 200
    assert name in http.get(LIST, headers=headers).json()["namespaces"]
    assert http.get("/api/v1/jobs", headers=headers).status_code == 200


def test_a_grant_too_small_is_refused_with_what_is_missing(http: httpx.Client, name: str) -> None:
    headers = {"x-api-key": READER}
    assert http.get(LIST, headers=headers).status_code == 200
    refused = http.post(f"/v1/namespace/{name}/create", json={}, headers=headers)
    assert refused.status_code == 403
    assert refused.json()["error"] == f"reader lacks the permission 'manage' on {name}"


def test_a_grant_on_a_namespace_is_good_for_what_is_below_it(http: httpx.Client) -> None:
    headers = {"x-api-key": READER}
    for path in ("desk", "desk$drawer"):
        assert http.post(f"/v1/namespace/{path}/create", json={}, headers=headers).status_code == 200


def test_the_answer_to_a_request_for_a_token_is_that_of_the_specification(http: httpx.Client) -> None:
    form = {"grant_type": "client_credentials", "scope": "catalog PRINCIPAL_ROLE:ALL"}
    basic = "Basic " + b64encode(OWNER.encode()).decode()
    answer = http.post(TOKENS, data=form, headers={"authorization": basic})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body.pop("access_token")
    assert body == {
        "token_type": "bearer",
        "expires_in": 900,
        "issued_token_type": ACCESS_TOKEN,
        "scope": "catalog PRINCIPAL_ROLE:ALL",
    }


def test_a_form_is_read_whatever_it_is_called(http: httpx.Client) -> None:
    body = b"grant_type=client_credentials&client_id=owner&client_secret=all%2Dof%2Dit%2Dand%2Dmore&scope="
    answer = http.post(TOKENS, content=body, headers={"content-type": "text/plain"})
    assert answer.status_code == 200
    assert "scope" not in answer.json()


def test_a_token_is_exchanged_for_a_fresh_one(http: httpx.Client) -> None:
    old = token_of(http, READER)
    form = {"grant_type": EXCHANGE, "subject_token": old, "subject_token_type": ACCESS_TOKEN}
    fresh = http.post(TOKENS, data=form, headers=bearer(old)).json()["access_token"]
    refused = http.post("/v1/namespace/other/create", json={}, headers=bearer(fresh))
    assert "reader lacks" in refused.json()["error"]


def test_an_expired_token_is_refused(http: httpx.Client, guarded: RunningServer) -> None:
    answer = http.get(LIST, headers=bearer(expired_token(guarded.root)))
    assert answer.status_code == 401
    assert "has expired" in answer.json()["error"]


def test_an_expired_token_is_renewed_with_the_secret(http: httpx.Client, guarded: RunningServer) -> None:
    old = expired_token(guarded.root)
    form = {"grant_type": EXCHANGE, "subject_token": old, "subject_token_type": ACCESS_TOKEN}
    refused = http.post(TOKENS, data=form)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    basic = "Basic " + b64encode(OWNER.encode()).decode()
    renewed = http.post(TOKENS, data=form, headers={"authorization": basic})
    assert http.get(LIST, headers=bearer(renewed.json()["access_token"])).status_code == 200


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ("", 400, "invalid_request"),
        ("grant_type=password", 400, "unsupported_grant_type"),
        ("grant_type=client_credentials", 401, "invalid_client"),
        ("grant_type=client_credentials&client_id=owner&client_secret=no", 401, "invalid_client"),
        ("grant_type=client_credentials&client_secret=all-of-it-and-more", 401, "invalid_client"),
        ("grant_type=client_credentials&scope=%22", 400, "invalid_scope"),
        ("grant_type=client_credentials&grant_type=client_credentials", 400, "invalid_request"),
        ("grant_type=client_credentials&client_id=%ff", 400, "invalid_request"),
        (f"grant_type={EXCHANGE}", 400, "invalid_request"),
        (f"grant_type={EXCHANGE}&subject_token=x", 400, "invalid_request"),
        (f"grant_type={EXCHANGE}&subject_token=x&subject_token_type=y", 400, "invalid_request"),
        (f"grant_type={EXCHANGE}&subject_token=x&subject_token_type={ACCESS_TOKEN}", 400, "invalid_grant"),
    ],
)
def test_the_token_route_says_no_in_the_words_of_oauth(
    http: httpx.Client, form: str, status: int, error: str
) -> None:
    answer = http.post(TOKENS, content=form)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert answer.json().keys() == {"error", "error_description"}


def test_basic_that_cannot_be_read_is_refused(http: httpx.Client) -> None:
    form = {"grant_type": "client_credentials"}
    answer = http.post(TOKENS, data=form, headers={"authorization": "Basic not base64"})
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


def test_lancedb_comes_in_with_its_api_key(url: str, name: str) -> None:
    database: Any = lancedb.connect("db://x", api_key=OWNER, host_override=url)
    database.create_table(name, pa.table({"id": [1, 2]}))
    assert database.open_table(name).count_rows() == 2
    visitor: Any = lancedb.connect("db://x", api_key=READER, host_override=url)
    assert visitor.open_table(name).count_rows() == 2
    with pytest.raises(Exception, match="reader lacks the permission 'manage'"):
        visitor.drop_table(name)


def test_the_lance_namespace_client_comes_in_with_a_header(url: str, name: str) -> None:
    space = lance_namespace.connect("rest", {"uri": url, "header.x-api-key": OWNER})
    space.create_namespace(lance_namespace.CreateNamespaceRequest(id=[name]))
    stranger = lance_namespace.connect("rest", {"uri": url})
    with pytest.raises(Exception, match="credential is missing"):
        stranger.describe_namespace(lance_namespace.DescribeNamespaceRequest(id=[name]))


def test_the_sdk_sends_its_credential(url: str, name: str) -> None:
    with tidemill.connect(url, credential=OWNER) as lake:
        lake.create_namespace(name)
        table = lake.create_table(f"{name}.docs", pa.table({"id": [1, 2, 3]}))
        assert table.count_rows() == 3
        assert table.to_lance().count_rows() == 3


def test_the_sdk_tells_who_is_not_known_from_who_may_not(url: str, name: str) -> None:
    with tidemill.connect(url) as stranger, pytest.raises(Unauthenticated, match="credential is missing"):
        stranger.list_namespaces()
    with tidemill.connect(url, credential=READER) as visitor, pytest.raises(Forbidden, match="'manage'"):
        visitor.create_namespace(name)


def test_a_credential_without_a_secret_is_refused_before_it_is_sent(url: str) -> None:
    with pytest.raises(ValueError, match="<client id>:<secret>"):
        tidemill.connect(url, credential="owner")


def test_secrets_and_tokens_are_not_in_the_log(http: httpx.Client, guarded: RunningServer) -> None:
    token = token_of(http)
    http.get(LIST, headers=bearer(token))
    http.get(LIST, headers={"x-api-key": OWNER})
    log = (guarded.root / "server.log").read_text()
    assert '"caller":"owner"' in log
    assert "all-of-it-and-more" not in log
    assert token not in log


def test_pyiceberg_gets_a_token_by_itself(url: str) -> None:
    with warnings.catch_warnings():
        # The route of tokens is deprecated, and what pyiceberg uses when it has only a credential.
        warnings.simplefilter("ignore", DeprecationWarning)
        catalog = RestCatalog("lake", uri=f"{url}/iceberg", credential=READER, scope="catalog")
        assert isinstance(catalog.list_namespaces(), list)
