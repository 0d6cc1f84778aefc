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
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Protocol, TypeAlias

import orjson
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from starlette.datastructures import Headers

from tidemill.catalog.model.callers import LOCAL_CALLER, Caller, Permission
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.errors import InvalidInput, PermissionDenied, Unauthenticated
from tidemill.protocols.http.operations import ClientCredential, IssuedToken, TokenIssuer
from tidemill.server.failed_logins import FailedLogins
from tidemill.server.settings import ServerSettings

API_KEY_HEADER: Final = "x-api-key"
TOKEN_ENDPOINT: Final = "POST /iceberg/v1/oauth/tokens"
# Iceberg's Java client reads the expiry from a JSON Web Token. Only this header is accepted, so a client
# cannot choose another algorithm.
JWT_HEADER: Final = urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=").decode()
STAMP_BYTES: Final = 12
TOKEN_KEY: Final = b"tidemill access tokens"
Clock = Callable[[], datetime]
utc_now: Final[Clock] = partial(datetime.now, UTC)
Grants: TypeAlias = Mapping[NamespacePath, frozenset[Permission]]
IMPLIED: Final[Mapping[Permission, frozenset[Permission]]] = {
    Permission.READ: frozenset({Permission.READ}),
    Permission.WRITE: frozenset({Permission.WRITE, Permission.READ}),
    Permission.MANAGE: frozenset({Permission.MANAGE, Permission.WRITE, Permission.READ}),
    Permission.COMPUTE: frozenset({Permission.COMPUTE, Permission.READ}),
    Permission.FUNCTION: frozenset({Permission.FUNCTION, Permission.READ}),
    Permission.ADMIN: frozenset(Permission),
}


class Authentication(TokenIssuer, Protocol):
    def caller_of(self, headers: Headers, address: str = "") -> Caller:
        """Raises Unauthenticated, and Throttled if the address has failed too often."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. `stamp` identifies the secret its client authenticated with."""

    subject: str
    stamp: str
    issued_at: datetime
    expires_at: datetime


class TokenSigner:
    """Signs and verifies tokens. Every server with the same key accepts them; none are stored."""

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
        """The claims if the token was signed with this key, else None. Does not check the expiry."""
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
        """Changes with the secret, and reveals nothing about it without the key."""
        return _encoded(self._mac(b"stamp:" + secret_digest)[:STAMP_BYTES])

    def _signature(self, signed: str) -> str:
        return _encoded(self._mac(signed.encode()))

    def _mac(self, message: bytes) -> bytes:
        return hmac.digest(self._key, message, sha256)


class ClientAuthentication:
    """Authenticates the clients in the settings by the digests of their secrets."""

    def __init__(
        self, digests: Mapping[str, bytes], signer: TokenSigner, failed_logins: FailedLogins | None = None
    ) -> None:
        self._digests = digests
        self._signer = signer
        self._failed_logins = failed_logins or FailedLogins(math.inf, math.inf)

    def caller_of(self, headers: Headers, address: str = "") -> Caller:
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

    def caller_of(self, headers: Headers, address: str = "") -> Caller:
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


def _encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class AllowEverything:
    """For embedded servers, whose caller is the owner, and for workers, whose jobs are already authorized."""

    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        return None

    def sees(self, caller: Caller, resource: NamespacePath | TableIdent) -> bool:
        return True


class GrantAuthorizer:
    """A grant applies to its namespace and everything below it. A grant on the root applies everywhere."""

    def __init__(self, grants: Mapping[str, Grants]) -> None:
        self._allowed = {
            principal: {path.levels: _with_implied(granted) for path, granted in held.items()}
            for principal, held in grants.items()
        }

    def require(self, caller: Caller, permission: Permission, resource: NamespacePath | TableIdent) -> None:
        allowed = self._allowed.get(caller.principal, {})
        levels = _namespace_of(resource).levels
        if not any(permission in allowed.get(levels[:depth], ()) for depth in range(len(levels) + 1)):
            raise PermissionDenied(caller.principal, permission.value, str(resource))

    def sees(self, caller: Caller, resource: NamespacePath | TableIdent) -> bool:
        allowed = self._allowed.get(caller.principal, {})
        levels = _namespace_of(resource).levels
        if any(Permission.READ in allowed.get(levels[:depth], ()) for depth in range(len(levels) + 1)):
            return True
        is_namespace = isinstance(resource, NamespacePath)
        return is_namespace and any(below[: len(levels)] == levels for below in allowed)


def _namespace_of(resource: NamespacePath | TableIdent) -> NamespacePath:
    """The namespace whose grants apply. A grant on a namespace does not cover a table of the same name."""
    return resource.namespace if isinstance(resource, TableIdent) else resource


def _with_implied(granted: frozenset[Permission]) -> frozenset[Permission]:
    return frozenset().union(*(IMPLIED[permission] for permission in granted))


KEY_FILE: Final = "secret.key"


class InstallationCipher:
    """Authenticated encryption: `open` needs the same key and rejects modified data."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings

    def seal(self, value: bytes) -> bytes:
        return self._fernet.encrypt(value)

    def open(self, sealed: bytes) -> bytes:
        return self._fernet.decrypt(sealed)

    def derive(self, purpose: bytes) -> bytes:
        """Derives an independent key for another purpose."""
        return HKDF(SHA256(), 32, salt=None, info=purpose).derive(urlsafe_b64decode(self._key))

    @cached_property
    def _fernet(self) -> Fernet:
        return Fernet(self._key)

    @cached_property
    def _key(self) -> bytes:
        configured = self._settings.secret_key
        if configured is None:
            return _read_or_create_key(self._settings.root / KEY_FILE)
        try:
            Fernet(configured.encode())
        except ValueError as error:
            raise InvalidInput("secret_key", "must be 32 bytes in URL-safe base64") from error
        return configured.encode()


def _read_or_create_key(path: Path) -> bytes:
    """The first process that needs the key creates it. A link makes concurrent starters agree on one."""
    if not path.exists():
        # Only its owner can read a temporary file.
        with NamedTemporaryFile(dir=path.parent) as file:
            file.write(Fernet.generate_key())
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(file.name, path)
    return path.read_bytes()
