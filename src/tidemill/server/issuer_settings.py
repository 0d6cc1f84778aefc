"""Settings of the OpenID issuers whose tokens the server accepts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tidemill.catalog.model.callers import Permission
from tidemill.errors import InvalidInput
from tidemill.protocols.http.browsers import LOOPBACK

ISSUER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
ROLE: Final = re.compile(r"[!-~]{1,128}")
# Asymmetric ones alone: with an HMAC, whoever knows the public key could sign.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def is_secure(url: str) -> bool:
    """Whether nobody between this machine and that address can change what is read from there."""
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme == "http" and parts.hostname in LOOPBACK
        return bool(parts.hostname) and (parts.scheme == "https" or is_plain)
    except ValueError:
        return False


def _issuer_url(raw: str) -> str:
    if not is_secure(raw):
        raise PydanticCustomError("issuer", "must be an https:// address; http:// only for loopback")
    if any(character in raw for character in "?#@"):
        raise PydanticCustomError("issuer", "must have no user, query or fragment")
    return raw


def _name(raw: str) -> str:
    if not ISSUER_NAME.fullmatch(raw):
        raise PydanticCustomError("name", "must be 1 to 32 lower-case letters, digits, _ or -")
    return raw


def _list(raw: Any) -> Any:
    return [raw] if isinstance(raw, str) else raw


def _role(raw: str) -> str:
    if not ROLE.fullmatch(raw):
        raise PydanticCustomError("role", "must be 1 to 128 printable ASCII characters without spaces")
    return raw


Text = Annotated[str, Field(min_length=1)]
RoleName = Annotated[str, AfterValidator(_role)]


class IssuerSettings(BaseModel):
    """`name` is part of the principals of its users, so it must not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_name)]
    issuer: Annotated[str, AfterValidator(_issuer_url)]
    audience: Annotated[tuple[Text, ...], BeforeValidator(_list), Field(min_length=1)]
    principal_claim: Text = "sub"
    roles_claim: Text | None = None
    roles: dict[str, RoleName] | None = Field(
        default=None, description="Roles by value of the claim; others convey no role."
    )
    role_prefix: str | None = Field(default=None, description="Goes before values without `roles`.")
    grants: dict[RoleName, dict[str, tuple[Permission, ...]]] = Field(
        default_factory=dict, description="Permissions of roles by namespace, such as those of a first admin."
    )
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = get_args(Algorithm)
    token_type: str | None = Field(default=None, description="Required `typ`, for example at+jwt.")
    ca_file: Path | None = None

    def role_of(self, value: str) -> str | None:
        """The role for a value of the claim; None if it is not a possible name of a role."""
        if self.roles is not None:
            return self.roles.get(value)
        prefix = f"{self.name}:" if self.role_prefix is None else self.role_prefix
        role = f"{prefix}{value}"
        return role if ROLE.fullmatch(role) else None


def check_issuers(issuers: Sequence[IssuerSettings]) -> None:
    """Raises InvalidInput for two issuers that could be taken for each other, and for missing files."""
    seen: dict[tuple[str, str], int] = {}
    for index, issuer in enumerate(issuers):
        for field, value in (("name", issuer.name), ("issuer", issuer.issuer)):
            if seen.setdefault((field, value), index) != index:
                raise InvalidInput(f"oidc_issuers.{index}.{field}", f"{value!r:.200} is there twice")
        if issuer.roles is not None and issuer.role_prefix is not None:
            raise InvalidInput(f"oidc_issuers.{index}.role_prefix", "cannot be combined with roles")
        if issuer.ca_file is not None and not issuer.ca_file.is_file():
            raise InvalidInput(f"oidc_issuers.{index}.ca_file", f"{issuer.ca_file} is not a file")
