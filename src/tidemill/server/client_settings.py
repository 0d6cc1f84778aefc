"""Settings of one client: what it proves itself with and what it may do where."""

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

# What goes unchanged through a header, in front of a colon and behind it.
CLIENT_ID: Final = re.compile(r"[!-9;-~]{1,128}")
SECRET: Final = re.compile(r"[!-~]+")
DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")


def _digest(given: str) -> str:
    if not DIGEST.fullmatch(given):
        raise PydanticCustomError("digest", "has to be the SHA-256 of the secret: 64 hexadecimal digits")
    return given.lower()


def _everything() -> dict[str, tuple[Permission, ...]]:
    return {"": (Permission.ADMIN,)}


class ClientSettings(BaseModel):
    """A `secret` is accepted in place of its digest, and forgotten."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    secret_sha256: Annotated[str, AfterValidator(_digest)] = Field(repr=False)
    grants: dict[str, tuple[Permission, ...]] = Field(default_factory=_everything)

    @model_validator(mode="before")
    @classmethod
    def _hash_secret(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if ("secret" in given) == ("secret_sha256" in given):
            raise PydanticCustomError("secret", "needs either secret or secret_sha256")
        if "secret" not in given:
            return given
        secret = given["secret"]
        if not isinstance(secret, str) or not SECRET.fullmatch(secret):
            raise PydanticCustomError("secret", "secret has to be printable ASCII characters without spaces")
        others = {key: value for key, value in given.items() if key != "secret"}
        return {**others, "secret_sha256": sha256(secret.encode()).hexdigest()}

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.secret_sha256)

    def permissions(self) -> dict[NamespacePath, frozenset[Permission]]:
        """Raises InvalidInput when a grant is on something that cannot be a namespace."""
        return {_namespace(key): frozenset(granted) for key, granted in self.grants.items()}


def check_clients(clients: Mapping[str, ClientSettings]) -> None:
    for client_id, client in clients.items():
        if not CLIENT_ID.fullmatch(client_id):
            problem = "a client's id has to be 1 to 128 printable ASCII characters without spaces and colons"
            raise InvalidInput("clients", f"{client_id!r:.60}: {problem}")
        if client_id in OWN_PRINCIPALS:
            raise InvalidInput("clients", f"{client_id!r} is what the server calls itself; use another id")
        try:
            client.permissions()
        except InvalidInput as error:
            raise InvalidInput(f"clients.{client_id}.{error.field}", f"{error}") from error


def _namespace(dotted: str) -> NamespacePath:
    return namespace_path(tuple(dotted.split(".")) if dotted else (), f"grants.{dotted!r:.200}")
