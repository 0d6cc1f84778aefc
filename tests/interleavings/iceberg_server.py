"""One process that serves the Iceberg protocol, with a step before everything that leaves the process."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import orjson
from starlette.datastructures import Headers, QueryParams

from tests.interleavings.scheduler import Action
from tests.interleavings.steps import DATABASE, Stage, SteppedStore
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import LEVEL_SEPARATOR, TableIdent
from tidemill.catalog.operations.receipts import ReceiptOperations
from tidemill.errors import CommitStateUnknown, TidemillError, Unavailable
from tidemill.lance.tables import TableOperations
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.http.routing import Router, path_segments
from tidemill.protocols.iceberg.errors import ICEBERG_ERRORS
from tidemill.protocols.iceberg.idempotency import HEADER
from tidemill.protocols.iceberg.service import ROUTES
from tidemill.server.access.grants import AllowEverything
from tidemill.server.bootstrap import build_iceberg, build_purger
from tidemill.storage.local import LocalTableFiles
from tidemill.store.engine import SqlStore

LIFETIME: Final = timedelta(minutes=30)
UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WRITES: Final = frozenset({"write", "remove"})
FILE_STEPS: Final = WRITES | {"size_of", "read"}
ROUTER: Final = Router(ROUTES)
UNKNOWN_STATUS: Final = 500


class ThreadStage(threading.local, Stage):
    """A stage for each thread, so that two actors can use one server.

    Entries and metadata files get aliases by the actor that is the first to name them. `goes_down` makes the
    first lost answer the beginning of an outage: the actor does not reach the database any more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.goes_down = False
        self.is_down = False
        self.can_die = False

    def _plain(self, text: str) -> str:
        known = cast(dict[str, str], self._aliases)
        return UUID.sub(lambda found: known.setdefault(found[0], self._next_alias(known)), text)

    def _next_alias(self, known: Mapping[str, str]) -> str:
        own = sum(alias.startswith(f"{self._actor}#") for alias in known.values())
        return f"{self._actor}#{own}"


class StoreSteps(SteppedStore):
    """Transactions that can also fail: then they are rolled back, and nobody says so."""

    def __init__(self, inner: SqlStore, stage: ThreadStage) -> None:
        super().__init__(inner, stage)
        self._thread = stage

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        self._check_up()
        action = self._thread.step("transaction", [], [DATABASE])
        with self._inner.transaction() as tx:
            yield tx
            self._thread.check_alive()
            if action is Action.FAIL:
                raise self._lost()
        if action is Action.LOSE_ANSWER:
            raise self._lost()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        self._check_up()
        action = self._thread.step("read rows", [DATABASE], [])
        if action is Action.FAIL:
            raise Unavailable("the rows were not read")
        with self._inner.reading() as tx:
            yield tx

    def _lost(self) -> CommitStateUnknown:
        self._thread.is_down = self._thread.goes_down
        return CommitStateUnknown("the answer to the commit was lost")

    def _check_up(self) -> None:
        if self._thread.is_down:
            raise Unavailable("the database does not answer")


class FileSteps:
    """Files of one server; nothing lists directories, so that only uses of one file conflict."""

    def __init__(self, inner: LocalTableFiles, stage: ThreadStage, written: list[str]) -> None:
        self._inner = inner
        self._stage = stage
        self._written = written

    # Servers look for the files of what they load if these are local.
    @property  # type: ignore[misc]  # mypy wants a class to stay what it is
    def __class__(self) -> type[LocalTableFiles]:  # type: ignore[override]
        return LocalTableFiles

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in FILE_STEPS:
            return method

        def stepped(key: str, *arguments: Any) -> Any:
            said = f"{name} {key.rpartition('/')[2]}"
            reads, writes = ([], [key]) if name in WRITES else ([key], [])
            action = self._stage.step(said, reads, writes)
            if action is Action.FAIL:
                raise Unavailable(f"{said} failed")
            result = method(key, *arguments)
            if name == "write":
                self._written.append(key)
            if action is Action.LOSE_ANSWER:
                raise Unavailable(f"the answer to {said} was lost")
            return result

        return stepped


@dataclass(frozen=True)
class Sent:
    """A request as it goes over the wire."""

    method: str
    path: str
    body: Any = None
    key: str | None = None
    query: str = ""


@dataclass(frozen=True)
class Received:
    status: int
    body: bytes = b""

    @property
    def state(self) -> Any:
        return orjson.loads(self.body)


class Server:
    """What a process has that was started for one run; `written` are the files that anybody wrote in it."""

    def __init__(self, store: SqlStore, files: LocalTableFiles, written: list[str]) -> None:
        self.stage = ThreadStage()
        self._store = cast(Any, StoreSteps(store, self.stage))
        self._files = cast(Any, FileSteps(files, self.stage, written))
        iceberg = build_iceberg(self._store, self._files, AllowEverything(), None)
        known = SimpleNamespace(
            iceberg_tables=iceberg.tables,
            iceberg_views=iceberg.views,
            iceberg_access=iceberg.access,
            iceberg_signing=iceberg.signing,
            receipts=ReceiptOperations(self._store, AllowEverything(), LIFETIME),
            namespace_separator=LEVEL_SEPARATOR,
            # Near names only lengthen messages; looking for them would add steps to every refusal.
            name_hints=SimpleNamespace(near=lambda *_: ()),
        )
        self._operations = cast(Operations, known)

    def answer(self, sent: Sent) -> Received:
        match = ROUTER.match(sent.method, path_segments(f"/iceberg/v1{sent.path}".encode()))
        call = Call(
            operations=self._operations,
            caller=LOCAL_CALLER,
            limits=Limits(),
            parameters=match.parameters,
            query=QueryParams(sent.query),
            headers=Headers({} if sent.key is None else {HEADER: sent.key}),
            body=b"" if sent.body is None else orjson.dumps(sent.body),
        )
        try:
            response = match.route.handler(call)
        except TidemillError as error:
            return Received(ICEBERG_ERRORS[error.code].status, str(error).encode())
        return Received(response.status_code, bytes(response.body))

    def declare(self, ident: TableIdent) -> Received:
        """A Lance table without data."""
        unused: Any = None
        tables = TableOperations(self._store, AllowEverything(), self._files, unused, unused, unused)
        try:
            tables.declare(LOCAL_CALLER, ident, {})
        except TidemillError as error:
            return Received(ICEBERG_ERRORS[error.code].status)
        return Received(200)

    def purge_waiting(self) -> None:
        build_purger(self._store, self._files).purge_waiting()
