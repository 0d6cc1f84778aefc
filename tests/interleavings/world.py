"""A catalog with several servers over one database and one storage, and what clients do to tables in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

import lance
import pyarrow as pa

from tests.interleavings.model import (
    Append,
    Clean,
    Drop,
    Event,
    History,
    List,
    Operation,
    Outcome,
    Put,
    Read,
    State,
    Withdraw,
    check_linearizable,
)
from tests.interleavings.scheduler import Action, Actor, Exploration, Killed, Run, explore
from tests.interleavings.steps import REFERENCES, Stage, SteppedFiles, SteppedRefs, SteppedStore
from tests.protocol.wire import final_name, renumbered
from tidemill.catalog.errors import (
    InvalidTableState,
    TableNotFound,
    TableVersionAlreadyExists,
    TableVersionNotFound,
)
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import Namespace, NamespacePath, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH, Page, Table, TableVersion, VersionEntry
from tidemill.catalog.ports import CatalogTransaction
from tidemill.errors import Unavailable
from tidemill.jobs.ports import TransactionEffect
from tidemill.lance.batches import BatchOperations, CreateVersion, VersionRange
from tidemill.lance.datasets import LanceTableData
from tidemill.lance.refs import RefOperations
from tidemill.lance.registrations import RegistrationOperations
from tidemill.lance.tables import LanceTableSnapshots, TableOperations
from tidemill.lance.versions.commit import Order, VersionOperations
from tidemill.server.access.grants import AllowEverything
from tidemill.storage.local import LocalTableFiles
from tidemill.storage.warehouse import Warehouse
from tidemill.store.engine import SqlStore, open_store

NAMESPACE: Final = NamespacePath(("interleavings",))
SERVERS: Final = 3
FIRST: Final = "first"

Result = TypeVar("Result")


class PutIfAbsent(Protocol):
    """How a writer that knows only the table's location commits: whether the object is now its own."""

    def __call__(self, key: str, data: bytes) -> bool: ...


class AnnouncedVersions(VersionOperations):
    """Version operations that say what pylance stages, and that take a step before pylance goes on."""

    stage: Stage
    on_staged: Callable[[Table, VersionEntry], None] | None = None

    def commit(
        self, table: Table, entry: VersionEntry, on_commit: TransactionEffect | None = None
    ) -> TableVersion:
        if self.on_staged is not None:
            self.on_staged(table, entry)
        committed = super().commit(table, entry, on_commit)
        if table.branch != MAIN_BRANCH:
            # The reference of a new branch comes next, if this was its first version.
            self.stage.step("write the reference", [], [REFERENCES])
        return committed


class Server:
    """What one process has: connections, storage, and operations over them."""

    def __init__(self, url: str, files: Warehouse) -> None:
        self.stage = Stage()
        self.store: SqlStore = open_store(url)
        store: Any = SteppedStore(self.store, self.stage)
        self.files: Any = SteppedFiles(files, self.stage)
        anybody = AllowEverything()
        self.versions = AnnouncedVersions(store, anybody, self.files)
        self.versions.stage = self.stage
        self.data = LanceTableData(self.versions)
        self.refs = RefOperations(store, anybody, self.versions)
        stepped: Any = SteppedRefs(self.refs._refs, self.stage)
        self.refs._refs = stepped
        self.batches = BatchOperations(store, anybody, self.files, self.versions)
        self.registrations = RegistrationOperations(store, anybody, self.files, self.versions)
        self.snapshots = LanceTableSnapshots(self.versions, self.data)
        self.tables = TableOperations(store, anybody, self.files, self.data, self.versions, self.refs)
        self.stepped_store = store

    def close(self) -> None:
        self.store.close()


@dataclass
class Deployment:
    """Servers that are opened once and used by all runs; each run has tables of its own."""

    files: Warehouse
    put_if_absent: PutIfAbsent
    servers: Sequence[Server]
    manifest: bytes

    @property
    def first_orders(self) -> int:
        """How many orders of each scenario the normal run tries; `make test-deep` tries all."""
        if not isinstance(self.files, LocalTableFiles):
            return 3
        return 40 if self.servers[0].store.is_local else 8

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
class TableInWorld:
    """A table, and what its clients did to it."""

    table: Table
    versions_key: str
    history: History = field(default_factory=History)
    start: State = (FIRST,)

    def final_key(self, version: int) -> str:
        return f"{self.versions_key}/{final_name(version)}"


Act = Callable[[Server], None]


@dataclass
class World:
    """What one run acts on: tables with one version each, and the contents that can be met in them."""

    deployment: Deployment
    run: Run
    labels: dict[bytes, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    tables: list[TableInWorld] = field(default_factory=list)
    checks: list[Callable[[], None]] = field(default_factory=list)

    def add_table(self) -> TableInWorld:
        table_id = uuid4()
        ident = TableIdent(NAMESPACE, f"t{table_id.hex}")
        table = Table(table_id, ident, self.deployment.files.location_of(table_id))
        added = TableInWorld(table, f"{self.deployment.files.key_of(table.location)}/_versions")
        self.aliases[str(table_id)] = f"t{len(self.tables)}"
        self.tables.append(added)
        self.deployment.files.write(added.final_key(1), self._content(FIRST, 1))
        with self.first.store.transaction() as tx:
            tx.tables.add(table)
        self.first.versions.find_latest(table)
        return added

    @property
    def first(self) -> Server:
        return self.deployment.servers[0]

    def _content(self, label: str, version: int) -> bytes:
        data = renumbered(self.deployment.manifest, version)
        self.labels[data] = label
        return data

    def stage(self, label: str, version: int, on: int = 0) -> VersionEntry:
        """A manifest where clients put it before they ask for a version."""
        random = str(uuid4())
        self.aliases[random] = label
        key = f"{self.tables[on].versions_key}/{final_name(version)}-{random}"
        self.deployment.files.write(key, self._content(label, version))
        return VersionEntry(version, key)

    def actor(self, name: str, server: int, act: Act, *faults: Action) -> Actor:
        used = self.deployment.servers[server]

        def run() -> None:
            with used.stage.entered(self.run, name, self.aliases):
                act(used)

        return Actor(name, run, frozenset(faults))

    # What clients do

    def commit(self, name: str, server: int, version: int, *faults: Action, on: int = 0) -> Actor:
        """A client of the catalog that asks for a version once."""
        entry = self.stage(f"{name}'s {version}", version, on)

        def act(used: Server) -> None:
            self._commit(name, used, entry, on)

        return self.actor(name, server, act, *faults)

    def commit_twice(self, name: str, server: int, again: int, version: int, *faults: Action) -> Actor:
        """A client that sends the same request again, to another server, if it does not know the outcome."""
        entry = self.stage(f"{name}'s {version}", version)
        other = self.deployment.servers[again]

        def act(used: Server) -> None:
            self._commit(name, used, entry, 0)
            if self.tables[0].history.events[-1].outcome is Outcome.UNKNOWN:
                with other.stage.entered(self.run, name, self.aliases):
                    self._commit(name, other, entry, 0)

        return self.actor(name, server, act, *faults)

    def _commit(self, name: str, server: Server, entry: VersionEntry, on: int) -> None:
        ident = self.tables[on].table.ident
        with self._told(name, on, Put(entry.version, f"{name}'s {entry.version}")):
            server.versions.create(LOCAL_CALLER, ident, MAIN_BRANCH, entry)

    def commit_with_effect(self, name: str, server: int, version: int, *faults: Action) -> Actor:
        """A commit of the server's own that also records something: here a property of the table."""
        label = f"{name}'s {version}"
        entry = self.stage(label, version)
        table = self.tables[0].table

        def record(tx: CatalogTransaction, _: int) -> None:
            tx.tables.set_properties(table.table_id, {"recorded": label})

        def act(used: Server) -> None:
            with self._told(name, 0, Put(version, label)):
                used.versions.commit(table, entry, record)

        self.checks.append(lambda: self.check_recorded(label))
        return self.actor(name, server, act, *faults)

    def check_recorded(self, label: str) -> None:
        """What a commit recorded is there if and only if its version is."""
        contents = self.contents(0)
        if contents is None:
            return
        with self.first.store.reading() as tx:
            recorded = tx.tables.get(self.tables[0].table.ident).properties.get("recorded")
        is_there = label in contents
        assert (recorded == label) == is_there, f"{recorded} is recorded and {contents} is there"

    def commit_batch(self, name: str, server: int, version: int, *faults: Action) -> Actor:
        """One version of every table, all or none."""
        entries = [self.stage(f"{name}'s {version}", version, on) for on in range(len(self.tables))]
        operations = [
            CreateVersion(tracked.table.ident, MAIN_BRANCH, entry)
            for tracked, entry in zip(self.tables, entries, strict=True)
        ]

        label, is_refused = f"{name}'s {version}", False

        def act(used: Server) -> None:
            nonlocal is_refused
            with self._told(name, 0, Put(version, label), *range(1, len(self.tables))) as event:
                used.batches.commit(LOCAL_CALLER, operations)
            is_refused = event.outcome is Outcome.REFUSED
            if is_refused:
                self._withdrawn(name, version)

        def check() -> None:
            there = [label in (self.contents(on) or ()) for on in range(len(self.tables))]
            assert len(set(there)) == 1, f"half of {name}'s batch is there: {there}"
            assert not (is_refused and any(there)), f"{name}'s batch was refused and is there"

        self.checks.append(check)
        return self.actor(name, server, act, *faults)

    def _withdrawn(self, name: str, version: int) -> None:
        """A refused batch may have been there for a while: that of a table where it came first.

        docs/consistency.md says so under its limits.
        """
        for tracked in self.tables:
            (put,) = (event for event in tracked.history.events if event.client == name)
            put.outcome = Outcome.UNKNOWN
            # Moments are what the checker tells events apart by.
            undone = Event(name, Withdraw(version, f"{name}'s {version}"), -put.called)
            tracked.history.events.append(undone)

    def restore(self, name: str, server: int, version: int, *faults: Action) -> Actor:
        """Commits the content of an old version again, with pylance; retries as the server does."""

        def act(used: Server) -> None:
            self.label_staged(used, name)
            with self._told(name, 0, Append(name)) as event:
                event.result = self.alive(name, lambda: used.snapshots.restore(self.tables[0].table, version))

        return self.actor(name, server, act, *faults)

    def label_staged(self, server: Server, name: str) -> None:
        """What pylance stages for this actor from here on is known by the actor's name."""

        def label(_: Table, entry: VersionEntry) -> None:
            self.aliases[entry.manifest_path.rpartition("-")[2]] = name
            self.labels[self.deployment.files.read(entry.manifest_path)] = f"{name}'s {entry.version}"

        server.versions.on_staged = label

    def alive(self, name: str, call: Callable[[], Result]) -> Result:
        """pylance makes an ordinary error of the end of a process; it is none."""
        try:
            return call()
        except Exception:
            if self.run.is_dead(name):
                raise Killed from None
            raise

    def write_by_location(self, name: str, server: int, version: int, on: int = 0) -> Actor:
        """A writer that knows only where the table is; it puts the final manifest itself."""
        put = self._putting(name, version, on)
        return self.actor(name, server, put)

    def write_and_clean_by_location(self, name: str, server: int, *versions: int) -> Actor:
        """Writes versions without telling the catalog, and removes the one before each."""
        puts = [self._putting(name, version, 0) for version in versions]
        cleanings = [self._cleaning(name, version - 1) for version in versions]

        def act(used: Server) -> None:
            for put, clean in zip(puts, cleanings, strict=True):
                put(used)
                clean(used)

        return self.actor(name, server, act)

    def clean_by_location(self, name: str, server: int, version: int) -> Actor:
        """Removes the manifest of an old version without telling the catalog, as Lance's clean-up does."""
        return self.actor(name, server, self._cleaning(name, version))

    def _putting(self, name: str, version: int, on: int) -> Act:
        label, tracked = f"{name}'s {version}", self.tables[on]
        key = tracked.final_key(version)
        # Of another size than those of catalog clients.
        data = renumbered(self._content("", version), version)
        self.labels[data] = label

        def act(used: Server) -> None:
            with tracked.history.recorded(name, Put(version, label)) as event:
                used.stage.step("put by location", [], [key, f"{tracked.versions_key}/*"])
                is_ours = self.deployment.put_if_absent(key, data)
                event.outcome = Outcome.OK if is_ours else Outcome.REFUSED

        return act

    def _cleaning(self, name: str, version: int) -> Act:
        tracked = self.tables[0]

        def act(used: Server) -> None:
            with tracked.history.recorded(name, Clean(version)) as event:
                used.files.remove(tracked.final_key(version))
                event.outcome = Outcome.OK

        return act

    def delete_version(self, name: str, server: int, version: int, *faults: Action) -> Actor:
        """The same through the catalog."""
        ident = self.tables[0].table.ident

        def act(used: Server) -> None:
            with self._told(name, 0, Clean(version)):
                used.batches.delete_versions(
                    LOCAL_CALLER, ident, MAIN_BRANCH, (VersionRange(version, version + 1),)
                )

        return self.actor(name, server, act, *faults)

    def drop(self, name: str, server: int, *faults: Action) -> Actor:
        def act(used: Server) -> None:
            with self._told(name, 0, Drop()):
                used.tables.drop(LOCAL_CALLER, self.tables[0].table.ident)

        return self.actor(name, server, act, *faults)

    def deregister(self, name: str, server: int, *faults: Action) -> Actor:
        def act(used: Server) -> None:
            with self._told(name, 0, Drop()):
                used.registrations.deregister(LOCAL_CALLER, self.tables[0].table.ident)

        return self.actor(name, server, act, *faults)

    def read(self, name: str, server: int, *versions: int | None) -> Actor:
        """Asks for versions, one after the other, and reads the manifests that it is told of."""

        def act(used: Server) -> None:
            for version in versions:
                with self._told(name, 0, Read(version)) as event:
                    event.result = self._read(used, version, 0)

        return self.actor(name, server, act)

    def read_recorded(self, name: str, server: int) -> Actor:
        """Asks for the latest version, and then for what its commit has recorded."""

        def act(used: Server) -> None:
            with self._told(name, 0, Read(None)) as event:
                event.result = found = self._read(used, None, 0)
            with used.stepped_store.reading() as tx:
                recorded = tx.tables.get(self.tables[0].table.ident).properties.get("recorded")
            assert found == (1, FIRST) or found == (2, recorded), f"{found} is there, {recorded} is recorded"

        return self.actor(name, server, act)

    def _read(self, server: Server, version: int | None, on: int) -> object:
        ident = self.tables[on].table.ident
        try:
            found = server.versions.describe(LOCAL_CALLER, ident, MAIN_BRANCH, version)
        except TableVersionNotFound:
            return None
        try:
            data = server.files.read(found.manifest_path)
        except FileNotFoundError:
            # Cleaned up since; a client asks again.
            return self._read(server, version, on)
        assert found.manifest_size == len(data), f"the size of version {found.version} is wrong"
        label = self.labels[data]
        return label if version is not None else (found.version, label)

    def list_all(self, name: str, server: int) -> Actor:
        def act(used: Server) -> None:
            with self._told(name, 0, List()) as event:
                event.result = self._list(used, 0)

        return self.actor(name, server, act)

    def _list(self, server: Server, on: int) -> list[int]:
        ident = self.tables[on].table.ident
        listed = server.versions.list_versions(LOCAL_CALLER, ident, MAIN_BRANCH, Order.ASCENDING, Page())
        return [version.version for version in listed]

    @contextmanager
    def _told(self, name: str, on: int, operation: Operation, *more: int) -> Iterator[Event]:
        """Records an operation with what its client is told; of a batch, on more tables than one."""
        if more:
            with self.tables[more[0]].history.recorded(name, operation) as twin:
                with self._told(name, on, operation, *more[1:]) as event:
                    yield event
                twin.outcome = event.outcome
            return
        with self.tables[on].history.recorded(name, operation) as event:
            try:
                yield event
            except (TableVersionAlreadyExists, InvalidTableState):
                event.outcome = Outcome.REFUSED
            except TableNotFound:
                event.outcome = Outcome.GONE
            except (Unavailable, OSError) as error:
                event.result = error
            else:
                event.outcome = Outcome.OK

    # What is there when all is over

    def contents(self, on: int) -> State:
        """The contents of all versions from 1 on, as a server tells them; None for a table that is gone."""
        try:
            numbers = self._list(self.first, on)
        except TableNotFound:
            return None
        latest = max(numbers, default=0)
        return tuple(
            str(self._read(self.first, number, on)) if number in numbers else None
            for number in range(1, latest + 1)
        )

    def check(self) -> None:
        """Everything acknowledged is there, rows and files tell the same, and one order explains it all."""
        for on, tracked in enumerate(self.tables):
            contents = self.contents(on)
            check_linearizable(tracked.history, tracked.start, contents)
            if contents is not None:
                self._check_storage(tracked, contents)
        for check in self.checks:
            check()

    def _check_storage(self, tracked: TableInWorld, contents: tuple[str | None, ...]) -> None:
        there = [number for number, content in enumerate(contents, start=1) if content is not None]
        names = self.deployment.files.list_names(tracked.versions_key)
        finals = [name for name in names if name.endswith(".manifest")]
        assert sorted(finals) == sorted(final_name(number) for number in there)
        with self.first.store.reading() as tx:
            rows = tx.versions.list_all(tracked.table.table_id, MAIN_BRANCH)
        # Whatever could be healed is healed: nothing is left for the next reader to do.
        assert [row.version for row in rows] == there
        for row in rows:
            assert self.deployment.files.size_of(row.manifest_path) == row.manifest_size
            assert row.deferred is None


Scenario = Callable[[World], Sequence[Actor]]


def walk(deployment: Deployment, scenario: Scenario, limit: int | None = None) -> Exploration:
    """All interleavings of a scenario, each on fresh tables with one version."""

    def start(run: Run) -> tuple[Sequence[Actor], Callable[[], None]]:
        world = World(deployment, run)
        world.aliases = {final_name(number): f"{number}.manifest" for number in range(1, 9)}
        world.add_table()
        return scenario(world), world.check

    return explore(start, limit)
