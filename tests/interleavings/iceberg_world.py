"""Several servers that speak the Iceberg protocol over one database and one storage, and their clients.

A request goes through the handler of its route, so that receipts are part of it; HTTP itself is left out.
Every run has a namespace of its own and servers that have just started; connections are kept between runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.interleavings.iceberg_model import (
    SCHEMA_ID,
    SQL,
    UNAVAILABLE,
    Answer,
    Catalog,
    Change,
    Commit,
    CommitAll,
    Content,
    Create,
    Drop,
    Kind,
    Load,
    Named,
    Overwrite,
    Rename,
    Request,
)
from tests.interleavings.iceberg_server import UNKNOWN_STATUS, UUID, Received, Sent, Server
from tests.interleavings.iceberg_wire import Wire, content_of, files_of, key_of, stored_state
from tests.interleavings.model import History, Outcome, check_linearizable
from tests.interleavings.scheduler import Action, Actor, Exploration, Run, explore
from tidemill.catalog.model.identifiers import Namespace, NamespacePath, TableIdent
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import SqlStore, open_store

SERVERS: Final = 3
FIRST_SCHEMA: Final = ((SCHEMA_ID, "0"),)
FIRST_QUERY: Final = "SELECT 1"
ONE_OLD_STATE: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "1",
}


@dataclass(frozen=True)
class Fault:
    """What may go wrong for one actor, once, at any of its steps."""

    name: str
    actions: tuple[Action, ...] = ()
    lasts: bool = False

    @property
    def is_lethal(self) -> bool:
        return Action.DIE in self.actions


NO_FAULT: Final = Fault("all goes well")
KILLED: Final = Fault("the first is killed", (Action.DIE,))
ANSWER_LOST: Final = Fault("an answer to the first is lost", (Action.LOSE_ANSWER,))
STEP_FAILED: Final = Fault("a step of the first fails", (Action.FAIL,))
OUTAGE_AFTER: Final = Fault("the first is cut off after a commit", (Action.LOSE_ANSWER,), lasts=True)
OUTAGE_BEFORE: Final = Fault("the first is cut off before a commit", (Action.FAIL,), lasts=True)


@dataclass
class IcebergDeployment:
    """Databases and files that are opened once and used by all runs."""

    files: LocalTableFiles
    stores: Sequence[SqlStore]

    @classmethod
    @contextmanager
    def opened(cls, url: str, root: Path) -> Iterator[IcebergDeployment]:
        with ExitStack() as stack:
            stores = []
            for _ in range(SERVERS + 1):
                stores.append(open_store(url))
                stack.callback(stores[-1].close)
            yield cls(LocalTableFiles(root / "warehouse"), stores)


@dataclass
class World:
    """A namespace, what is in it when a run begins, and everything that clients were answered."""

    deployment: IcebergDeployment
    run: Run
    namespace: str = field(default_factory=lambda: f"n{uuid4().hex}")
    history: History = field(default_factory=History)
    written: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    bodies: dict[str, bytes] = field(default_factory=dict)
    removes_files: bool = False
    leaves_files: bool = False

    def __post_init__(self) -> None:
        self.wire = Wire(self.namespace)
        with self.deployment.stores[0].transaction() as tx:
            tx.namespaces.add(Namespace(uuid4(), NamespacePath((self.namespace,))))
        self.servers = [
            Server(store, self.deployment.files, self.written) for store in self.deployment.stores
        ]
        self.last = self.servers[-1]

    # What there is when a run begins

    def has_table(self, name: str, *commits: Mapping[str, str], **properties: str) -> Content:
        """Makes a table and commits to it; gives its first content."""
        first = frozenset((*FIRST_SCHEMA, *properties.items()))
        self._do("setup", self.last, Request(Create(name, Named(Kind.TABLE, first))))
        for commit in commits:
            self.has_committed(name, **commit)
        return first

    def has_committed(self, name: str, **properties: str) -> None:
        self._do("setup", self.last, Request(Commit(Change(name, tuple(properties.items())))))

    def keeps_one_old_state(self, name: str) -> Content:
        """A table that has the metadata files of older states removed."""
        self.removes_files = True
        return self.has_table(name, **ONE_OLD_STATE)

    def has_view(self, name: str) -> None:
        self._do("setup", self.last, Request(Create(name, Named(Kind.VIEW, frozenset({(SQL, FIRST_QUERY)})))))

    def has_dropped(self, name: str, **properties: str) -> Content:
        """Metadata in storage that nothing has a name for."""
        content = self.has_table(name, **properties)
        self._do("setup", self.last, Request(Drop(name)))
        return content

    # What clients do

    def client(
        self, name: str, server: int, *requests: Request, fault: Fault = NO_FAULT, again_at: int | None = None
    ) -> Actor:
        """Sends requests one after the other, each once more to another server if it gets no clear answer."""

        def act() -> None:
            used = self.servers[server]
            with self._on_stage(used, name, fault):
                for request in requests:
                    self._do(name, used, request)
            if again_at is not None and self._is_unclear(name):
                again = self.servers[again_at]
                with self._on_stage(again, name, NO_FAULT):
                    self._do(name, again, requests[-1])

        # In the order of writing: steps of two runs are the same only if their aliases are.
        for random in (found for key in self.written for found in UUID.findall(key)):
            self.aliases.setdefault(random, f"setup#{len(self.aliases)}")
        return Actor(name, act, frozenset(fault.actions))

    def _is_unclear(self, name: str) -> bool:
        event = next(event for event in reversed(self.history.events) if event.client == name)
        return event.outcome is Outcome.UNKNOWN

    @contextmanager
    def _on_stage(self, server: Server, name: str, fault: Fault) -> Iterator[None]:
        stage = server.stage
        with stage.entered(self.run, name, self.aliases):
            stage.goes_down, stage.is_down, stage.can_die = fault.lasts, False, fault.is_lethal
            yield

    def _do(self, client: str, server: Server, request: Request) -> Received:
        with self.history.recorded(client, request) as event:
            received = self._answer(server, request)
            if server.stage.can_die:
                server.stage.step("answer", [], [])
            if received.status == UNAVAILABLE:
                event.operation = replace(request, is_unavailable=True)
            elif received.status != UNKNOWN_STATUS:
                event.outcome, event.result = Outcome.OK, self._understood(request, received)
        return received

    def _answer(self, server: Server, request: Request) -> Received:
        if isinstance(request.does, Drop) and request.does.removes_files:
            self.removes_files = True
        if isinstance(request.does, Create) and request.does.named.kind is Kind.LANCE:
            return server.declare(TableIdent(NamespacePath((self.namespace,)), request.does.name))
        return server.answer(self.wire.sent(request))

    def _understood(self, request: Request, received: Received) -> Answer:
        if request.key is not None and received.status != 422:
            first = self.bodies.setdefault(request.key, received.body)
            assert first == received.body, f"two answers to {request}: {first!r} and {received.body!r}"
        if received.status != 200 or not received.body:
            return received.status, None
        state = received.state
        location, metadata = state["metadata-location"], state["metadata"]
        self.shown.add(key_of(location))
        self.wire.locations[content_of(metadata)] = location
        if isinstance(request.does, Load):
            # What its client does next.
            assert stored_state(location) == metadata, f"{location} is not what was loaded"
        return received.status, content_of(metadata)

    # What is there when all is over

    def check(self) -> None:
        """One order explains all answers, and every state that a client may come to is in storage."""
        self.last.purge_waiting()
        for request in {replace(request, is_unavailable=False) for request in self._requests()}:
            if request.key is not None:
                self._do("replay", self.last, request)
        if any(event.outcome is Outcome.UNKNOWN for event in self.history.events):
            self._settle()
        named = self._check_states()
        check_linearizable(self.history, Catalog())
        if not self.removes_files:
            lost = {key for key in self.shown if not Path(f"/{key}").exists()}
            assert not lost, f"files of acknowledged states were removed: {lost}"
        if not self.leaves_files and all(option.action is Action.DO for option in self.run.schedule):
            left = {key for key in {*self.written} - self.shown - named if Path(f"/{key}").exists()}
            assert not left, f"files that nothing names: {left}"

    def _settle(self) -> None:
        """Before a commit, here one that changes nothing, a server settles what it knows of unknown ones."""
        nothing = Sent("POST", f"/namespaces/{self.namespace}/tables/t", {"requirements": [], "updates": []})
        for server in self.servers:
            server.answer(nothing)

    def _check_states(self) -> set[str]:
        """Loads everything; gives the files of all states that are named."""
        named: set[str] = set()
        for name in sorted(self._names()):
            for kind in (Kind.TABLE, Kind.VIEW):
                received = self._do("reader", self.last, Request(Load(name, kind)))
                if received.status == 200:
                    named |= files_of(received.state)
        missing = {key for key in named if not Path(f"/{key}").exists()}
        assert not missing, f"files that the current metadata names are not there: {missing}"
        return named

    def _requests(self) -> Sequence[Request]:
        return [event.operation for event in self.history.events if isinstance(event.operation, Request)]

    def _names(self) -> set[str]:
        names: set[str] = set()
        for request in self._requests():
            match request.does:
                case Commit(change):
                    names.add(change.name)
                case CommitAll(changes):
                    names |= {change.name for change in changes}
                case Rename(source, target):
                    names |= {source, target}
                case Create(name) | Overwrite(name) | Drop(name) | Load(name):
                    names.add(name)
        return names


Scenario = Callable[[World, Fault], Sequence[Actor]]


def walk(
    deployment: IcebergDeployment, scenario: Scenario, fault: Fault = NO_FAULT, limit: int | None = None
) -> Exploration:
    """All interleavings of a scenario, each in a fresh namespace."""

    def start(run: Run) -> tuple[Sequence[Actor], Callable[[], None]]:
        world = World(deployment, run)
        return scenario(world, fault), world.check

    return explore(start, limit)
