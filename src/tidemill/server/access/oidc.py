"""Bearer tokens of OpenID issuers: who they are for, and the roles they convey.

A token is a JSON Web Token. Its issuer must be one of the settings, its signature by one of the keys of that
issuer and with an algorithm that both the settings and the key allow; its audience must include ours, and it
must be valid now. What a token says about its own key (`jwk`, `jku`, `x5c`, `x5u`) is not read.

Checking a signature costs more than many requests, so a checked token is remembered by its digest until it
expires or the keys of its issuer change.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import jwt
import orjson

from tidemill.catalog.model.callers import Caller
from tidemill.errors import Unauthenticated
from tidemill.server.access.issuer_keys import IssuerKeys, SigningKey, SigningKeys
from tidemill.server.issuer_settings import IssuerSettings

LEEWAY_SECONDS: Final = 30
MAX_TOKEN_CHARACTERS: Final = 16 * 1024
MAX_HEADER_CHARACTERS: Final = 4096
MAX_REMEMBERED: Final = 10_000
MAX_SUBJECT_CHARACTERS: Final = 400
MAX_ROLES: Final = 1000
# The last second of the year 9999.
LATEST: Final = 253_402_300_799
TOKEN_TYPES: Final = frozenset({"jwt", "at+jwt"})
# Claims that only ID tokens have: those are for the client that asked for them, not for a server.
ID_TOKEN_CLAIMS: Final = frozenset({"nonce", "at_hash", "c_hash"})
# Keycloak says in the claim `typ` what a token is.
OTHER_TYPES: Final = frozenset({"id", "refresh", "offline", "logout"})
PROBLEMS: Final[Sequence[tuple[type[Exception], str]]] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience"),
    (jwt.MissingRequiredClaimError, "lacks one of the claims iss, aud, exp"),
    (jwt.InvalidAlgorithmError, "is signed with an algorithm that is not accepted"),
    (jwt.InvalidSignatureError, "has no valid signature"),
)
AUTHENTIC: Final = (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError, jwt.InvalidAudienceError)


class RefusedToken(Unauthenticated):
    """`is_authentic`: its issuer has signed it, so it was not guessed."""

    def __init__(self, problem: str, *, is_authentic: bool = False) -> None:
        super().__init__(f"The bearer token {problem}", f"The token {problem}")
        self.is_authentic = is_authentic


@dataclass(frozen=True, slots=True)
class _Checked:
    caller: Caller
    issuer: _Issuer
    keys: SigningKeys
    valid_until: float


class OidcTokens:
    def __init__(self, issuers: Sequence[IssuerSettings], clock: Callable[[], float] = time.time) -> None:
        self._issuers = {settings.issuer: _Issuer(settings) for settings in issuers}
        self._clock = clock
        self._checked: OrderedDict[bytes, _Checked] = OrderedDict()

    async def caller_of(self, token: str) -> Caller:
        """Raises RefusedToken, and Unavailable if the token cannot be checked now."""
        digest = sha256(token.encode()).digest()
        checked = self._checked.get(digest)
        if checked is not None:
            if checked.issuer.keys.current() is checked.keys and self._clock() < checked.valid_until:
                return checked.caller
            del self._checked[digest]
        checked = await self._check(token)
        self._checked[digest] = checked
        if len(self._checked) > MAX_REMEMBERED:
            self._checked.popitem(last=False)
        return checked.caller

    async def _check(self, token: str) -> _Checked:
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise RefusedToken(f"has more than {MAX_TOKEN_CHARACTERS:,} characters")
        header, claims = _unverified(token)
        named = claims.get("iss")
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            raise RefusedToken("is of an issuer that this server does not accept")
        key_id = header.get("kid")
        if key_id is not None and not isinstance(key_id, str):
            raise RefusedToken("is malformed")
        keys, key = await issuer.keys.find(key_id)
        if key is None:
            raise RefusedToken("is not signed with a key that its issuer publishes")
        verified = issuer.verify(token, key, str(header.get("typ", "JWT")))
        valid_until = float(verified["exp"]) + LEEWAY_SECONDS
        return _Checked(issuer.caller(verified, valid_until), issuer, keys, valid_until)


class _Issuer:
    def __init__(self, settings: IssuerSettings) -> None:
        self._settings = settings
        self.keys = IssuerKeys(settings)

    def verify(self, token: str, key: SigningKey, token_type: str) -> Mapping[str, Any]:
        try:
            claims = jwt.decode(
                token,
                key.public,
                algorithms=sorted(key.algorithms & set(self._settings.algorithms)),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["iss", "aud", "exp"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            problem = next((text for kind, text in PROBLEMS if isinstance(error, kind)), "is malformed")
            raise RefusedToken(problem, is_authentic=isinstance(error, AUTHENTIC)) from error
        if not self._is_access_token(token_type.lower().removeprefix("application/"), claims):
            raise RefusedToken("is not an access token", is_authentic=True)
        return claims

    def _is_access_token(self, token_type: str, claims: Mapping[str, Any]) -> bool:
        required = self._settings.token_type
        is_type = token_type in TOKEN_TYPES if required is None else token_type == required.lower()
        is_other = _lower(claims.get("typ")) in OTHER_TYPES or bool(ID_TOKEN_CLAIMS & claims.keys())
        return is_type and not is_other

    def caller(self, claims: Mapping[str, Any], valid_until: float) -> Caller:
        subject = _claim(claims, self._settings.principal_claim)
        is_usable = isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT_CHARACTERS
        if not isinstance(subject, str) or not is_usable or not subject.isprintable():
            raise RefusedToken(f"has no usable claim {self._settings.principal_claim}", is_authentic=True)
        expires_at = datetime.fromtimestamp(min(valid_until, LATEST), UTC)
        return Caller(f"oidc:{self._settings.name}:{subject}", self._roles(claims), expires_at=expires_at)

    def _roles(self, claims: Mapping[str, Any]) -> frozenset[str]:
        if self._settings.roles_claim is None:
            return frozenset()
        value = _claim(claims, self._settings.roles_claim)
        values = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        named = [self._settings.role_of(role) for role in values[:MAX_ROLES] if isinstance(role, str)]
        return frozenset(role for role in named if role is not None)


def _unverified(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The header and the claims of a token before anything about it is known to be true."""
    encoded_header, _, rest = token.partition(".")
    encoded_claims, _, signature = rest.partition(".")
    if len(encoded_header) > MAX_HEADER_CHARACTERS or "." in signature:
        raise RefusedToken("is malformed")
    try:
        header, claims = _decoded(encoded_header), _decoded(encoded_claims)
    except ValueError as error:
        raise RefusedToken("is malformed") from error
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise RefusedToken("is malformed")
    # The library reads the header again with a parser whose depth is not bounded.
    if "crit" in header or any(map(_is_nested, header.values())):
        raise RefusedToken("has a header that is not accepted")
    return header, claims


def _decoded(encoded: str) -> Any:
    return orjson.loads(urlsafe_b64decode(encoded.encode("ascii") + b"=" * (-len(encoded) % 4)))


def _is_nested(value: object) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(entry, dict | list) for entry in inner)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or else by a path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _lower(value: object) -> str:
    return value.lower() if isinstance(value, str) else ""
