"""A client of the storm: its connection, its chance, and the writers and readers of manifests.

Clients that commit manifests by hand aim at the version after the newest one that any client has seen, so
that they compete all the time. No two manifests have the same bytes, so the content of a version identifies
its winner.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from lance.namespace import RestNamespace

from tests.interop.storm.deployment import Deployment
from tests.interop.storm.journal import Batch, Incident, Journal, StormTable, digest_of
from tests.linearizability import Get, Put, Result
from tests.protocol.wire import commit_body, final_name, renumbered

NAMESPACE: Final = "storm"
# Shorter than the longest stop of a server: then the request is on its way, and its client knows nothing.
TIMEOUT_SECONDS: Final = 2.5
NO_SERVER_SECONDS: Final = 60
REPLAYS: Final = 3
READS: Final = 10
ACTIVE_TABLES: Final = 3
VERSIONS_OF_A_TABLE: Final = 1000


@dataclass(frozen=True)
class Tables:
    """By what happens to them, so that each can be judged exactly."""

    manifests: Sequence[StormTable]
    batches: Sequence[StormTable]
    rows: Sequence[StormTable]
    cleaned: Sequence[StormTable]

    def __iter__(self) -> Iterator[StormTable]:
        return iter([*self.manifests, *self.batches, *self.rows, *self.cleaned])

    def active(self) -> Sequence[StormTable]:
        """A few at a time, so that clients compete; none grows so large that listing it dominates."""
        unfinished = [table for table in self.manifests if table.known < VERSIONS_OF_A_TABLE]
        return unfinished[:ACTIVE_TABLES] or self.manifests[-ACTIVE_TABLES:]

    @property
    def versions(self) -> int:
        return sum(table.known for table in self)


@dataclass
class Client:
    """One of those that work at the same time."""

    number: int
    chance: random.Random
    deployment: Deployment
    tables: Tables
    journal: Journal
    scratch: Path
    numbers: Iterator[int]
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=TIMEOUT_SECONDS))
    _rests: dict[str, RestNamespace] = field(default_factory=dict)

    def url(self) -> str:
        """Any server; waits while all of them are being restarted."""
        give_up_at = time.monotonic() + NO_SERVER_SECONDS
        while not (urls := self.deployment.urls()):
            assert time.monotonic() < give_up_at, "no server came back"
            time.sleep(0.02)
        return self.chance.choice(urls)

    def rest(self) -> RestNamespace:
        url = self.url()
        return self._rests.setdefault(url, RestNamespace(uri=url))

    def ask(self, table: StormTable, action: str, body: Any = None, **options: Any) -> httpx.Response | None:
        path = f"/v1/table/{NAMESPACE}${table.name}/{action}"
        return self.post(path, body, route=action.partition("?")[0], **options)

    def post(self, path: str, body: Any = None, *, route: str, **options: Any) -> httpx.Response | None:
        """The answer; None when there was none, and nobody knows what has happened."""
        content = {"json": body} if body is not None else {}
        invoked = time.monotonic()
        try:
            answer = self.http.post(f"{self.url()}{path}", **content, **options)
        except httpx.TimeoutException:
            self.journal.did("time out")
            return None
        except httpx.TransportError as error:
            self._incident(f"{route} failed", invoked, repr(error))
            return None
        self.journal.answered(route, answer.status_code)
        if answer.status_code >= 500:
            self._incident(f"{route} answered {answer.status_code}", invoked, answer.text[:300])
        return answer

    def expect(self, route: str, answer: httpx.Response | None, *statuses: int) -> bool:
        """Whether the first status came; complains about any other that is not named."""
        if answer is None or answer.status_code >= 500:
            return False
        if answer.status_code not in statuses:
            self.journal.contradictions.append(f"{route} answered {answer.status_code}: {answer.text[:300]}")
        return answer.status_code == statuses[0]

    def _incident(self, what: str, invoked: float, detail: str) -> None:
        self.journal.incidents.append(Incident(what, invoked, time.monotonic(), detail))


def commit_manifest(client: Client) -> None:
    """Stages a manifest and asks for the next version, as pylance does."""
    table = client.chance.choice(client.tables.active())
    _commit_manifest(client, table)


def _commit_manifest(client: Client, table: StormTable) -> None:
    version = table.known + 1
    staged, digest, body = _stage(table, version)
    invoked = time.monotonic()
    result = _settled(client, "version/create", lambda: client.ask(table, "version/create", body))
    client.journal.record(table, version, Put(invoked, time.monotonic(), digest, result))
    if result is not Result.UNKNOWN:
        table.saw(version)
    if result is Result.REFUSED:
        staged.unlink(missing_ok=True)


def _stage(table: StormTable, version: int) -> tuple[Path, str, dict[str, Any]]:
    content = renumbered(table.template, version)
    staged = table.versions / f"{final_name(version)}-{uuid4()}"
    staged.write_bytes(content)
    return staged, digest_of(content), commit_body(version, staged, manifest_size=len(content))


def _settled(client: Client, route: str, ask: Callable[[], httpx.Response | None]) -> Result:
    """Asks; half of the clients that get no answer send the very same request again.

    It is one operation all the same: whichever of the requests is executed, the result is the same.
    """
    for _ in range(REPLAYS):
        result = _result(client, route, ask())
        if result is not Result.UNKNOWN or client.chance.random() < 0.5:
            return result
    return Result.UNKNOWN


def _result(client: Client, route: str, answer: httpx.Response | None) -> Result:
    if answer is None or answer.status_code >= 500:
        return Result.UNKNOWN
    if client.expect(route, answer, 200, 409):
        return Result.DONE
    # Any other answer is a fault of its own; nothing follows from it.
    return Result.REFUSED if answer.status_code == 409 else Result.UNKNOWN


def put_manifest(client: Client) -> None:
    """Puts a manifest at its final name if there is none, as pylance does without a catalog."""
    table = client.chance.choice(client.tables.active())
    version = _latest_in_storage(table) + 1
    content = renumbered(table.template, version)
    prepared = client.scratch / str(uuid4())
    prepared.write_bytes(content)
    invoked = time.monotonic()
    try:
        os.link(prepared, table.final(version))
        result = Result.DONE
    except FileExistsError:
        result = Result.REFUSED
    digest = digest_of(content)
    client.journal.record(table, version, Put(invoked, time.monotonic(), digest, result))
    client.journal.located.add(digest)
    table.saw(version)
    prepared.unlink()


def _latest_in_storage(table: StormTable) -> int:
    """What listing the folder would tell: a version that is only in the catalog's database is not in it."""
    version = table.known + 1
    while not table.final(version).exists():
        version -= 1
    return version


def read_manifest(client: Client) -> None:
    """Describes a version near the newest, or the newest itself, and reads the manifest that is named."""
    table = client.chance.choice([*client.tables.active(), *client.tables.batches])
    if client.chance.random() < 0.5:
        _read_version(client, table, max(1, table.known + client.chance.randint(-2, 1)))
    else:
        read_latest(client, table)


def _read_version(client: Client, table: StormTable, version: int) -> None:
    invoked = time.monotonic()
    for _ in range(READS):
        answer = client.ask(table, "version/describe", {"version": version})
        if answer is None or answer.status_code >= 500:
            return
        if not client.expect("version/describe", answer, 200, 404):
            client.journal.record(table, version, Get(invoked, time.monotonic(), None))
            return
        digest = _read(answer.json()["version"])
        if digest is not None:
            client.journal.record(table, version, Get(invoked, time.monotonic(), digest))
            table.saw(version)
            return
    client.journal.contradictions.append(f"{table.name} {version}: its manifest was never there to read")


def read_latest(client: Client, table: StormTable) -> None:
    """The newest version L: at one moment L was there, and L + 1 was not."""
    invoked = time.monotonic()
    if client.chance.random() < 0.5:
        answer = client.ask(table, "version/describe", {})
        is_there = client.expect("version/describe", answer, 200)
    else:
        answer = client.ask(table, "version/list?limit=1&descending=true")
        is_there = client.expect("version/list", answer, 200)
    if not is_there or answer is None:
        return
    body = answer.json()
    latest: int = (body["version"] if "version" in body else body["versions"][0])["version"]
    client.journal.record(table, latest + 1, Get(invoked, time.monotonic(), None))
    table.saw(latest)


def _read(described: Mapping[str, Any]) -> str | None:
    try:
        return digest_of(Path(f"/{described['manifest_path']}").read_bytes())
    except FileNotFoundError:
        # It was at its staged name, and somebody finished the commit since: the next answer says where it is.
        return None


def commit_batch(client: Client) -> None:
    """The next versions of two or three tables as one, named in any order; now and then of one alone."""
    if client.chance.random() < 0.2:
        return _commit_manifest(client, client.chance.choice(client.tables.batches))
    tables = client.chance.sample(client.tables.batches, client.chance.choice([2, 3]))
    staged = [(table, table.known + 1) for table in tables]
    parts = [(table, version, *_stage(table, version)) for table, version in staged]
    entries = [{"id": [NAMESPACE, table.name], **body} for table, _, _, _, body in parts]
    if client.chance.random() < 0.5:
        path, asked = "version/batch-create", {"entries": entries}
    else:
        path, asked = "batch-commit", {"operations": [{"create_table_version": entry} for entry in entries]}
    invoked = time.monotonic()
    result = _settled(client, path, lambda: client.post(f"/v1/table/{path}", asked, route=path))
    returned = time.monotonic()
    digests = tuple(((table.name, version), digest) for table, version, _, digest, _ in parts)
    client.journal.batches.append(Batch(result, digests))
    for table, version, path_of_manifest, digest, _ in parts:
        if result is Result.REFUSED:
            # One of the versions is taken; which one, only a look can tell.
            path_of_manifest.unlink(missing_ok=True)
            read_latest(client, table)
            continue
        client.journal.record(table, version, Put(invoked, returned, digest, result))
        if result is Result.DONE:
            table.saw(version)


def levels_of(table: StormTable) -> list[str]:
    return [NAMESPACE, table.name]
