"""Settings of a client: its secret and its grants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from tidemill.catalog.model.callers import OWN_PRINCIPALS, Permission
from tidemill.catalog.model.identifiers import NamespacePath, namespace_path
from tidemill.errors import InvalidInput

# Characters that pass unchanged through a header, before and after a colon.
CLIENT_ID: Final = re.compile(r"[!-9;-~]{1,128}")
SECRET: Final = re.compile(r"[!-~]+")
DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")


def _digest(raw: str) -> str:
    if not DIGEST.fullmatch(raw):
        raise PydanticCustomError("digest", "must be the SHA-256 of the secret: 64 hexadecimal digits")
    return raw.lower()


def _everything() -> dict[str, tuple[Permission, ...]]:
    return {"": (Permission.ADMIN,)}


class ClientSettings(BaseModel):
    """Accepts `secret` instead of its digest, and keeps only the digest."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    secret_sha256: Annotated[str, AfterValidator(_digest)] = Field(repr=False)
    grants: dict[str, tuple[Permission, ...]] = Field(default_factory=_everything)

    @model_validator(mode="before")
    @classmethod
    def _hash_secret(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        if ("secret" in raw) == ("secret_sha256" in raw):
            raise PydanticCustomError("secret", "give either secret or secret_sha256")
        if "secret" not in raw:
            return raw
        secret = raw["secret"]
        if not isinstance(secret, str) or not SECRET.fullmatch(secret):
            raise PydanticCustomError(
                "secret", "secret must consist of printable ASCII characters without spaces"
            )
        others = {key: value for key, value in raw.items() if key != "secret"}
        return {**others, "secret_sha256": sha256(secret.encode()).hexdigest()}

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.secret_sha256)

    def permissions(self) -> dict[NamespacePath, frozenset[Permission]]:
        """Raises InvalidInput if a grant names an invalid namespace."""
        return {_namespace(key): frozenset(granted) for key, granted in self.grants.items()}


def check_clients(clients: Mapping[str, ClientSettings]) -> None:
    for client_id, client in clients.items():
        if not CLIENT_ID.fullmatch(client_id):
            problem = "a client id must be 1 to 128 printable ASCII characters without spaces or colons"
            raise InvalidInput("clients", f"{client_id!r:.60}: {problem}")
        if client_id in OWN_PRINCIPALS:
            raise InvalidInput("clients", f"{client_id!r} is reserved for the server itself; use another id")
        try:
            client.permissions()
        except InvalidInput as error:
            raise InvalidInput(f"clients.{client_id}.{error.field}", f"{error}") from error


def _namespace(dotted: str) -> NamespacePath:
    return namespace_path(tuple(dotted.split(".")) if dotted else (), f"grants.{dotted!r:.200}")
