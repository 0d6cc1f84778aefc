"""Runs a storm: creates the tables, starts clients and faults, and reads back what is there afterwards."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any, Final

import httpx
import lance
import pyarrow as pa
from lance.namespace import RestNamespace

from tests.interop.storm.clients import (
    ACTIVE_TABLES,
    NAMESPACE,
    VERSIONS_OF_A_TABLE,
    Client,
    Tables,
    levels_of,
)
from tests.interop.storm.deployment import Deployment, FaultInjector
from tests.interop.storm.journal import Journal, StormTable, digest_of
from tests.interop.storm.outcome import Outcome, StoredTable
from tests.interop.storm.plan import Plan
from tests.interop.storm.row_clients import ACTIONS
from tests.linearizability import Get
from tests.protocol.wire import MAX_U64, TableOnWire, final_name

BATCH_TABLES: Final = 4
ROW_TABLES: Final = 3
CLEANED_TABLES: Final = 2
QUIET_SECONDS: Final = 1.5
SETTLED_SECONDS: Final = 60
READERS: Final = 8
READ_SECONDS: Final = 60


def run(plan: Plan, deployment: Deployment) -> Outcome:
    with httpx.Client(base_url=deployment.servers[0].url, timeout=READ_SECONDS) as http:
        tables = _make_tables(http, plan)
    journal = Journal()
    injector = FaultInjector(deployment, plan.faults, plan.seed)
    started = time.monotonic()
    injector.start()
    try:
        _run_clients(plan, deployment, tables, journal, injector)
    finally:
        injector.end()
    seconds = time.monotonic() - started
    deployment.wait_until_healthy()
    _wait_until_quiet(deployment)
    stored = _read_back(deployment, tables, journal)
    return Outcome(
        deployment=deployment.name,
        plan=plan,
        seconds=seconds,
        journal=journal,
        faults=injector.faults,
        tables=tables,
        stored=stored,
        log=deployment.log,
        clock_offset=time.time() - time.monotonic(),
    )


def _make_tables(http: httpx.Client, plan: Plan) -> Tables:
    assert http.post(f"/v1/namespace/{NAMESPACE}/create", json={}).status_code == 200
    # Some versions go to other tables; those that nobody gets to stay at their first version.
    manifests = max(ACTIVE_TABLES, math.ceil(plan.versions / VERSIONS_OF_A_TABLE))

    def made(role: str, count: int) -> list[StormTable]:
        return [_make_table(http, f"{role}{number}") for number in range(count)]

    return Tables(
        manifests=made("manifests", manifests),
        batches=made("batches", BATCH_TABLES),
        rows=made("rows", ROW_TABLES),
        cleaned=made("cleaned", CLEANED_TABLES),
    )


def _make_table(http: httpx.Client, name: str) -> StormTable:
    table = TableOnWire(http, NAMESPACE, name)
    table.create(pa.table({"id": pa.array([], pa.int64())}))
    return StormTable(name, table.directory, table.manifests()[final_name(1)])


def _run_clients(
    plan: Plan, deployment: Deployment, tables: Tables, journal: Journal, injector: FaultInjector
) -> None:
    give_up_at = time.monotonic() + plan.seconds
    has_failed = Event()
    scratch = deployment.root / "scratch"
    scratch.mkdir()
    numbers = itertools.count()
    kinds = list(plan.weights)

    def is_over() -> bool:
        is_complete = tables.versions >= plan.versions and injector.has_done_its_least
        is_broken = has_failed.is_set() or injector.has_failed
        return is_complete or is_broken or time.monotonic() > give_up_at

    def work(number: int) -> None:
        chance = random.Random(f"client {number} of {plan.seed}")
        client = Client(number, chance, deployment, tables, journal, scratch, numbers)
        try:
            # Every kind takes part, however short the storm is.
            kind = kinds[number % len(kinds)]
            with client.http:
                while not is_over():
                    ACTIONS[kind](client)
                    journal.did(kind.name)
                    (kind,) = chance.choices(kinds, list(plan.weights.values()))
        except BaseException:
            # A fault of the client itself: the others need not go on.
            has_failed.set()
            raise

    with ThreadPoolExecutor(plan.clients) as threads:
        list(threads.map(work, range(plan.clients)))


def _wait_until_quiet(deployment: Deployment) -> None:
    """Clients have given up on some requests that servers still work on; each is logged when it ends."""
    give_up_at = time.monotonic() + SETTLED_SECONDS
    before, size = -1, deployment.log.stat().st_size
    while size != before and time.monotonic() < give_up_at:
        time.sleep(QUIET_SECONDS)
        before, size = size, deployment.log.stat().st_size


def _read_back(deployment: Deployment, tables: Tables, journal: Journal) -> dict[str, StoredTable]:
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(READERS))
        urls = itertools.cycle(deployment.urls())
        clients = [
            stack.enter_context(httpx.Client(base_url=next(urls), timeout=READ_SECONDS))
            for _ in range(READERS)
        ]
        everything = list(tables)
        # The first look at each table finishes what was interrupted.
        list(threads.map(lambda table: _listed(clients[0], table), everything))
        with_rows = {table.name for table in (*tables.rows, *tables.cleaned)}
        found = threads.map(
            lambda numbered: _stored(clients[numbered[0] % READERS], numbered[1], journal, with_rows),
            enumerate(everything),
        )
        return {table.name: stored for table, stored in zip(everything, found, strict=True)}


def _stored(http: httpx.Client, table: StormTable, journal: Journal, with_rows: set[str]) -> StoredTable:
    listed = _listed(http, table)
    manifests = _in_storage(table)
    if table.name in with_rows:
        rest = RestNamespace(uri=str(http.base_url).rstrip("/"))
        dataset = lance.dataset(namespace_client=rest, table_id=levels_of(table))
        return StoredTable(listed, manifests, {}, dataset.to_table()["id"].to_pylist())
    digests = {}
    for version in range(1, max([*listed, *manifests, table.known]) + 1):
        digests[version] = _described(http, table, version)
        now = time.monotonic()
        journal.record(table, version, Get(now, now, digests[version]))
    return StoredTable(listed, manifests, digests, [])


def _listed(http: httpx.Client, table: StormTable) -> list[int]:
    return [version["version"] for page in _pages(http, table) for version in page["versions"]]


def _pages(http: httpx.Client, table: StormTable) -> Iterator[dict[str, Any]]:
    parameters: dict[str, Any] = {}
    while True:
        answer = http.post(f"/v1/table/{NAMESPACE}${table.name}/version/list", params=parameters)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        yield page
        if "page_token" not in page:
            return
        parameters = {"page_token": page["page_token"]}


def _described(http: httpx.Client, table: StormTable, version: int) -> str | None:
    answer = http.post(f"/v1/table/{NAMESPACE}${table.name}/version/describe", json={"version": version})
    if answer.status_code == 404:
        return None
    assert answer.status_code == 200, answer.text
    return digest_of(Path(f"/{answer.json()['version']['manifest_path']}").read_bytes())


def _in_storage(table: StormTable) -> Sequence[int]:
    names = [path.name for path in table.versions.iterdir() if path.name.endswith(".manifest")]
    return sorted(MAX_U64 - int(name.partition(".")[0]) for name in names)
