"""Receipts: what became of a request that carried a key, so that it is carried out once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """`outcome` is the answer in the words of the protocol that gave it; the key is bound to the rest.

    Credentials are never part of an outcome.
    """

    key: str
    principal: str
    operation: str
    resource: str
    body_digest: str
    outcome: bytes

    def is_for(self, other: Receipt) -> bool:
        """Whether both are of the same request."""
        mine = (self.key, self.principal, self.operation, self.resource, self.body_digest)
        return mine == (other.key, other.principal, other.operation, other.resource, other.body_digest)
