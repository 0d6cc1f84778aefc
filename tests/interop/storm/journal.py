"""What the clients of a storm sent and what they were told: everything that is judged afterwards."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from tests.linearizability import Operation, Put, Result
from tests.protocol.wire import final_name

Register: TypeAlias = tuple[str, int]
"""A version of a table, which one commit may fill once."""


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Batch:
    """Versions that are committed together or not at all, with the digests of their manifests."""

    result: Result
    entries: tuple[tuple[Register, str], ...]


@dataclass(frozen=True, slots=True)
class RowWrite:
    """One row with an id of its own, on the way into a table."""

    table: str
    row: int
    how: str
    result: Result


@dataclass(frozen=True, slots=True)
class Incident:
    """An answer or a failure that needs an excuse, such as a server killed at that moment."""

    what: str
    invoked: float
    returned: float
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


@dataclass
class StormTable:
    """A table of the storm and the newest version that anyone has seen of it."""

    name: str
    directory: Path
    template: bytes
    # Rows acknowledged so far.
    acknowledged: int = 0
    known: int = 1
    _lock: Lock = field(default_factory=Lock)

    @property
    def versions(self) -> Path:
        return self.directory / "_versions"

    def final(self, version: int) -> Path:
        return self.versions / final_name(version)

    def saw(self, version: int) -> None:
        with self._lock:
            self.known = max(self.known, version)

    def acknowledge(self) -> None:
        with self._lock:
            self.acknowledged += 1


@dataclass
class Journal:
    """Shared by all clients."""

    histories: dict[Register, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    located: set[str] = field(default_factory=set)
    batches: list[Batch] = field(default_factory=list)
    rows: list[RowWrite] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    # Things a reader saw that contradict what had been acknowledged before it asked.
    contradictions: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    _lock: Lock = field(default_factory=Lock)

    def record(self, table: StormTable, version: int, operation: Operation) -> None:
        with self._lock:
            self.histories[table.name, version].append(operation)

    def answered(self, route: str, status: int) -> None:
        with self._lock:
            self.answers[route, status] += 1

    def did(self, what: str) -> None:
        with self._lock:
            self.done[what] += 1

    def puts(self) -> Sequence[tuple[Register, Put]]:
        return [
            (register, operation)
            for register, operations in self.histories.items()
            for operation in operations
            if isinstance(operation, Put)
        ]

    def count(self, result: Result) -> int:
        commits = sum(put.result is result for _, put in self.puts())
        rows = sum(write.result is result for write in self.rows)
        return commits + rows + sum(batch.result is result for batch in self.batches)
