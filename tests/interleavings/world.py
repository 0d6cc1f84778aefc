"""A catalog with several servers over one database and one storage, and what clients do to a table in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import lance
import pyarrow as pa

from tests.interleavings.model import History, List, Outcome, Put, Read, State, check_linearizable
from tests.interleavings.scheduler import Action, Actor, Exploration, Run, explore
from tests.interleavings.steps import Stage, SteppedFiles, SteppedStore
from tests.protocol.wire import final_name, renumbered
from tidemill.catalog.errors import TableVersionAlreadyExists, TableVersionNotFound
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.namespaces import Namespace
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table, VersionEntry
from tidemill.catalog.operations.versions import Order, VersionOperations
from tidemill.errors import Unavailable
from tidemill.lance.manifests import check_staged
from tidemill.server.grants import AllowEverything
from tidemill.storage.warehouse import Warehouse
from tidemill.store.engine import SqlStore, open_store

NAMESPACE: Final = NamespacePath(("interleavings",))
SERVERS: Final = 3
FIRST: Final = "first"


class PutIfAbsent(Protocol):
    """How a writer that knows only the table's location commits: whether the object is now its own."""

    def __call__(self, key: str, data: bytes) -> bool: ...


class Server:
    """What one process has: connections, storage, and the operations on versions."""

    def __init__(self, url: str, files: Warehouse) -> None:
        self.stage = Stage()
        self.store: SqlStore = open_store(url)
        self.stepped_store: Any = SteppedStore(self.store, self.stage)
        self.files: Any = SteppedFiles(files, self.stage)
        self.versions = VersionOperations(self.stepped_store, AllowEverything(), self.files, check_staged)

    def close(self) -> None:
        self.store.close()


@dataclass
class Deployment:
    """Servers that are opened once and used by all runs; each run has a table of its own."""

    files: Warehouse
    put_if_absent: PutIfAbsent
    servers: Sequence[Server]
    manifest: bytes

    @classmethod
    @contextmanager
    def opened(
        cls, url: str, files: Warehouse, put_if_absent: PutIfAbsent, scratch: Path
    ) -> Iterator[Deployment]:
        with ExitStack() as stack:
            servers = []
            for _ in range(SERVERS):
                servers.append(Server(url, files))
                stack.callback(servers[-1].close)
            with servers[0].store.transaction() as tx:
                if tx.namespaces.find(NAMESPACE) is None:
                    tx.namespaces.add(Namespace(uuid4(), NAMESPACE))
            yield cls(files, put_if_absent, servers, _some_manifest(scratch))


def _some_manifest(scratch: Path) -> bytes:
    lance.write_dataset(pa.table({"id": [1]}), scratch / "some.lance", enable_stable_row_ids=True)
    return (scratch / "some.lance" / "_versions" / final_name(1)).read_bytes()


@dataclass
class World:
    """One table, its history, and the contents that can be met in it."""

    deployment: Deployment
    run: Run
    table: Table
    history: History = field(default_factory=History)
    labels: dict[bytes, str] = field(default_factory=dict)
    start: State = (FIRST,)
    aliases: dict[str, str] = field(default_factory=dict)

    @property
    def versions_key(self) -> str:
        return f"{self.deployment.files.key_of(self.table.location)}/_versions"

    def final_key(self, version: int) -> str:
        return f"{self.versions_key}/{final_name(version)}"

    def content(self, label: str, version: int) -> bytes:
        data = renumbered(self.deployment.manifest, version)
        self.labels[data] = label
        return data

    def staged(self, label: str, version: int) -> VersionEntry:
        """A manifest where clients put it before they ask for a version."""
        random = str(uuid4())
        self.aliases[random] = label
        key = f"{self.versions_key}/{final_name(version)}-{random}"
        self.deployment.files.write(key, self.content(label, version))
        return VersionEntry(version, key)

    @contextmanager
    def on_stage(self, server: Server, name: str) -> Iterator[None]:
        with server.stage.entered(self.run, name, self.aliases):
            yield

    # What clients do

    def commit(self, name: str, server: int, version: int, *faults: Action) -> Actor:
        """A client of the catalog that asks for a version once."""
        label = f"{name}'s {version}"
        return self.commit_entry(name, server, self.staged(label, version), label, *faults)

    def commit_entry(self, name: str, server: int, entry: VersionEntry, label: str, *faults: Action) -> Actor:
        return self.actor(name, server, lambda used: self._commit(name, used, entry, label), *faults)

    def _commit(self, name: str, server: Server, entry: VersionEntry, label: str) -> None:
        with self.history.recorded(name, Put(entry.version, label)) as event:
            try:
                server.versions.create(LOCAL_CALLER, self.table.ident, MAIN_BRANCH, entry)
            except TableVersionAlreadyExists:
                event.outcome = Outcome.REFUSED
            except (Unavailable, OSError) as error:
                event.result = error
            else:
                event.outcome = Outcome.OK

    def write_by_location(self, name: str, server: int, version: int) -> Actor:
        """A writer that knows only where the table is; it puts the final manifest by itself."""
        label = f"{name}'s {version}"
        data, key = self.content(label, version), self.final_key(version)

        def act(used: Server) -> None:
            with self.history.recorded(name, Put(version, label)) as event:
                used.stage.step("put by location", [], [key, f"{self.versions_key}/*"])
                is_ours = self.deployment.put_if_absent(key, data)
                event.outcome = Outcome.OK if is_ours else Outcome.REFUSED

        return self.actor(name, server, act)

    def read(self, name: str, server: int, *versions: int | None) -> Actor:
        """Asks for versions, one after the other, and reads the manifests that it is told of."""

        def act(used: Server) -> None:
            for version in versions:
                with self.history.recorded(name, Read(version)) as event:
                    event.result = self._read(used, version)
                    event.outcome = Outcome.OK

        return self.actor(name, server, act)

    def _read(self, server: Server, version: int | None) -> object:
        try:
            found = server.versions.describe(LOCAL_CALLER, self.table.ident, MAIN_BRANCH, version)
        except TableVersionNotFound:
            return None
        data = server.files.read(found.manifest_path)
        assert found.manifest_size == len(data), f"the size of version {found.version} is wrong"
        label = self.labels[data]
        return label if version is not None else (found.version, label)

    def list_all(self, name: str, server: int) -> Actor:
        def act(used: Server) -> None:
            with self.history.recorded(name, List()) as event:
                event.result = self._list(used)
                event.outcome = Outcome.OK

        return self.actor(name, server, act)

    def _list(self, server: Server) -> list[int]:
        listed = server.versions.list_versions(
            LOCAL_CALLER, self.table.ident, MAIN_BRANCH, Order.ASCENDING, Page()
        )
        return [version.version for version in listed]

    def actor(self, name: str, server: int, act: Callable[[Server], None], *faults: Action) -> Actor:
        used = self.deployment.servers[server]

        def run() -> None:
            with self.on_stage(used, name):
                act(used)

        return Actor(name, run, frozenset(faults))

    # What is there when all is over

    def check(self) -> None:
        """Everything acknowledged is there, rows and files tell the same, and one order explains it all."""
        server = self.deployment.servers[0]
        numbers = self._list(server)
        assert numbers == list(range(1, len(numbers) + 1)), f"versions have holes: {numbers}"
        end = tuple(str(self._read(server, number)) for number in numbers)
        names = self.deployment.files.list_names(self.versions_key)
        finals = [name for name in names if name.endswith(".manifest")]
        assert sorted(finals) == sorted(final_name(number) for number in numbers)
        check_linearizable(self.history, self.start, end)
        # Whatever could be healed is healed: nothing is left for the next reader to do.
        with server.store.reading() as tx:
            for row in tx.versions.list_all(self.table.table_id, MAIN_BRANCH):
                assert self.deployment.files.size_of(row.manifest_path) == row.manifest_size


Scenario = Callable[[World], Sequence[Actor]]


def walk(deployment: Deployment, scenario: Scenario, limit: int | None = None) -> Exploration:
    """All interleavings of a scenario, each on a fresh table with one version."""

    def start(run: Run) -> tuple[Sequence[Actor], Callable[[], None]]:
        world = new_world(deployment, run)
        return scenario(world), world.check

    return explore(start, limit)


def new_world(deployment: Deployment, run: Run) -> World:
    table_id = uuid4()
    ident = TableIdent(NAMESPACE, f"t{table_id.hex}")
    world = World(deployment, run, Table(table_id, ident, deployment.files.location_of(table_id)))
    world.aliases = {str(table_id): "t", **{final_name(n): f"{n}.manifest" for n in range(1, 9)}}
    deployment.files.write(world.final_key(1), world.content(FIRST, 1))
    server = deployment.servers[0]
    with server.store.transaction() as tx:
        tx.tables.add(world.table)
    server.versions.find_latest(world.table)
    return world
