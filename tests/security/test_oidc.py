"""Tokens of OpenID issuers: who gets in with them, and what forged, foreign and borrowed ones get."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import socketserver
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import lance_namespace
import lancedb
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

import tidemill
from tests.conftest import RunningServer, start_server
from tests.issuer.issuer import Issuer, SigningKey, claims_of, free_port, running_issuer
from tests.issuer.published import PublishedKeys
from tidemill.cli.main import app
from tidemill.sdk.errors import Forbidden, Unauthenticated

LIST: Final = "/v1/namespace/$/list"
CLIENTS: Final = {"owner": {"secret": "all-of-it"}}
WAIT_SECONDS: Final = 60


@dataclass(frozen=True)
class Lake:
    """A server that trusts a real issuer, one of which only the keys exist, one that never answers, and one
    that nobody runs."""

    server: RunningServer
    corp: Issuer
    partner: PublishedKeys
    silent: str
    absent: str
    client: httpx.Client

    @property
    def url(self) -> str:
        return self.server.url

    def get(self, token: str, address: str = "") -> httpx.Response:
        """From an address of its own each time, so that failed logins do not add up."""
        source = address or f"10.{uuid4().int % 250}.{uuid4().int % 250}.{uuid4().int % 250}"
        headers = [
            (b"authorization", f"Bearer {token}".encode("latin-1")),
            (b"x-forwarded-for", source.encode()),
        ]
        return self.client.get(LIST, headers=headers)

    def create(self, name: str, token: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return self.client.post(f"/v1/namespace/{name}/create", json={}, headers=headers)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("oidc")
    absent = f"http://127.0.0.1:{free_port()}"
    users = {"ada": ["engineers"], "ben": ["readers"], "cyd": []}
    partner = PublishedKeys(SigningKey("partner"))
    partner.start()
    with (
        running_issuer(folder, users) as corp,
        # It accepts connections, and that is all.
        socket.create_server(("127.0.0.1", 0)) as mute,
    ):
        silent = f"http://127.0.0.1:{mute.getsockname()[1]}"
        server = start_server(
            folder / "root",
            "--no-worker",
            TIDEMILL_OIDC_ISSUERS=json.dumps(issuers(corp.url, partner.url, silent, absent)),
            TIDEMILL_CLIENTS=json.dumps(CLIENTS),
            TIDEMILL_TRUSTED_PROXIES='["127.0.0.1/32"]',
        )
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            yield Lake(server, corp, partner, silent, absent, client)
        server.stop()
    partner.stop()


def issuers(corp: str, partner: str, silent: str, absent: str) -> list[dict[str, Any]]:
    grants = {"corp:engineers": {"": ["admin"]}, "corp:readers": {"": ["read"]}}
    return [
        {"name": "corp", "issuer": corp, "audience": "lake", "roles_claim": "groups", "grants": grants},
        {
            "name": "partner",
            "issuer": partner,
            "audience": ["lake"],
            "roles_claim": "realm.roles",
            "roles": {"makers": "staff"},
            "grants": {"staff": {"": ["manage"]}},
        },
        {"name": "silent", "issuer": silent, "audience": "lake"},
        {"name": "absent", "issuer": absent, "audience": "lake"},
    ]


@pytest.fixture(scope="module")
def ada(lake: Lake) -> str:
    return lake.corp.token("ada")


@pytest.fixture
def name() -> str:
    return f"n{uuid4().hex[:12]}"


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not reached():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.25)


def encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def token_with(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    first, second = (encoded(json.dumps(part).encode()) for part in (header, claims))
    return f"{first}.{second}.{encoded(signature)}"


def valid_claims(lake: Lake, **changed: Any) -> dict[str, Any]:
    """What the issuer would say of ada; None leaves a claim out."""
    now = int(time.time())
    claims = {"iss": lake.corp.url, "aud": ["lake"], "sub": "ada", "iat": now, "exp": now + 600}
    found = {**claims, "groups": ["engineers"], **changed}
    return {name: value for name, value in found.items() if value is not None}


def test_a_token_of_an_issuer_opens_every_protocol(lake: Lake, ada: str, name: str) -> None:
    assert lake.create(name, ada).status_code == 200
    for path in (LIST, "/api/v1/jobs", "/iceberg/v1/config"):
        headers = {"authorization": f"Bearer {ada}"}
        assert lake.client.get(path, headers=headers).status_code == 200


def test_groups_of_the_issuer_are_roles_and_nobody_has_others(lake: Lake, name: str) -> None:
    ben, cyd = lake.corp.token("ben"), lake.corp.token("cyd")
    refused = lake.create(name, ben)
    assert refused.status_code == 403
    assert "oidc:corp:ben lacks the permission" in refused.text
    assert lake.get(ben).status_code == 200
    assert "oidc:corp:cyd lacks the permission" in lake.create(name, cyd).text


def partner_token(lake: Lake, *roles: str, **changed: Any) -> str:
    return lake.partner.key.sign(valid_claims(lake, iss=lake.partner.url, realm={"roles": roles}, **changed))


def test_the_same_name_and_group_at_another_issuer_are_somebody_else(lake: Lake, name: str) -> None:
    refused = lake.create(name, partner_token(lake, "engineers", "corp:engineers", "staff"))
    assert refused.status_code == 403
    assert "oidc:partner:ada lacks the permission" in refused.text


def test_values_become_the_roles_that_the_settings_name(lake: Lake, name: str) -> None:
    assert lake.create(name, partner_token(lake, "makers")).status_code == 200


def test_roles_and_users_are_granted_more_while_the_server_runs(lake: Lake, name: str) -> None:
    with tidemill.connect(lake.url, credential="owner:all-of-it") as owner:
        owner.create_namespace(name)
        owner.auth.create_role("corp:cooks")
        owner.auth.grant("manage", role="corp:cooks", namespace=name)
        owner.auth.grant("manage", user="oidc:corp:eve", namespace=name)
        cook = lake.corp.key.sign(valid_claims(lake, sub="dan", groups=["cooks"]))
        eve = lake.corp.key.sign(valid_claims(lake, sub="eve", groups=[]))
        until(lambda: lake.create(f"{name}$cook", cook).status_code == 200)
        until(lambda: lake.create(f"{name}$eve", eve).status_code == 200)
        assert lake.create(f"{name}2", cook).status_code == 403
        with tidemill.connect(lake.url, token=cook) as as_cook:
            known = as_cook.auth.whoami()
        assert (known.principal, list(known.roles)) == ("oidc:corp:dan", ["corp:cooks"])
        refused = list(owner.audit(principal="oidc:corp:dan"))
        assert {event.principal for event in refused} == {"oidc:corp:dan"}


def test_tokens_and_keys_of_the_server_itself_still_count(lake: Lake) -> None:
    form = {"grant_type": "client_credentials", "client_id": "owner", "client_secret": "all-of-it"}
    issued = lake.client.post("/iceberg/v1/oauth/tokens", data=form)
    assert lake.get(issued.json()["access_token"]).status_code == 200
    keyed = lake.client.get(LIST, headers={"x-api-key": "owner:all-of-it"})
    assert keyed.status_code == 200


ATTACKS: Final[dict[str, Callable[[Lake], str]]] = {
    "no algorithm": lambda lake: token_with({"alg": "none", "typ": "JWT"}, valid_claims(lake)),
    "no algorithm, in other letters": lambda lake: token_with({"alg": "nOnE"}, valid_claims(lake)),
    "no algorithm with the id of a key": lambda lake: token_with(
        {"alg": "none", "kid": lake.corp.key.key_id}, valid_claims(lake)
    ),
    "the public key as the secret of an HMAC": lambda lake: hmac_token(lake, Encoding.PEM),
    "the public key in DER as the secret of an HMAC": lambda lake: hmac_token(lake, Encoding.DER),
    "no signature": lambda lake: stripped(lake.corp.key.sign(valid_claims(lake))),
    "tampered claims": lambda lake: tampered(lake),
    "keys of another issuer": lambda lake: lake.partner.key.sign(valid_claims(lake)),
    "keys of another issuer under the id of the right one": lambda lake: SigningKey(
        lake.corp.key.key_id, lake.partner.key.private
    ).sign(valid_claims(lake)),
    "a key of its own under the id of the right one": lambda lake: SigningKey(lake.corp.key.key_id).sign(
        valid_claims(lake)
    ),
    "a key of its own in the header": lambda lake: with_own_key(lake),
    "the algorithm of another kind of key": lambda lake: token_with(
        {"alg": "ES256", "kid": lake.corp.key.key_id}, valid_claims(lake), b"x" * 64
    ),
    "an unknown algorithm": lambda lake: token_with(
        {"alg": "RS256K", "kid": lake.corp.key.key_id}, valid_claims(lake), b"x" * 256
    ),
    "an issuer that is not trusted": lambda lake: lake.corp.key.sign(
        valid_claims(lake, iss="https://evil.example")
    ),
    "an issuer that only begins alike": lambda lake: lake.corp.key.sign(
        valid_claims(lake, iss=f"{lake.corp.url}/")
    ),
    "a list of issuers": lambda lake: lake.corp.key.sign_anything(valid_claims(lake, iss=[lake.corp.url])),
    "no issuer": lambda lake: lake.corp.key.sign(valid_claims(lake, iss=None)),
    "another audience": lambda lake: lake.corp.key.sign(valid_claims(lake, aud="mail")),
    "two other audiences": lambda lake: lake.corp.key.sign(valid_claims(lake, aud=["mail", "lakes"])),
    "an audience that contains ours": lambda lake: lake.corp.key.sign(valid_claims(lake, aud="lake mail")),
    "no audience": lambda lake: lake.corp.key.sign(valid_claims(lake, aud=None)),
    "an audience that is no text": lambda lake: lake.corp.key.sign(valid_claims(lake, aud={"lake": 1})),
    "expired": lambda lake: lake.corp.key.sign(valid_claims(lake, exp=int(time.time()) - 60)),
    "no expiry": lambda lake: lake.corp.key.sign(valid_claims(lake, exp=None)),
    "an infinite expiry": lambda lake: lake.corp.key.sign(valid_claims(lake, exp=float("inf"))),
    "not valid yet": lambda lake: lake.corp.key.sign(valid_claims(lake, nbf=int(time.time()) + 600)),
    "issued in the future": lambda lake: lake.corp.key.sign(valid_claims(lake, iat=int(time.time()) + 600)),
    "an ID token": lambda lake: lake.corp.key.sign(valid_claims(lake, nonce="n", at_hash="h")),
    "an ID token of Keycloak": lambda lake: lake.corp.key.sign(valid_claims(lake, typ="ID")),
    "a refresh token of Keycloak": lambda lake: lake.corp.key.sign(valid_claims(lake, typ="Refresh")),
    "a logout token": lambda lake: lake.corp.key.sign(valid_claims(lake), typ="logout+jwt"),
    "nobody": lambda lake: lake.corp.key.sign(valid_claims(lake, sub=None)),
    "an empty name": lambda lake: lake.corp.key.sign(valid_claims(lake, sub="")),
    "a name with a line break": lambda lake: lake.corp.key.sign(valid_claims(lake, sub="ada\nroot")),
    "unknown critical fields": lambda lake: lake.corp.key.sign(valid_claims(lake), crit=["x"], x=1),
    "an id of the key that is no text": lambda lake: token_with(
        {"alg": "RS256", "kid": ["corp"]}, valid_claims(lake), b"x" * 256
    ),
    "too large": lambda lake: lake.corp.key.sign(valid_claims(lake, more="x" * 20_000)),
    "a deep header": lambda lake: f"{encoded(b'[' * 3000)}.{encoded(b'{}')}.x",
    "a header that is deep inside": lambda lake: ".".join(
        (
            encoded(b'{"alg":"RS256","x":' + b"[" * 500 + b"]" * 500 + b"}"),
            encoded(json.dumps(valid_claims(lake)).encode()),
            "x",
        )
    ),
    "deep claims": lambda lake: ".".join((encoded(b'{"alg":"RS256"}'), encoded(b"[" * 5000), "x")),
    "an encrypted token": lambda lake: "e30.e30.e30.e30.e30",
    "no token": lambda lake: "None",
    "dots": lambda lake: "..",
    "no text": lambda lake: "\xe4.\xf6.\xfc",
}


def hmac_token(lake: Lake, encoding: Encoding) -> str:
    public = lake.corp.key.private.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    unsigned = token_with({"alg": "HS256", "kid": lake.corp.key.key_id}, valid_claims(lake)).rpartition(".")[
        0
    ]
    return f"{unsigned}.{encoded(hmac.digest(public, unsigned.encode(), hashlib.sha256))}"


def stripped(token: str) -> str:
    return token.rpartition(".")[0] + "."


def tampered(lake: Lake) -> str:
    head, _, signature = lake.corp.key.sign(valid_claims(lake, groups=[])).split(".")
    return f"{head}.{encoded(json.dumps(valid_claims(lake)).encode())}.{signature}"


def with_own_key(lake: Lake) -> str:
    own = SigningKey(lake.corp.key.key_id)
    public = {name: own.as_jwk()[name] for name in ("kty", "n", "e", "kid")}
    return own.sign(valid_claims(lake), jwk=public)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_token_lets_nobody_in(lake: Lake, attack: str) -> None:
    assert lake.get(lake.corp.key.sign(valid_claims(lake))).status_code == 200
    refused = lake.get(ATTACKS[attack](lake))
    assert refused.status_code == 401, refused.text
    challenge = refused.headers["www-authenticate"]
    assert challenge.startswith('Bearer error="invalid_token", error_description="The token ')
    assert lake.corp.key.key_id not in challenge.removeprefix("Bearer")


def test_with_authentication_any_name_of_the_server_is_heard(lake: Lake) -> None:
    headers = {"x-api-key": "owner:all-of-it", "host": "lake.example.org", "origin": "https://example.org"}
    assert lake.client.get(LIST, headers=headers).status_code == 200


def test_refusals_have_the_headers_of_every_response(lake: Lake) -> None:
    refused = lake.client.get(LIST)
    assert refused.status_code == 401
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert refused.headers["cache-control"] == "no-store"


def test_a_request_without_a_token_is_told_no_error(lake: Lake) -> None:
    refused = lake.client.get(LIST)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


def test_a_token_for_several_audiences_counts_if_ours_is_among_them(lake: Lake) -> None:
    assert lake.get(lake.corp.key.sign(valid_claims(lake, aud=["mail", "lake"]))).status_code == 200


def test_a_clock_may_be_a_little_off(lake: Lake) -> None:
    now = int(time.time())
    assert lake.get(lake.corp.key.sign(valid_claims(lake, nbf=now + 10, iat=now + 10))).status_code == 200


def test_a_token_that_was_checked_before_expires_nevertheless(lake: Lake) -> None:
    token = lake.corp.key.sign(valid_claims(lake, exp=int(time.time()) - 25))
    assert lake.get(token).status_code == 200
    until(lambda: lake.get(token).status_code == 401)


@contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """An address of the attacker's, and who has connected to it."""
    asked: list[str] = []

    class Heard(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.client_address[0])

    with socketserver.TCPServer(("127.0.0.1", 0), Heard) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/keys", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("field", ["jku", "x5u"])
def test_the_server_fetches_no_key_that_a_token_points_to(lake: Lake, field: str) -> None:
    with listener() as (address, asked):
        own = SigningKey("own")
        assert lake.get(own.sign(valid_claims(lake), **{field: address})).status_code == 401
        # What a valid token points to is not read either.
        assert lake.get(lake.corp.key.sign(valid_claims(lake), **{field: address})).status_code == 200
    assert asked == []


def test_forged_ids_of_keys_do_not_make_the_server_hammer_the_issuer(lake: Lake) -> None:
    assert lake.get(partner_token(lake, "makers")).status_code == 200
    before, began = lake.partner.reads, time.monotonic()
    own = SigningKey("own")
    for number in range(50):
        forged = SigningKey(f"forged-{number}", own.private).sign(valid_claims(lake, iss=lake.partner.url))
        assert lake.get(forged).status_code == 401
    assert lake.partner.reads - before <= 2 + (time.monotonic() - began) / 10


def test_guessing_tokens_is_slowed_down_and_valid_ones_are_not(lake: Lake, ada: str) -> None:
    forged = SigningKey(lake.corp.key.key_id).sign(valid_claims(lake))
    statuses = [lake.get(forged, "192.0.2.7").status_code for _ in range(40)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert lake.get(ada, "192.0.2.7").status_code == 200


def test_a_token_that_cannot_be_checked_now_gets_503(lake: Lake) -> None:
    refused = lake.get(lake.corp.key.sign(valid_claims(lake, iss=lake.absent)))
    assert refused.status_code == 503
    assert refused.headers["retry-after"]


def test_requests_go_on_while_an_issuer_does_not_answer(lake: Lake, ada: str) -> None:
    """One that hangs holds up nobody but those whose tokens are of it."""
    borrowed = lake.corp.key.sign(valid_claims(lake, iss=lake.silent))
    waiting = threading.Thread(target=lambda: lake.get(borrowed))
    waiting.start()
    durations: list[float] = []
    while waiting.is_alive() and len(durations) < 20:
        started = time.monotonic()
        assert lake.get(ada).status_code == 200
        durations.append(time.monotonic() - started)
    assert len(durations) == 20
    assert sorted(durations)[10] < 1
    waiting.join()


def test_pyiceberg_comes_in_with_a_token(lake: Lake, ada: str, name: str) -> None:
    catalog = RestCatalog("lake", uri=f"{lake.url}/iceberg", token=ada)
    catalog.create_namespace(name)
    catalog.create_table(f"{name}.docs", pa.schema([("id", pa.int64())]))
    assert catalog.load_table(f"{name}.docs").scan().to_arrow().num_rows == 0


def test_the_lance_namespace_client_comes_in_with_a_token(lake: Lake, ada: str, name: str) -> None:
    space = lance_namespace.connect("rest", {"uri": lake.url, "header.authorization": f"Bearer {ada}"})
    space.create_namespace(lance_namespace.CreateNamespaceRequest(id=[name]))


def test_lancedb_comes_in_with_a_token_as_its_api_key(lake: Lake, ada: str, name: str) -> None:
    database: Any = lancedb.connect("db://x", api_key=ada, host_override=lake.url)
    database.create_table(name, pa.table({"id": [1, 2]}))
    assert database.open_table(name).count_rows() == 2


def test_the_sdk_comes_in_with_a_token_or_with_what_makes_one(lake: Lake, ada: str, name: str) -> None:
    with tidemill.connect(lake.url, token=ada) as connected:
        connected.create_namespace(name)
        table = connected.create_table(f"{name}.docs", pa.table({"id": [1, 2, 3]}))
        assert table.to_lance().count_rows() == 3
    asked: list[str] = []

    def fresh() -> str:
        asked.append("once more")
        return lake.corp.token("ben")

    with tidemill.connect(lake.url, token=fresh) as connected:
        with pytest.raises(Forbidden, match="oidc:corp:ben"):
            connected.create_namespace(f"{name}2")
        assert asked
    with tidemill.connect(lake.url, token="x.y.z") as stranger, pytest.raises(Unauthenticated):
        stranger.list_namespaces()


def test_the_command_line_comes_in_with_a_token(lake: Lake, ada: str) -> None:
    environment = {"TIDEMILL_URL": lake.url, "TIDEMILL_TOKEN": ada}
    listed = CliRunner().invoke(app, ["jobs", "list", "--json"], env=environment)
    assert listed.exit_code == 0, listed.output


def test_tokens_are_not_in_the_log(lake: Lake, ada: str) -> None:
    assert lake.get(ada).status_code == 200
    log = (lake.server.root / "server.log").read_text()
    assert '"caller":"oidc:corp:ada"' in log
    assert ada not in log
    assert ada.rpartition(".")[2] not in log


# The last ones change keys.


def test_when_the_issuer_is_down_known_keys_count_and_unknown_ones_get_503(lake: Lake) -> None:
    known = partner_token(lake, "makers")
    assert lake.get(known).status_code == 200
    lake.partner.stop()
    assert lake.get(known).status_code == 200
    assert lake.get(partner_token(lake, "makers", sub="dan")).status_code == 200
    unknown = SigningKey("new").sign(valid_claims(lake, iss=lake.partner.url))
    until(lambda: lake.get(unknown).status_code == 503)
    assert lake.get(known).status_code == 200
    lake.partner.start()
    # It is asked again without being told.
    until(lambda: lake.get(unknown).status_code == 401)


def test_keys_rotate_without_a_restart_and_old_ones_end(lake: Lake) -> None:
    old = partner_token(lake, "makers")
    assert lake.get(old).status_code == 200
    lake.partner.key = SigningKey("rotated")
    fresh = partner_token(lake, "makers")
    until(lambda: lake.get(fresh).status_code == 200)
    # This was checked and remembered before.
    assert lake.get(old).status_code == 401


@pytest.mark.deep
def test_a_real_issuer_rotates_its_keys(lake: Lake, ada: str) -> None:
    assert lake.get(ada).status_code == 200
    lake.corp.restart(SigningKey("rotated"))
    fresh = lake.corp.token("ada")
    assert claims_of(fresh)["iss"] == lake.corp.url
    until(lambda: lake.get(fresh).status_code == 200)
    assert lake.get(ada).status_code == 401


@pytest.mark.deep
def test_a_server_with_issuers_alone_serves_nobody_else(lake: Lake, tmp_path: Path) -> None:
    trusted = json.dumps(issuers(lake.corp.url, lake.partner.url, lake.silent, lake.absent))
    server = start_server(tmp_path, "--no-worker", "--host", "0.0.0.0", TIDEMILL_OIDC_ISSUERS=trusted)
    try:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(url + LIST, trust_env=False).status_code == 401
        headers = {"authorization": f"Bearer {lake.corp.token('ada')}"}
        assert httpx.get(url + LIST, headers=headers, trust_env=False).status_code == 200
    finally:
        server.stop()
