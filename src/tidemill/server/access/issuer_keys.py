"""The public keys of an OpenID issuer: found by discovery, cached, and read again when they may have changed.

A refresh runs as a task of the event loop, one at a time; all requests that need it wait for the same one:

    keys known, younger than 5 minutes    they count
    older                                 they count, and are refreshed in the background
    a token names an unknown key          it waits for a refresh, but at most one starts every 10 seconds, so
                                          forged names of keys do not make us hammer the issuer
    the issuer does not answer            known keys count for a day; tokens with unknown ones get 503

A key that the issuer no longer publishes counts no longer as soon as that has been read.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import jwt
import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from tidemill.errors import InvalidInput, Unavailable
from tidemill.protocols.http.browsers import LOOPBACK
from tidemill.server.issuer_settings import IssuerSettings, is_secure

REFRESH_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 10.0
MAX_AGE_SECONDS: Final = 86_400.0
READ_SECONDS: Final = 10.0
MAX_DOCUMENT_BYTES: Final = 1024 * 1024
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048
DISCOVERY: Final = "/.well-known/openid-configuration"
RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
CURVE_ALGORITHMS: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
log = structlog.get_logger("tidemill.oidc")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """`algorithms` are those it can be used with, and the only one that its issuer names, if it does."""

    key_id: str | None
    public: PublicKey
    algorithms: frozenset[str]


@dataclass(frozen=True)
class SigningKeys:
    document: Any
    keys: Sequence[SigningKey]

    def find(self, key_id: str | None) -> SigningKey | None:
        """A token may leave out the id if its issuer has only one key."""
        if key_id is None:
            return self.keys[0] if len(self.keys) == 1 else None
        return next((key for key in self.keys if key.key_id == key_id), None)


class IssuerKeys:
    def __init__(self, settings: IssuerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._keys: SigningKeys | None = None
        self._read_at = -math.inf
        self._attempted_at = -math.inf
        self._is_failing = False
        self._refresh: asyncio.Task[None] | None = None
        self._certificates = _trusted_certificates(settings)

    def current(self) -> SigningKeys | None:
        """The known keys. Starts a refresh in the background when they are old."""
        age = self._clock() - self._read_at
        if age >= MAX_AGE_SECONDS:
            return None
        if age >= REFRESH_SECONDS:
            self._start_refresh()
        return self._keys

    async def find(self, key_id: str | None) -> tuple[SigningKeys, SigningKey | None]:
        """Raises Unavailable if the key is unknown and the issuer does not answer."""
        keys = self.current()
        if keys is not None and (found := keys.find(key_id)):
            return keys, found
        self._start_refresh()
        if self._refresh is not None:
            # Shielded, because others wait for the same refresh.
            await asyncio.shield(self._refresh)
        keys = self.current()
        found = keys.find(key_id) if keys is not None else None
        if keys is None or (found is None and self._is_failing):
            raise Unavailable(
                f"The token cannot be checked: the issuer {self._settings.name!r} does not answer; try again"
            )
        return keys, found

    def _start_refresh(self) -> None:
        if self._refresh is not None and not self._refresh.done():
            return
        self._refresh = None
        if self._clock() - self._attempted_at >= RETRY_SECONDS:
            self._attempted_at = self._clock()
            self._refresh = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                document = await self._fetch_document()
            if self._keys is None or document != self._keys.document:
                # Unchanged keys stay the same object, by which checked tokens know that they still count.
                self._keys = SigningKeys(document, _signing_keys(document))
            self._read_at, self._is_failing = self._clock(), False
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            self._is_failing = True
            log.warning(
                "the keys of an issuer cannot be read",
                issuer=self._settings.name,
                error=f"{type(error).__name__}: {error}",
            )

    async def _fetch_document(self) -> dict[str, Any]:
        is_local = urlsplit(self._settings.issuer).hostname in LOOPBACK
        async with httpx.AsyncClient(
            timeout=READ_SECONDS, verify=self._certificates, trust_env=not is_local
        ) as client:
            found = await _get_json(client, self._settings.issuer.rstrip("/") + DISCOVERY)
            if found.get("issuer") != self._settings.issuer:
                raise ValueError(f"the issuer calls itself {found.get('issuer')!r:.200}")
            address = found.get("jwks_uri")
            if not isinstance(address, str) or not is_secure(address):
                raise ValueError(f"jwks_uri {address!r:.200} is not an https:// address")
            return await _get_json(client, address)


async def _get_json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Follows no redirects: nobody but the issuer says where its keys are."""
    body = bytearray()
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} answers with status {response.status_code}")
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise ValueError(f"{url} sends more than {MAX_DOCUMENT_BYTES:,} bytes")
    value = orjson.loads(body)
    if not isinstance(value, dict):
        raise ValueError(f"{url} does not send a JSON object")
    return value


def _signing_keys(document: Mapping[str, Any]) -> list[SigningKey]:
    """The keys that can verify signatures; others, such as those for encryption, are left out."""
    published = document.get("keys")
    if not isinstance(published, list) or len(published) > MAX_KEYS:
        raise ValueError(f"the key set has no list of at most {MAX_KEYS} keys")
    return [key for found in published if isinstance(found, dict) and (key := _signing_key(found))]


def _signing_key(found: dict[str, Any]) -> SigningKey | None:
    is_for_signing = found.get("use", "sig") == "sig" and "verify" in found.get("key_ops", ["verify"])
    if found.get("kty") not in ("RSA", "EC", "OKP") or not is_for_signing or "d" in found:
        return None
    try:
        public = jwt.PyJWK(found).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _algorithms(public)
    if isinstance(named := found.get("alg"), str):
        algorithms &= {named}
    key_id = found.get("kid")
    return SigningKey(key_id if isinstance(key_id, str) else None, public, algorithms) if algorithms else None


def _algorithms(public: object) -> frozenset[str]:
    match public:
        case RSAPublicKey() if public.key_size >= MIN_RSA_BITS:
            return RSA_ALGORITHMS
        case EllipticCurvePublicKey():
            return frozenset(filter(None, [CURVE_ALGORITHMS.get(public.curve.name)]))
        case Ed25519PublicKey():
            return frozenset({"EdDSA"})
        case _:
            return frozenset()


def _trusted_certificates(settings: IssuerSettings) -> ssl.SSLContext:
    context = httpx.create_ssl_context()
    if settings.ca_file is not None:
        try:
            context.load_verify_locations(settings.ca_file)
        except OSError as error:
            problem = f"oidc_issuers: ca_file of {settings.name!r}"
            raise InvalidInput(problem, f"{settings.ca_file} has no certificates: {error}") from error
    return context
