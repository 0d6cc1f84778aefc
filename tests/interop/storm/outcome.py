"""What a storm left behind, and what of it contradicts the answers that its clients got."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.interop.storm.clients import Tables
from tests.interop.storm.deployment import KILL, STOP, Fault
from tests.interop.storm.journal import Journal, StormTable, digest_of
from tests.interop.storm.plan import Kind, Plan
from tests.linearizability import Operation, Put, Result, find_violations

# A request may have been sent just before a fault, and a restarted server has to warm up.
FAULT_MARGIN_SECONDS: Final = 2.0
COMMITS: Final = ("/version/create", "/version/batch-create", "/batch-commit")


@dataclass(frozen=True)
class StoredTable:
    """A table after the storm: what the catalog lists, what storage holds, and the content of both."""

    listed: Sequence[int]
    manifests: Sequence[int]
    # Of the manifests that the catalog names, by version; None for a version that it does not know.
    digests: Mapping[int, str | None]
    rows: Sequence[int]


@dataclass(frozen=True)
class Outcome:
    deployment: str
    plan: Plan
    seconds: float
    journal: Journal
    faults: Sequence[Fault]
    tables: Tables
    stored: Mapping[str, StoredTable]
    log: Path
    # From the clock of the journal to the clock of the servers' log.
    clock_offset: float

    @property
    def versions(self) -> int:
        """How many there were when the clients stopped; some are cleaned up."""
        return self.tables.versions

    @cached_property
    def lost_commits(self) -> list[str]:
        """Acknowledged manifests that cannot be read back: their version has other content or none."""
        return [
            f"{name} {version}: {self._writer(put.value)} was told that {put.value} is committed,"
            f" but it holds {self._content(name, version)}"
            for (name, version), put in self.journal.puts()
            if put.result is Result.DONE and self._content(name, version) != put.value
        ]

    @cached_property
    def versions_with_several_winners(self) -> list[str]:
        winners = Counter(register for register, put in self.journal.puts() if put.result is Result.DONE)
        return [f"{name} {version}: {count}" for (name, version), count in winners.items() if count > 1]

    @cached_property
    def refused_commits_that_landed(self) -> list[str]:
        return [
            f"{name} {version}: {put.value}"
            for (name, version), put in self.journal.puts()
            if put.result is Result.REFUSED and self._content(name, version) == put.value
        ]

    @cached_property
    def wrong_rows(self) -> list[str]:
        """Rows that are not there as often as their writers were told."""
        counts = {name: Counter(stored.rows) for name, stored in self.stored.items()}
        allowed = {Result.DONE: (1,), Result.REFUSED: (0,), Result.UNKNOWN: (0, 1)}
        return [
            f"{write.table}: row {write.row} of {write.how}, {write.result.value},"
            f" is there {counts[write.table][write.row]} times"
            for write in self.journal.rows
            if counts[write.table][write.row] not in allowed[write.result]
        ]

    @cached_property
    def lost_rows(self) -> int:
        return sum("done, is there 0 times" in wrong for wrong in self.wrong_rows)

    @cached_property
    def holes(self) -> list[str]:
        """Versions up to the latest that the catalog does not list or that storage does not hold."""
        return [hole for table in self.tables for hole in self._holes(table)]

    @cached_property
    def torn_batches(self) -> list[str]:
        allowed = {
            Result.DONE: lambda landed: all(landed),
            Result.REFUSED: lambda landed: not any(landed),
            Result.UNKNOWN: lambda landed: all(landed) or not any(landed),
        }
        found = []
        for batch in self.journal.batches:
            landed = [self._content(*register) == digest for register, digest in batch.entries]
            if not allowed[batch.result](landed):
                versions = [register for register, _ in batch.entries]
                found.append(f"{batch.result.value} batch of {versions}: landed {landed}")
        return found

    @cached_property
    def unexpected_answers(self) -> list[str]:
        """By the servers' own log, which knows the requests of pylance, too; with how often each came."""
        found: Counter[str] = Counter()
        for event in self._requests():
            route, status = event["route"], event["status"]
            at = datetime.fromisoformat(event["timestamp"]).timestamp() - self.clock_offset
            if status in (503, 520) and self._is_excused(at - event["duration_ms"] / 1000, at):
                continue
            if status >= 500 or (route.endswith(COMMITS) and status not in (200, 409)):
                found[f"{route} answered {status}"] += 1
        return [f"{what} ({count} times)" for what, count in found.items()]

    @cached_property
    def unexcused_incidents(self) -> list[str]:
        """Failures that no killed or stopped server explains."""
        return [
            str(incident)
            for incident in self.journal.incidents
            if not self._is_excused(incident.invoked, incident.returned)
        ]

    @cached_property
    def deadlocks(self) -> list[str]:
        """No fault excuses them: the servers choose the order in which they lock."""
        return [str(incident) for incident in self.journal.incidents if "deadlock" in incident.detail]

    @cached_property
    def violations(self) -> list[str]:
        """Versions whose history no sequential order explains."""
        first = {(table.name, 1): digest_of(table.template) for table in self.tables}
        histories = self.journal.histories
        return [
            f"{name} {version}: {_told(histories[name, version])}"
            for name, version in find_violations(histories, first)
        ]

    def __str__(self) -> str:
        kinds = Counter(fault.kind for fault in self.faults)
        count = self.journal.count
        operations = sum(self.journal.done[kind.name] for kind in Kind)
        return (
            f"{self.deployment}: {self.versions} versions, {operations} operations,"
            f" {count(Result.DONE)} acknowledged, {count(Result.REFUSED)} conflicts,"
            f" {count(Result.UNKNOWN)} unknown, {kinds[KILL]} kills, {kinds[STOP]} stops,"
            f" {len(self.lost_commits) + self.lost_rows} lost, {len(self.holes)} tables with holes,"
            f" {len(self.torn_batches)} torn batches, {len(self.violations)} violations,"
            f" {self.seconds:.1f} s, seed {self.plan.seed}"
        )

    def _holes(self, table: StormTable) -> Iterator[str]:
        stored = self.stored[table.name]
        latest = max([*stored.listed, *stored.manifests], default=0)
        # After a clean-up the numbers have gaps, but the catalog and storage have the same ones.
        wanted = stored.manifests if table in self.tables.cleaned else range(1, latest + 1)
        for what, numbers in (("the catalog", stored.listed), ("storage", stored.manifests)):
            if list(numbers) != list(wanted):
                odd = sorted(set(wanted) ^ set(numbers))[:10] or "repeated or out of order"
                yield f"{table.name}: {what} differs from 1 to {latest} in {odd}"

    def _content(self, name: str, version: int) -> str | None:
        return self.stored[name].digests.get(version)

    def _writer(self, digest: str) -> str:
        return "a writer by location" if digest in self.journal.located else "a client of the catalog"

    def _is_excused(self, invoked: float, returned: float) -> bool:
        return any(
            invoked <= fault.ended + FAULT_MARGIN_SECONDS and returned >= fault.started - FAULT_MARGIN_SECONDS
            for fault in self.faults
        )

    def _requests(self) -> Iterator[dict[str, Any]]:
        with self.log.open() as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    # A killed server leaves half a line.
                    continue
                if isinstance(event, dict) and "route" in event and "status" in event:
                    yield event


def _told(history: Sequence[Operation]) -> str:
    """The operations in the order in which they were sent, with seconds since the first."""
    ordered = sorted(history, key=lambda operation: operation.invoked)
    start = ordered[0].invoked
    lines = []
    for operation in ordered:
        what = f"put {operation.result.value}" if isinstance(operation, Put) else "get"
        times = f"{operation.invoked - start:.3f}-{operation.returned - start:.3f}"
        lines.append(f"{times} {what} {operation.value}")
    return "; ".join(lines)
