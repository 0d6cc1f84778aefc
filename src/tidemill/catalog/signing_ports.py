"""Requests to an object store that clients have signed here, because they have no credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SignRequest:
    """A request as a client will send it; `body` is there where it says which objects are meant."""

    region: str
    method: str
    uri: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = None


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The request to send instead, with all its headers; no part of it is to be logged."""

    uri: str
    headers: Mapping[str, Sequence[str]]


class RequestSigner(Protocol):
    def sign(self, location: str, request: SignRequest) -> SignedRequest:
        """Raises InvalidInput, or OutsideTable for a request that reaches beyond the location."""
