"""Creates the tree of namespaces, tables and views for the Iceberg benchmark, over plain HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from benchmarks.wire import NO_LIMIT, Answer, drive, request_bytes

# The shape that the benchmarks of Apache Polaris use.
WIDTH: Final = 2
DEPTH: Final = 4
TABLES_PER_LEAF: Final = 5
VIEWS_PER_LEAF: Final = 3
COLUMNS: Final = 10
# About 32 KB of metadata per table and 6 KB per view.
SNAPSHOTS: Final = 90
VERSIONS: Final = 10
SQL_BYTES: Final = 330
# Otherwise commits would grow the metadata during the measurement.
TABLE_PROPERTIES: Final = {
    "write.metadata.previous-versions-max": "10",
    **{f"property-{number}": f"value-{number}" for number in range(9)},
}
SEPARATOR: Final = "%1F"
Levels = tuple[str, ...]


@dataclass
class Peer:
    """A server that holds the tree."""

    title: str
    port: int
    base: str
    folder: Path
    pid: int
    connections: int
    separator: str = SEPARATOR
    uuids: dict[str, str] = field(default_factory=dict)

    def path(self, *parts: str) -> str:
        return "/".join((self.base, "v1", *parts)).replace(SEPARATOR, self.separator)

    def read_config(self) -> None:
        """Reads the namespace separator; servers may choose another one, as Iceberg's own does."""
        overrides = json.loads(self.ask(request_bytes("GET", self.path("config"))).body)["overrides"]
        self.separator = overrides.get("namespace-separator", SEPARATOR)

    def ask(self, request: bytes) -> Answer:
        """Sends one request and returns its response."""
        answers: list[Answer] = []
        drive(self.port, [iter([request])], NO_LIMIT, lambda _, answer: answers.append(answer))
        return answers[0]

    def all(self, requests: Sequence[bytes], seen: Callable[[Answer], None] | None = None) -> None:
        lanes = [iter(requests[start :: self.connections]) for start in range(self.connections)]
        drive(self.port, lanes, NO_LIMIT, (lambda _, answer: seen(answer)) if seen else None)


def namespaces() -> list[Levels]:
    """All namespaces, parents first."""
    found: list[Levels] = [("NS_0",)]
    for levels in found:
        if len(levels) < DEPTH:
            number = 2 * int(levels[-1].removeprefix("NS_"))
            found.extend((*levels, f"NS_{number + child}") for child in range(1, WIDTH + 1))
    return found


def _in(levels: Levels) -> str:
    return f"namespaces/{SEPARATOR.join(levels)}"


def objects(kind: str, per_leaf: int) -> list[str]:
    """The paths of the tables or the views, below `v1/`."""
    leaves = [levels for levels in namespaces() if len(levels) == DEPTH]
    return [f"{_in(leaf)}/{kind}/{kind}_{number}" for leaf in leaves for number in range(per_leaf)]


TABLES: Final = objects("tables", TABLES_PER_LEAF)
VIEWS: Final = objects("views", VIEWS_PER_LEAF)


def fill(peer: Peer) -> None:
    """Creates the tree: every table with its snapshots, every view with its versions."""
    peer.read_config()
    for levels in namespaces():
        peer.ask(request_bytes("POST", peer.path("namespaces"), {"namespace": levels}))
    for made, body in ((TABLES, _new_table), (VIEWS, _new_view)):
        peer.all(
            [request_bytes("POST", peer.path(*_parent(path)), body(path)) for path in made],
            lambda answer: _remember(peer, answer),
        )
    peer.all([add_snapshots(peer, path) for path in TABLES])
    for number in range(1, VERSIONS):
        peer.all([replace_view(peer, path, number) for path in VIEWS])


def set_property(peer: Peer, path: str, number: int) -> bytes:
    update = {"action": "set-properties", "updates": {"step": str(number)}}
    requirement = {"type": "assert-table-uuid", "uuid": peer.uuids[path]}
    return request_bytes("POST", peer.path(path), {"requirements": [requirement], "updates": [update]})


def replace_view(peer: Peer, path: str, number: int) -> bytes:
    """A new definition of the view, as an engine sends it."""
    updates = [
        {"action": "add-view-version", "view-version": {**_version(path, number), "version-id": 1}},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    requirement = {"type": "assert-view-uuid", "uuid": peer.uuids[path]}
    return request_bytes("POST", peer.path(path), {"requirements": [requirement], "updates": updates})


def add_snapshots(peer: Peer, path: str) -> bytes:
    now = int(time.time() * 1000)
    snapshots = [_snapshot(path, number, now) for number in range(1, SNAPSHOTS + 1)]
    updates: list[dict[str, Any]] = [{"action": "add-snapshot", "snapshot": made} for made in snapshots]
    last = snapshots[-1]["snapshot-id"]
    updates.append({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": last})
    requirement = {"type": "assert-table-uuid", "uuid": peer.uuids[path]}
    return request_bytes("POST", peer.path(path), {"requirements": [requirement], "updates": updates})


def shares(paths: Sequence[str], connections: int) -> list[Sequence[str]]:
    """Assigns each path to one connection."""
    return [paths[start::connections] for start in range(connections)]


def round_robin(
    paths: Sequence[str], request: Callable[[str, int], bytes], numbers: count[int]
) -> Iterator[bytes]:
    while True:
        for path in paths:
            yield request(path, next(numbers))


def _remember(peer: Peer, answer: Answer) -> None:
    metadata = json.loads(answer.body)["metadata"]
    uuid = metadata.get("table-uuid") or metadata["view-uuid"]
    peer.uuids[metadata["properties"]["path"]] = uuid


def _parent(path: str) -> list[str]:
    return path.split("/")[:-1]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _schema() -> dict[str, Any]:
    fields = [
        {"id": number, "name": f"column_{number}", "required": False, "type": "string"}
        for number in range(1, COLUMNS + 1)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _new_table(path: str) -> dict[str, Any]:
    return {"name": _name(path), "schema": _schema(), "properties": {**TABLE_PROPERTIES, "path": path}}


def _new_view(path: str) -> dict[str, Any]:
    version = {**_version(path, 0), "version-id": 1, "schema-id": 0}
    return {"name": _name(path), "schema": _schema(), "view-version": version, "properties": {"path": path}}


def _version(path: str, number: int) -> dict[str, Any]:
    sql = f"SELECT * FROM {_name(path)} WHERE step = {number}".ljust(SQL_BYTES, "-")
    return {
        "timestamp-ms": int(time.time() * 1000),
        "schema-id": 0,
        "summary": {"engine-name": "benchmark"},
        "default-namespace": ["NS_0"],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }


def _snapshot(path: str, number: int, now: int) -> dict[str, Any]:
    parent = {"parent-snapshot-id": number} if number > 1 else {}
    return {
        **parent,
        "snapshot-id": number + 1,
        "sequence-number": number,
        "timestamp-ms": now + number,
        "manifest-list": f"/data/warehouse/{_name(path)}/metadata/snap-{number}-1-0b8e1e2c.avro",
        "schema-id": 0,
        "summary": {
            "operation": "append",
            "added-data-files": "1",
            "added-records": "1000",
            "added-files-size": "65536",
            "total-records": str(1000 * number),
            "total-data-files": str(number),
        },
    }
