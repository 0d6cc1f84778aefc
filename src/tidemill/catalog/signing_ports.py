"""Remote signing: the server signs object store requests for clients that have no credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SignRequest:
    """A request that a client will send. `body` is present if it names the objects of the request."""

    region: str
    method: str
    uri: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = None


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The signed request with all its headers. Never log any part of it."""

    uri: str
    headers: Mapping[str, Sequence[str]]


class RequestSigner(Protocol):
    def sign(self, location: str, request: SignRequest) -> SignedRequest:
        """Raises InvalidInput, or OutsideTable for a request outside the location."""
