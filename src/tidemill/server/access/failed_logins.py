"""Limits how often secrets can be guessed, by address and by client.

Every address may fail a number of times per minute; then it gets 429 without a look at what it sends. When
many addresses together fail too often for one client, each address that has failed for it before has to
wait. So guessing is slow however many addresses take part, and nobody can lock a client out by guessing: an
address that has not failed is always heard.

Counters are token buckets in tables of bounded size, which forget the address that failed longest ago. Every
server process has its own.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

from tidemill.errors import Throttled

MAX_COUNTERS: Final = 10_000
SECONDS: Final = 60.0


class TokenBuckets:
    """Failures, or whatever is limited, that each key has left. They come back evenly over a minute."""

    def __init__(self, per_minute: float, clock: Callable[[], float]) -> None:
        self._capacity = per_minute
        self._clock = clock
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def left(self, key: Hashable) -> float:
        left, at = self._left.get(key, (self._capacity, self._clock()))
        return min(self._capacity, left + (self._clock() - at) * self._capacity / SECONDS)

    def take(self, key: Hashable) -> None:
        self._left[key] = (max(0.0, self.left(key) - 1), self._clock())
        self._left.move_to_end(key)
        if len(self._left) > MAX_COUNTERS:
            self._left.popitem(last=False)

    def wait(self, key: Hashable) -> float:
        """Seconds until the key may fail once more."""
        return max(0.0, (1 - self.left(key)) * SECONDS / self._capacity)


class FailedLogins:
    def __init__(
        self, per_address: float, per_client: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._addresses = TokenBuckets(per_address, clock)
        self._clients = TokenBuckets(per_client, clock)
        self._pairs = TokenBuckets(1, clock)

    def check(self, address: str, client_id: str | None = None) -> None:
        """Raises Throttled if the address has failed too often, in all or for this client."""
        wait = self._addresses.wait(address)
        if client_id is not None and self._clients.wait(client_id):
            wait = max(wait, self._pairs.wait((client_id, address)))
        if wait:
            raise Throttled(
                "Too many failed logins; check the credential and try again later", math.ceil(wait)
            )

    def add(self, address: str, client_id: str | None = None) -> None:
        self._addresses.take(address)
        if client_id is not None:
            self._clients.take(client_id)
            self._pairs.take((client_id, address))
