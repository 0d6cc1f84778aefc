"""Clients are known by their secrets and by tokens signed with the key of the installation."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from starlette.datastructures import Headers

from tidemill.catalog.model.callers import LOCAL_CALLER, OWN_PRINCIPALS, Caller
from tidemill.errors import InvalidInput, Unauthenticated
from tidemill.protocols.http.operations import ClientCredential
from tidemill.server.access.authentication import Authentication, ClientAuthentication, open_authentication
from tidemill.server.access.cipher import KEY_FILE, InstallationCipher
from tidemill.server.access.directory import AccessDirectory
from tidemill.server.access.tokens import TokenSigner
from tidemill.server.serve import _as_environment, serve
from tidemill.server.settings import ServerSettings, load_settings
from tidemill.store.engine import open_store

KEY = bytes(range(32))
HOUR = timedelta(hours=1)
DIGEST = sha256(b"tide").digest()
ADA = ClientCredential("ada", "tide")
WRONG = ClientCredential("ada", "ebb")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def caller_of(authentication: Authentication, headers: Mapping[str, str]) -> Caller:
    return asyncio.run(authentication.caller_of(Headers(headers)))


def empty_directory() -> AccessDirectory:
    return AccessDirectory(open_store("sqlite://"))


def opened(settings: ServerSettings) -> Authentication:
    return open_authentication(settings, InstallationCipher(settings), empty_directory())


class Door:
    """Authentication of one client, with a clock that stands until it is moved."""

    def __init__(self, secret: bytes = b"tide", key: bytes = KEY) -> None:
        self.clock = Clock()
        self.signer = TokenSigner(key, HOUR, self.clock)
        digests = {"ada": sha256(secret).digest()}
        self.authentication = ClientAuthentication(digests, empty_directory(), self.signer)

    def caller(self, **headers: str) -> Caller:
        return caller_of(
            self.authentication, {name.replace("_", "-"): value for name, value in headers.items()}
        )

    def token(self) -> str:
        return self.authentication.issue(ADA).value


def settings_with(**client: Any) -> ServerSettings:
    return load_settings(clients={"ada": client})


def test_a_token_tells_who_it_is_for_and_until_when() -> None:
    door = Door()
    claims = door.signer.verify(door.token())
    assert claims is not None
    assert claims.subject == "ada"
    assert (claims.issued_at, claims.expires_at) == (door.clock.now, door.clock.now + HOUR)


def test_a_token_has_the_form_from_which_clients_read_when_it_expires() -> None:
    door = Door()
    _, payload, _ = door.token().split(".")
    claims = json.loads(urlsafe_b64decode(payload + "=="))
    assert claims["exp"] == int((door.clock.now + HOUR).timestamp())


def test_a_token_is_good_until_it_expires() -> None:
    door = Door()
    bearer = f"Bearer {door.token()}"
    door.clock.now += HOUR - timedelta(seconds=1)
    assert door.caller(authorization=bearer) == Caller("ada")
    door.clock.now += timedelta(seconds=1)
    with pytest.raises(Unauthenticated, match="has expired"):
        door.caller(authorization=bearer)


def test_a_token_changed_anywhere_is_refused() -> None:
    door = Door()
    token = door.token()
    for position in range(len(token)):
        changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        with pytest.raises(Unauthenticated, match="was not issued by this server"):
            door.caller(authorization=f"Bearer {changed}")


@pytest.mark.parametrize(
    "token", ["", "None", "a.b.c", "..", "é.ü", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."]
)
def test_what_is_no_token_of_ours_is_refused(token: str) -> None:
    with pytest.raises(Unauthenticated, match="was not issued by this server"):
        Door().caller(authorization=f"Bearer {token}")


def test_a_token_is_good_on_every_server_with_the_key_and_on_no_other() -> None:
    token = Door().token()
    assert Door().caller(authorization=f"bearer {token}") == Caller("ada")
    with pytest.raises(Unauthenticated):
        Door(key=bytes(32)).caller(authorization=f"Bearer {token}")


def test_a_new_secret_ends_the_tokens_of_the_old_one() -> None:
    token = Door().token()
    with pytest.raises(Unauthenticated, match="its client has changed"):
        Door(secret=b"flood").caller(authorization=f"Bearer {token}")


def test_a_token_of_a_client_that_is_gone_is_refused() -> None:
    door = Door()
    stranger = door.signer.sign("bob", DIGEST).value
    with pytest.raises(Unauthenticated):
        door.caller(authorization=f"Bearer {stranger}")


def test_a_key_names_the_client_and_its_secret() -> None:
    assert Door().caller(x_api_key="ada:tide") == Caller("ada")


@pytest.mark.parametrize("key", ["", "ada", "ada:", "ada:ebb", "bob:tide", ":tide", "tide", "ada:tide "])
def test_a_wrong_key_is_refused(key: str) -> None:
    with pytest.raises(Unauthenticated, match="<client id>:<secret>"):
        Door().caller(x_api_key=key)


def test_a_key_goes_over_the_token_that_a_client_sends_beside_it() -> None:
    assert Door().caller(x_api_key="ada:tide", authorization="Bearer None") == Caller("ada")


@pytest.mark.parametrize("headers", [{}, {"authorization": "Basic YWRhOnRpZGU="}], ids=["none", "basic"])
def test_without_a_credential_it_says_which_would_do(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated, match=r"x-api-key.*Bearer"):
        Door().caller(**headers)


@pytest.mark.parametrize("credential", [None, WRONG, ClientCredential("", "")])
def test_a_token_is_issued_for_the_right_secret_only(credential: ClientCredential | None) -> None:
    with pytest.raises(Unauthenticated):
        Door().authentication.issue(credential)


def test_a_token_is_exchanged_for_a_fresh_one() -> None:
    door = Door()
    first = door.token()
    door.clock.now += HOUR / 2
    second = door.authentication.exchange(first, None).value
    door.clock.now += HOUR / 2
    assert door.caller(authorization=f"Bearer {second}") == Caller("ada")


def test_an_expired_token_is_exchanged_only_for_the_client_that_proves_to_be_its_own() -> None:
    door = Door()
    old = door.token()
    door.clock.now += 2 * HOUR
    assert door.caller(authorization=f"Bearer {door.authentication.exchange(old, ADA).value}") == Caller(
        "ada"
    )
    with pytest.raises(InvalidInput, match="subject_token: has expired"):
        door.authentication.exchange(old, None)
    with pytest.raises(Unauthenticated):
        door.authentication.exchange(old, WRONG)


def test_the_embedded_mode_looks_at_no_credential(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path)
    embedded = opened(settings)
    assert caller_of(embedded, {"authorization": "Bearer None"}) == LOCAL_CALLER
    assert not (tmp_path / KEY_FILE).exists()
    assert embedded.issue(WRONG).value
    assert embedded.exchange("nothing", None).value


def test_a_token_of_the_embedded_mode_is_worth_nothing_to_a_server_with_clients(tmp_path: Path) -> None:
    embedded, strict = (
        load_settings(root=tmp_path),
        load_settings(root=tmp_path, clients={"ada": {"secret": "s"}}),
    )
    token = opened(embedded).issue(None).value
    with pytest.raises(Unauthenticated):
        caller_of(opened(strict), {"authorization": f"Bearer {token}"})


def test_the_key_of_tokens_is_not_the_key_of_the_installation() -> None:
    key = Fernet.generate_key()
    cipher = InstallationCipher(load_settings(secret_key=key.decode()))
    assert cipher.derive(b"one") == cipher.derive(b"one")
    assert len({cipher.derive(b"one"), cipher.derive(b"two"), urlsafe_b64decode(key)}) == 3


def test_secrets_are_neither_kept_nor_shown() -> None:
    settings = settings_with(secret="tide")
    assert settings.clients["ada"].digest == DIGEST
    shown = f"{settings!r} {settings} {settings.model_dump_json()}"
    assert "tide" not in shown.replace("tidemill", "")
    assert DIGEST.hex() not in f"{settings!r} {settings}"


def test_children_know_the_clients_by_their_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_with(secret="tide", grants={"": ["read"], "team.raw": ["write", "compute"]})
    environment = _as_environment(settings)
    assert '"tide"' not in environment["TIDEMILL_CLIENTS"]
    monkeypatch.setenv("TIDEMILL_CLIENTS", environment["TIDEMILL_CLIENTS"])
    assert load_settings().clients == settings.clients


def test_a_digest_does_for_a_secret() -> None:
    assert settings_with(secret_sha256=DIGEST.hex().upper()).clients == settings_with(secret="tide").clients


@pytest.mark.parametrize(
    ("client", "problem"),
    [
        ({}, "clients.ada: give either secret or secret_sha256"),
        ({"secret": "s", "secret_sha256": DIGEST.hex()}, "clients.ada: give either secret or secret_sha256"),
        ({"secret": ""}, "clients.ada: secret must consist of printable"),
        ({"secret": "two words"}, "clients.ada: secret must consist of printable"),
        ({"secret_sha256": "abc"}, "clients.ada.secret_sha256: must be the SHA-256"),
        ({"secret": "s", "role": "x"}, "clients.ada.role: Extra inputs"),
        ({"secret": "s", "grants": {"team": ["raed"]}}, "clients.ada.grants.team.0: Input should be 'read'"),
        ({"secret": "s", "grants": {"team..raw": ["read"]}}, "every level needs a name"),
    ],
)
def test_a_client_that_is_not_right_is_refused(client: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings_with(**client)
    assert problem in str(refused.value)


@pytest.mark.parametrize("client_id", ["", "a:b", "a b", "ä", *sorted(OWN_PRINCIPALS)])
def test_a_client_needs_an_id_that_can_be_told_apart(client_id: str) -> None:
    with pytest.raises(InvalidInput, match="clients"):
        load_settings(clients={client_id: {"secret": "s"}})


def test_a_refusal_of_settings_does_not_show_the_secret() -> None:
    with pytest.raises(InvalidInput) as refused:
        settings_with(secret="top-secret", grants=7)
    assert "top-secret" not in f"{refused.value} {refused.value.__cause__}"


def test_an_address_that_others_reach_needs_clients() -> None:
    with pytest.raises(InvalidInput, match="'clients' or 'oidc_issuers' must be set"):
        serve(load_settings(host="0.0.0.0"))
