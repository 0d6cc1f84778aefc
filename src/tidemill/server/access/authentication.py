"""Finds the caller of a request by its API key or bearer token, and checks what they are granted.

With clients in the settings, every request needs `x-api-key: <client id>:<secret>` or a bearer token, except
those to public routes. Tokens are JSON Web Tokens signed with a key derived from the secret key of the
installation. They are not stored: every server with that key accepts them, and a single token cannot be
revoked. Instead each token carries a stamp of the client's secret, so changing the secret or removing the
client invalidates all its tokens at once.

Without clients, anyone who can connect is the owner of the server. `serve` therefore requires clients for
addresses other than loopback.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Final, Protocol

from starlette.datastructures import Headers

from tidemill.catalog.auditing import note_claim
from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.errors import InvalidInput, Unauthenticated
from tidemill.protocols.http.operations import ClientCredential, IssuedToken, TokenIssuer
from tidemill.server.access.cipher import InstallationCipher
from tidemill.server.access.failed_logins import FailedLogins
from tidemill.server.access.tokens import Claims, TokenSigner
from tidemill.server.settings import ServerSettings

API_KEY_HEADER: Final = "x-api-key"
TOKEN_ENDPOINT: Final = "POST /iceberg/v1/oauth/tokens"
TOKEN_KEY: Final = b"tidemill access tokens"


class Authentication(TokenIssuer, Protocol):
    async def caller_of(self, headers: Headers, address: str = "") -> Caller:
        """Raises Unauthenticated, and Throttled if the address has failed too often."""


class ClientAuthentication:
    """Authenticates the clients in the settings by the digests of their secrets."""

    def __init__(
        self, digests: Mapping[str, bytes], signer: TokenSigner, failed_logins: FailedLogins | None = None
    ) -> None:
        self._digests = digests
        self._signer = signer
        self._failed_logins = failed_logins or FailedLogins(math.inf, math.inf)

    async def caller_of(self, headers: Headers, address: str = "") -> Caller:
        # The API key goes first: pyiceberg sends a bearer token "None" beside configured headers.
        key = headers.get(API_KEY_HEADER)
        if key is not None:
            client_id, _, secret = key.partition(":")
            return Caller(self._check(ClientCredential(client_id, secret), address))
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                f"A credential is missing: send '{API_KEY_HEADER}: <client id>:<secret>', "
                f"or 'Authorization: Bearer <token>' with a token from {TOKEN_ENDPOINT}"
            )
        return Caller(self._subject_of(token.strip(), address))

    def issue(self, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        if credential is None:
            raise Unauthenticated(
                "client_id and client_secret are missing; send them in the form or with HTTP Basic"
            )
        return self._sign(self._check(credential, address))

    def exchange(self, token: str, credential: ClientCredential | None, address: str = "") -> IssuedToken:
        claims = self._claims(token, address)
        if claims is None:
            raise InvalidInput(
                "subject_token", "was not issued by this server, or its client has changed since"
            )
        # Iceberg's Java client exchanges an expired token and sends its secret as proof.
        is_proven = credential is not None and self._check(credential, address) == claims.subject
        if self._signer.has_expired(claims) and not is_proven:
            raise InvalidInput(
                "subject_token", "has expired; request a new one with grant_type=client_credentials"
            )
        return self._sign(claims.subject)

    def _check(self, credential: ClientCredential, address: str) -> str:
        """Returns the client id. Takes the same time for an unknown client."""
        self._failed_logins.check(address, credential.client_id)
        expected_digest = self._digests.get(credential.client_id, bytes(sha256().digest_size))
        is_valid = hmac.compare_digest(sha256(credential.secret.encode()).digest(), expected_digest)
        if not is_valid:
            if credential.client_id in self._digests:
                # An unknown id may be a secret in the wrong place.
                note_claim(credential.client_id)
            self._failed_logins.add(address, credential.client_id)
            raise Unauthenticated(
                "The credential is not valid; it must be '<client id>:<secret>' of a client of this server"
            )
        return credential.client_id

    def _subject_of(self, token: str, address: str) -> str:
        claims = self._claims(token, address)
        if claims is None:
            raise Unauthenticated(
                "The bearer token was not issued by this server, or its client has changed since; "
                f"get a new one from {TOKEN_ENDPOINT}"
            )
        if self._signer.has_expired(claims):
            raise Unauthenticated(f"The bearer token has expired; get a new one from {TOKEN_ENDPOINT}")
        return claims.subject

    def _claims(self, token: str, address: str) -> Claims | None:
        """The claims of a token whose client still exists and still has the same secret, else None.

        A signature cannot be guessed, so a token that has one is heard from any address.
        """
        claims = self._signer.verify(token)
        if claims is None:
            self._failed_logins.check(address)
            self._failed_logins.add(address)
        digest = None if claims is None else self._digests.get(claims.subject)
        if claims is None or digest is None or claims.stamp != self._signer.stamp(digest):
            return None
        return claims

    def _sign(self, client_id: str) -> IssuedToken:
        return self._signer.sign(client_id, self._digests[client_id])


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


def open_authentication(settings: ServerSettings, cipher: InstallationCipher) -> Authentication:
    """With clients, this reads the secret key, so an invalid one is reported at startup."""

    def signer() -> TokenSigner:
        return TokenSigner(cipher.derive(TOKEN_KEY), settings.token_lifetime)

    if not settings.clients:
        return LocalAuthentication(signer)
    return ClientAuthentication(
        {name: client.digest for name, client in settings.clients.items()},
        signer(),
        FailedLogins(settings.failed_logins_per_address, settings.failed_logins_per_client),
    )
