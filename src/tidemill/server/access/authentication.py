"""Finds the caller of a request by its API key or bearer token.

If the settings have clients, every request needs `x-api-key: <client id>:<secret>` or a bearer token, except
those to public routes. Clients are in the settings or in the catalog; those of the catalog have any number of
keys, which may expire or be restricted.

Tokens are JSON Web Tokens signed with a key derived from the secret key of the installation. They are not
stored: every server with that key accepts them, and a single token cannot be revoked. Instead each token
carries the id of the API key it was issued for and a stamp of its secret. So changing a secret, or removing a
key or client, invalidates all its tokens at once, and a token conveys no more than its key.

Tokens of OpenID issuers are accepted as well, if the settings name any: see `oidc`.

Without clients and issuers, anyone who can connect is the owner of the server. `serve` therefore requires
some for addresses other than loopback.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Final, Protocol

from starlette.datastructures import Headers

from tidemill.catalog.auditing import note_claim
from tidemill.catalog.model.access import ApiKey, digest_of, key_id_of
from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.errors import InvalidInput, Unauthenticated
from tidemill.protocols.http.operations import ClientCredential, IssuedToken, TokenIssuer
from tidemill.server.access.cipher import InstallationCipher
from tidemill.server.access.directory import AccessDirectory
from tidemill.server.access.failed_logins import FailedLogins
from tidemill.server.access.grants import AccessSnapshot
from tidemill.server.access.oidc import OidcTokens, RefusedToken
from tidemill.server.access.tokens import JWT_HEADER, Claims, TokenSigner
from tidemill.server.settings import ServerSettings

API_KEY_HEADER: Final = "x-api-key"
TOKEN_ENDPOINT: Final = "POST /iceberg/v1/oauth/tokens"
TOKEN_KEY: Final = b"tidemill access tokens"
# Compared with when there is no client or key, so that this takes as long as a wrong secret.
NO_DIGEST: Final = bytes(sha256().digest_size)


class Authentication(TokenIssuer, Protocol):
    async def caller_of(self, headers: Headers, address: str = "") -> Caller:
        """Raises Unauthenticated, and Throttled if the address has failed too often."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A client that has proved who it is; `key` is None for clients in the settings."""

    client_id: str
    digest: bytes
    key: ApiKey | None = None


class ClientAuthentication:
    """Authenticates clients of the settings and of the catalog by the digests of their secrets."""

    def __init__(
        self,
        digests: Mapping[str, bytes],
        directory: AccessDirectory,
        signer: TokenSigner,
        failed_logins: FailedLogins | None = None,
        oidc: OidcTokens | None = None,
    ) -> None:
        self._digests = digests
        self._directory = directory
        self._signer = signer
        self._failed_logins = failed_logins or FailedLogins(math.inf, math.inf)
        self._oidc = oidc

    async def caller_of(self, headers: Headers, address: str = "") -> Caller:
        snapshot = await self._directory.fresh()
        # The API key goes first: pyiceberg sends a bearer token "None" beside configured headers.
        key = headers.get(API_KEY_HEADER)
        if key is not None and _is_token(key):
            # lancedb can send only this header.
            return await self._caller_of_bearer(snapshot, key, address)
        if key is not None:
            client_id, _, secret = key.partition(":")
            return _caller(self._check(snapshot, ClientCredential(client_id, secret), address))
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                f"A credential is missing: send '{API_KEY_HEADER}: <client id>:<secret>', "
                f"or 'Authorization: Bearer <token>' with a token from {TOKEN_ENDPOINT}"
            )
        return await self._caller_of_bearer(snapshot, token.strip(), address)

    async def _caller_of_bearer(self, snapshot: AccessSnapshot, token: str, address: str) -> Caller:
        """Our own tokens are told by their header, which no issuer's can have: it names an HMAC."""
        if self._oidc is None or token.startswith(f"{JWT_HEADER}."):
            return self._caller_of_token(snapshot, token, address)
        try:
            return await self._oidc.caller_of(token)
        except RefusedToken as error:
            if not error.is_authentic:
                self._failed_logins.check(address)
                self._failed_logins.add(address)
            raise

    def issue(self, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        if credential is None:
            raise Unauthenticated(
                "client_id and client_secret are missing; send them in the form or with HTTP Basic"
            )
        return self._sign(self._check(self._directory.current(), credential, address))

    def exchange(self, token: str, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        snapshot = self._directory.current()
        claims = self._claims(token, address)
        known = None if claims is None else self._known(snapshot, claims)
        if claims is None or known is None:
            raise InvalidInput(
                "subject_token", "was not issued by this server, or its client has changed since"
            )
        # Iceberg's Java client exchanges an expired token and sends its secret as proof.
        is_proven = (
            credential is not None and self._check(snapshot, credential, address).client_id == claims.subject
        )
        if self._signer.has_expired(claims.expires_at) and not is_proven:
            raise InvalidInput(
                "subject_token", "has expired; request a new one with grant_type=client_credentials"
            )
        self._check_expiry(known)
        return self._sign(known)

    def _check(self, snapshot: AccessSnapshot, credential: ClientCredential, address: str) -> _Known:
        """Takes the same time for an unknown client."""
        client_id, secret = credential.client_id, credential.secret
        self._failed_logins.check(address, client_id)
        known = self._find(snapshot, client_id, key_id_of(secret)) or _Known(client_id, NO_DIGEST)
        if not hmac.compare_digest(digest_of(secret), known.digest):
            if client_id in snapshot.client_ids or client_id in self._digests:
                # An unknown id may be a secret in the wrong place.
                note_claim(client_id)
            self._failed_logins.add(address, client_id)
            raise Unauthenticated(
                "The credential is not valid; it must be '<client id>:<secret>' of a client of this server"
            )
        self._check_expiry(known)
        return known

    def _find(self, snapshot: AccessSnapshot, client_id: str, key_id: str | None) -> _Known | None:
        """A client of the settings takes the place of one in the catalog with its id."""
        digest = self._digests.get(client_id)
        key = snapshot.keys.get(key_id or "")
        if digest is not None:
            return _Known(client_id, digest)
        return None if key is None or key.client_id != client_id else _Known(client_id, key.digest, key)

    def _check_expiry(self, known: _Known) -> None:
        """Also notes that the key is in use."""
        key = known.key
        if key is None:
            return
        if key.expires_at is not None and self._signer.has_expired(key.expires_at):
            raise Unauthenticated(f"The key '{key.name}' of {key.client_id} has expired; create another one")
        self._directory.note_use(key)

    def _caller_of_token(self, snapshot: AccessSnapshot, token: str, address: str) -> Caller:
        claims = self._claims(token, address)
        known = None if claims is None else self._known(snapshot, claims)
        if claims is None or known is None:
            raise Unauthenticated(
                "The bearer token was not issued by this server, or its client has changed since; "
                f"get a new one from {TOKEN_ENDPOINT}",
                "The token was not issued by this server",
            )
        if self._signer.has_expired(claims.expires_at):
            raise Unauthenticated(
                f"The bearer token has expired; get a new one from {TOKEN_ENDPOINT}", "The token has expired"
            )
        self._check_expiry(known)
        return _caller(known, claims.expires_at)

    def _claims(self, token: str, address: str) -> Claims | None:
        """The claims of a token that this server signed.

        A signature cannot be guessed, so a token that has one is heard from any address.
        """
        claims = self._signer.verify(token)
        if claims is None:
            self._failed_logins.check(address)
            self._failed_logins.add(address)
        return claims

    def _known(self, snapshot: AccessSnapshot, claims: Claims) -> _Known | None:
        """The client of a token, if it still exists and still has the same secret."""
        known = self._find(snapshot, claims.subject, claims.key_id)
        if known is None:
            return None
        is_current = hmac.compare_digest(claims.stamp, self._signer.stamp(known.digest))
        return known if is_current else None

    def _sign(self, known: _Known) -> IssuedToken:
        key = known.key
        if key is None:
            return self._signer.sign(known.client_id, known.digest)
        return self._signer.sign(known.client_id, known.digest, key.key_id, key.expires_at)


def _caller(known: _Known, expires_at: datetime | None = None) -> Caller:
    key = known.key
    if key is None:
        return Caller(known.client_id, expires_at=expires_at)
    return Caller(known.client_id, scope=key.scope, expires_at=expires_at or key.expires_at, key=key.name)


def _is_token(key: str) -> bool:
    """Whether an API key is a JSON Web Token: those have two dots and no colon."""
    return ":" not in key and key.count(".") == 2


class LocalAuthentication:
    """For embedded servers: every caller is the owner, and credentials are ignored."""

    def __init__(self, signer: Callable[[], TokenSigner]) -> None:
        self._make_signer = signer

    async def caller_of(self, headers: Headers, address: str = "") -> Caller:
        return LOCAL_CALLER

    def issue(self, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        return self._signer.sign(LOCAL_CALLER.principal, b"")

    def exchange(self, token: str, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        return self.issue(credential)

    @cached_property
    def _signer(self) -> TokenSigner:
        """Created on first use, because the installation has no key before it needs one."""
        return self._make_signer()


def open_authentication(
    settings: ServerSettings, cipher: InstallationCipher, directory: AccessDirectory
) -> Authentication:
    """With clients or issuers, this reads the secret key, so an invalid one is reported at startup."""

    def signer() -> TokenSigner:
        return TokenSigner(cipher.derive(TOKEN_KEY), settings.token_lifetime)

    if not settings.has_authentication:
        return LocalAuthentication(signer)
    return ClientAuthentication(
        {name: client.digest for name, client in settings.clients.items()},
        directory,
        signer(),
        FailedLogins(settings.failed_logins_per_address, settings.failed_logins_per_client),
        OidcTokens(settings.oidc_issuers) if settings.oidc_issuers else None,
    )
