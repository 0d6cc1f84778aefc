"""Every route of every protocol with credentials that are missing, forged, expired or somebody else's."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.protocol.permissions.test_permissions import OPEN
from tests.security.counting import count_attack
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.service import ICEBERG_SERVICE
from tidemill.protocols.lance.service import LANCE_SERVICE
from tidemill.protocols.management.service import MANAGEMENT_SERVICE
from tidemill.server.access.authentication import TOKEN_KEY
from tidemill.server.access.cipher import InstallationCipher
from tidemill.server.access.tokens import TokenSigner
from tidemill.server.settings import load_settings

SECRETS: Final = {"ada": "the-secret-of-ada-is-long", "bob": "the-secret-of-bob-is-long"}
ROUTES: Final = [
    route
    for service in (MANAGEMENT_SERVICE, ICEBERG_SERVICE, LANCE_SERVICE)
    for route in service.routes
    if f"{route.method} {route.pattern}" not in OPEN
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("forged"),
        "--no-worker",
        TIDEMILL_CLIENTS=json.dumps({name: {"secret": secret} for name, secret in SECRETS.items()}),
        # Guessing is slowed down elsewhere; here every guess has to be wrong.
        TIDEMILL_FAILED_LOGINS_PER_ADDRESS="1000000",
        TIDEMILL_FAILED_LOGINS_PER_CLIENT="1000000",
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        yield client


def digest(client: str) -> bytes:
    return sha256(SECRETS[client].encode()).digest()


def encoded(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def key(text: str) -> list[tuple[str, str]]:
    return [("x-api-key", text)]


@pytest.fixture(scope="module")
def forged(server: RunningServer) -> dict[str, list[tuple[str, str]]]:
    signing_key = InstallationCipher(load_settings(root=server.root)).derive(TOKEN_KEY)
    hour = timedelta(hours=1)
    good = TokenSigner(signing_key, hour).sign("ada", digest("ada")).value
    header, claims, signature = good.split(".")
    later, past = {"exp": 4_102_444_800, "iat": 1}, datetime(2020, 1, 1, tzinfo=UTC)
    others = encoded({"sub": "bob", "stamp": "x", **later})
    unsigned = encoded({"alg": "none", "typ": "JWT"})
    return {
        "no credential": [],
        "an empty key": key(""),
        "a key without a secret": key("ada"),
        "a key with an empty secret": key("ada:"),
        "an unknown client": key("eve:the-secret-of-ada-is-long"),
        "a wrong secret": key("ada:the-secret-of-ada-is-longer"),
        "the beginning of a secret": key("ada:the-secret-of-ada"),
        "somebody else's secret": key(f"ada:{SECRETS['bob']}"),
        "the digest of a secret": key(f"ada:{digest('ada').hex()}"),
        "a secret in other letters": key(f"ada:{SECRETS['ada'].upper()}"),
        "a name of the server itself": key("local:"),
        "a key as a bearer token": bearer(f"ada:{SECRETS['ada']}"),
        "HTTP Basic": [("authorization", "Basic " + encoded(f"ada:{SECRETS['ada']}".encode()))],
        "None": bearer("None"),
        "no token": [("authorization", "Bearer")],
        "no token but dots": bearer(".."),
        "a token without a signature": bearer(f"{header}.{claims}."),
        "an unsigned token": bearer(f"{unsigned}.{claims}."),
        "an unsigned token with a signature": bearer(f"{unsigned}.{claims}.{signature}"),
        "other claims": bearer(f"{header}.{others}.{signature}"),
        "another algorithm": bearer(f"{encoded({'alg': 'HS512', 'typ': 'JWT'})}.{claims}.{signature}"),
        "a key in the header": bearer(f"{encoded({'alg': 'HS256', 'jwk': {'k': 'x'}})}.{claims}.{signature}"),
        "part of a signature": bearer(good[:-2]),
        "more than a signature": bearer(f"{good}AA"),
        "a token of another key": bearer(TokenSigner(b"x" * 32, hour).sign("ada", digest("ada")).value),
        "a token of an empty key": bearer(TokenSigner(b"", hour).sign("ada", digest("ada")).value),
        "an expired token": bearer(TokenSigner(signing_key, hour, lambda: past).sign("ada", b"").value),
        "a token of an old secret": bearer(TokenSigner(signing_key, hour).sign("ada", b"old").value),
        "a token of nobody": bearer(TokenSigner(signing_key, hour).sign("eve", digest("ada")).value),
        "two bad tokens": bearer("a.b.c") + bearer("d.e.f"),
        "a token of any size": bearer("a" * 20_000),
        "what is not ASCII": [("x-api-key", "ada:\xe9\xff")],
    }


def path_of(route: Route) -> str:
    filled = route.pattern
    while "{" in filled:
        before, _, rest = filled.partition("{")
        filled = f"{before}x{rest.partition('}')[2]}"
    return filled


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_no_route_accepts_a_forged_credential(
    http: httpx.Client, forged: dict[str, list[tuple[str, str]]], route: Route
) -> None:
    wrong = {}
    for kind, headers in forged.items():
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        answer = http.request(route.method, path_of(route), headers=raw)
        count_attack(
            "forged or missing credentials",
            status=answer.status_code,
            got_through=answer.status_code != httpx.codes.UNAUTHORIZED,
        )
        if answer.status_code != httpx.codes.UNAUTHORIZED:
            wrong[kind] = answer.status_code
    assert wrong == {}


def test_the_credentials_that_were_forged_are_accepted_when_they_are_right(http: httpx.Client) -> None:
    answer = http.get("/v1/table", headers=[("x-api-key", f"ada:{SECRETS['ada']}")])
    assert answer.status_code == httpx.codes.OK
