"""Who sends a request: judged by keys of clients and by tokens that are signed here."""

from __future__ import annotations

import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from hashlib import sha256
from typing import Final, Protocol

import orjson
from starlette.datastructures import Headers

from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.errors import InvalidInput, Unauthenticated
from tidemill.protocols.http.operations import ClientCredential, IssuedToken, TokenIssuer
from tidemill.server.secret_key import InstallationCipher
from tidemill.server.settings import ServerSettings

API_KEY_HEADER: Final = "x-api-key"
TOKEN_ENDPOINT: Final = "POST /iceberg/v1/oauth/tokens"
# A JSON Web Token, because Iceberg's Java client reads from it when to ask for another. Others are not read
# here, so there is no algorithm to be talked into.
JWT_HEADER: Final = urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=").decode()
STAMP_BYTES: Final = 12
TOKEN_KEY: Final = b"tidemill access tokens"

Clock = Callable[[], datetime]
utc_now: Final[Clock] = partial(datetime.now, UTC)


class Authentication(TokenIssuer, Protocol):
    def caller_of(self, headers: Headers) -> Caller:
        """Raises Unauthenticated."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says; `stamp` tells with which secret its client proved itself."""

    subject: str
    stamp: str
    issued_at: datetime
    expires_at: datetime


class TokenSigner:
    """Tokens that every server with the same key accepts; nothing about them is stored."""

    def __init__(self, key: bytes, lifetime: timedelta, clock: Clock = utc_now) -> None:
        self._key = key
        self._lifetime = lifetime
        self._clock = clock

    def sign(self, subject: str, secret_digest: bytes) -> IssuedToken:
        now = self._clock().timestamp()
        claims = {
            "sub": subject,
            "iat": int(now),
            "exp": math.ceil(now + self._lifetime.total_seconds()),
            "stamp": self.stamp(secret_digest),
        }
        signed = f"{JWT_HEADER}.{_encoded(orjson.dumps(claims))}"
        return IssuedToken(f"{signed}.{self._signature(signed)}", self._lifetime)

    def verify(self, token: str) -> Claims | None:
        """What it says, if it was signed with this key; whether its time is over is another question."""
        signed, _, signature = token.rpartition(".")
        header, _, payload = signed.partition(".")
        is_ours = hmac.compare_digest(self._signature(signed).encode(), signature.encode())
        if header != JWT_HEADER or not is_ours:
            return None
        claims = orjson.loads(_decoded(payload))
        return Claims(claims["sub"], claims["stamp"], _time(claims["iat"]), _time(claims["exp"]))

    def has_expired(self, claims: Claims) -> bool:
        return self._clock() >= claims.expires_at

    def stamp(self, secret_digest: bytes) -> str:
        """Changes with the secret and tells nothing about it to those without the key."""
        return _encoded(self._mac(b"stamp:" + secret_digest)[:STAMP_BYTES])

    def _signature(self, signed: str) -> str:
        return _encoded(self._mac(signed.encode()))

    def _mac(self, message: bytes) -> bytes:
        return hmac.digest(self._key, message, sha256)


class ClientAuthentication:
    """Knows the clients of the settings by the digests of their secrets."""

    def __init__(self, digests: Mapping[str, bytes], signer: TokenSigner) -> None:
        self._digests = digests
        self._signer = signer

    def caller_of(self, headers: Headers) -> Caller:
        # pyiceberg sends a bearer token "None" beside the headers that it was told to send.
        key = headers.get(API_KEY_HEADER)
        if key is not None:
            client_id, _, secret = key.partition(":")
            return Caller(self._check(ClientCredential(client_id, secret)))
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                f"A credential is missing: send '{API_KEY_HEADER}: <client id>:<secret>', "
                f"or 'Authorization: Bearer <token>' with a token from {TOKEN_ENDPOINT}"
            )
        return Caller(self._subject_of(token.strip()))

    def issue(self, credential: ClientCredential | None) -> IssuedToken:
        if credential is None:
            raise Unauthenticated(
                "client_id and client_secret are missing; send them in the form or by HTTP Basic"
            )
        return self._sign(self._check(credential))

    def exchange(self, token: str, credential: ClientCredential | None) -> IssuedToken:
        claims = self._claims(token)
        if claims is None:
            raise InvalidInput("subject_token", "was not issued by this server, or its client has changed")
        # Iceberg's Java client brings the token that has expired and proves by its secret that it is its own.
        is_proven = credential is not None and self._check(credential) == claims.subject
        if self._signer.has_expired(claims) and not is_proven:
            raise InvalidInput("subject_token", "has expired; ask with grant_type=client_credentials")
        return self._sign(claims.subject)

    def _check(self, credential: ClientCredential) -> str:
        """The client's id; takes the same time for a client that is not known."""
        known = self._digests.get(credential.client_id, bytes(sha256().digest_size))
        is_valid = hmac.compare_digest(sha256(credential.secret.encode()).digest(), known)
        if not is_valid:
            raise Unauthenticated("The credential is not '<client id>:<secret>' of a client of this server")
        return credential.client_id

    def _subject_of(self, token: str) -> str:
        claims = self._claims(token)
        if claims is None:
            raise Unauthenticated(
                "The bearer token was not issued by this server, or its client has changed since; "
                f"get one from {TOKEN_ENDPOINT}"
            )
        if self._signer.has_expired(claims):
            raise Unauthenticated(f"The bearer token has expired; get another from {TOKEN_ENDPOINT}")
        return claims.subject

    def _claims(self, token: str) -> Claims | None:
        """Of a token whose client is still there and has still the secret it had."""
        claims = self._signer.verify(token)
        digest = None if claims is None else self._digests.get(claims.subject)
        if claims is None or digest is None or claims.stamp != self._signer.stamp(digest):
            return None
        return claims

    def _sign(self, client_id: str) -> IssuedToken:
        return self._signer.sign(client_id, self._digests[client_id])


class LocalAuthentication:
    """The embedded mode: whoever reaches the server is its owner; credentials are not looked at."""

    def __init__(self, signer: Callable[[], TokenSigner]) -> None:
        self._make_signer = signer

    def caller_of(self, headers: Headers) -> Caller:
        return LOCAL_CALLER

    def issue(self, credential: ClientCredential | None) -> IssuedToken:
        return self._signer.sign(LOCAL_CALLER.principal, b"")

    def exchange(self, token: str, credential: ClientCredential | None) -> IssuedToken:
        return self.issue(credential)

    @cached_property
    def _signer(self) -> TokenSigner:
        """Made when somebody asks: the installation has no key before it needs one."""
        return self._make_signer()


def open_authentication(settings: ServerSettings, cipher: InstallationCipher) -> Authentication:
    """With clients, a key that is not right is found out at once."""

    def signer() -> TokenSigner:
        return TokenSigner(cipher.derive(TOKEN_KEY), settings.token_lifetime)

    if not settings.clients:
        return LocalAuthentication(signer)
    return ClientAuthentication({name: client.digest for name, client in settings.clients.items()}, signer())


def _encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
