"""Receipts: stored responses to requests with an idempotency key, so that a retry has no further effect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """`outcome` is the response, encoded by its protocol. A key is valid only for the same request.

    An outcome never contains credentials.
    """

    key: str
    principal: str
    operation: str
    resource: str
    body_digest: str
    outcome: bytes

    def is_for(self, other: Receipt) -> bool:
        """Whether both belong to the same request."""
        request_key = (self.key, self.principal, self.operation, self.resource, self.body_digest)
        return request_key == (other.key, other.principal, other.operation, other.resource, other.body_digest)
