"""Tokens that the server issues: JSON Web Tokens, signed with a key derived from the secret key."""

from __future__ import annotations

import hmac
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from hashlib import sha256
from typing import Final

import orjson

from tidemill.protocols.http.operations import IssuedToken

# Iceberg's Java client reads the expiry from a JSON Web Token. Only this header is accepted, so a client
# cannot choose another algorithm.
JWT_HEADER: Final = urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=").decode()
STAMP_BYTES: Final = 12
MAX_REMEMBERED: Final = 1024
Clock = Callable[[], datetime]
utc_now: Final[Clock] = partial(datetime.now, UTC)


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. `stamp` identifies the secret its client authenticated with.

    `key_id` is the key of the catalog that this secret belongs to; empty for clients in the settings.
    """

    subject: str
    key_id: str
    stamp: str
    issued_at: datetime
    expires_at: datetime


class TokenSigner:
    """Signs and verifies tokens. Every server with the same key accepts them; none are stored."""

    def __init__(self, key: bytes, lifetime: timedelta, clock: Clock = utc_now) -> None:
        self._key = key
        self._lifetime = lifetime
        self._clock = clock
        # Clients send a token many times. Neither result depends on anything else, such as the time.
        self.verify = lru_cache(MAX_REMEMBERED)(self._verify)
        self.stamp = lru_cache(MAX_REMEMBERED)(self._stamp)

    def sign(
        self, subject: str, secret_digest: bytes, key_id: str = "", not_after: datetime | None = None
    ) -> IssuedToken:
        """A token that expires `not_after` that time."""
        now = self._clock()
        lifetime = self._lifetime if not_after is None else min(self._lifetime, not_after - now)
        claims = {
            "sub": subject,
            "iat": int(now.timestamp()),
            "exp": math.ceil((now + lifetime).timestamp()),
            "stamp": self.stamp(secret_digest),
        }
        if key_id:
            claims["key"] = key_id
        signed = f"{JWT_HEADER}.{_encoded(orjson.dumps(claims))}"
        return IssuedToken(f"{signed}.{self._signature(signed)}", lifetime, subject)

    def _verify(self, token: str) -> Claims | None:
        """The claims if the token was signed with this key, else None. Does not check the expiry."""
        signed, _, signature = token.rpartition(".")
        header, _, payload = signed.partition(".")
        is_ours = hmac.compare_digest(self._signature(signed).encode(), signature.encode())
        if header != JWT_HEADER or not is_ours:
            return None
        claims = orjson.loads(_decoded(payload))
        issued_at, expires_at = _time(claims["iat"]), _time(claims["exp"])
        return Claims(claims["sub"], claims.get("key", ""), claims["stamp"], issued_at, expires_at)

    def has_expired(self, expires_at: datetime) -> bool:
        return self._clock() >= expires_at

    def _stamp(self, secret_digest: bytes) -> str:
        """Changes with the secret, and reveals nothing about it without the key."""
        return _encoded(self._mac(b"stamp:" + secret_digest)[:STAMP_BYTES])

    def _signature(self, signed: str) -> str:
        return _encoded(self._mac(signed.encode()))

    def _mac(self, message: bytes) -> bytes:
        return hmac.digest(self._key, message, sha256)


def _encoded(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
