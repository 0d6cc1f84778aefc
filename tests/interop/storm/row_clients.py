"""Clients that write rows, use tags and branches, count, and clean up, with pylance and plain requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

import lance
import pyarrow as pa

from tests.interop.storm.clients import (
    Client,
    commit_batch,
    commit_manifest,
    levels_of,
    put_manifest,
    read_manifest,
)
from tests.interop.storm.journal import Incident, RowWrite, StormTable
from tests.interop.storm.plan import Kind
from tests.linearizability import Result
from tests.protocol.wire import stream

# What pylance says after 20 conflicts or 30 seconds: nothing was committed.
GAVE_UP: Final = ("Too many concurrent writers", "Failed to commit the transaction after")
# So short that everything the catalog knows may be gone at its next look.
CLEANED_AFTER: Final = timedelta(seconds=0.2)
KEPT_VERSIONS: Final = 30
BRANCH_ROWS: Final = 2
INSERT_SECONDS: Final = 15


def append(client: Client) -> None:
    table = _row_table(client)
    _append(
        client,
        table,
        "pylance through the catalog",
        lambda rows: lance.write_dataset(
            rows, namespace_client=client.rest(), table_id=levels_of(table), mode="append"
        ),
    )


def append_by_location(client: Client) -> None:
    table = _row_table(client)
    _append(
        client,
        table,
        "pylance by location",
        lambda rows: lance.write_dataset(rows, str(table.directory), mode="append"),
    )


def _row_table(client: Client) -> StormTable:
    return client.chance.choice([*client.tables.rows, *client.tables.cleaned])


def _append(client: Client, table: StormTable, how: str, write: Callable[[pa.Table], object]) -> None:
    row = next(client.numbers)
    invoked = time.monotonic()
    try:
        write(pa.table({"id": [row]}))
        result = Result.DONE
    except Exception as error:  # noqa: BLE001 - pylance raises many kinds; each is judged by what it says
        has_given_up = any(words in str(error) for words in GAVE_UP)
        result = Result.REFUSED if has_given_up else Result.UNKNOWN
        if table in client.tables.cleaned:
            # The version it started from may be gone: that is between pylance and the clean-up.
            client.journal.did("append that failed beside a clean-up")
        elif not has_given_up:
            incident = Incident(f"append with {how} failed", invoked, time.monotonic(), str(error)[:500])
            client.journal.incidents.append(incident)
    _wrote(client, table, row, how, result)


def insert(client: Client) -> None:
    table = _row_table(client)
    row = next(client.numbers)
    result = _insert(client, table, row, {})
    _wrote(client, table, row, "insert", result)


def _insert(client: Client, table: StormTable, row: int, parameters: Mapping[str, str]) -> Result:
    rows = stream(pa.table({"id": [row]}))
    answer = client.ask(table, "insert", content=rows, params=parameters, timeout=INSERT_SECONDS)
    if answer is None or answer.status_code >= 500:
        return Result.UNKNOWN
    return Result.DONE if client.expect("insert", answer, 200, 409) else Result.REFUSED


def _wrote(client: Client, table: StormTable, row: int, how: str, result: Result) -> None:
    client.journal.rows.append(RowWrite(table.name, row, how, result))
    if result is Result.DONE:
        table.acknowledge()


def read_rows(client: Client) -> None:
    """Counts at least the rows acknowledged before; lists and describes the table on the way."""
    table = _row_table(client)
    acknowledged = table.acknowledged
    answer = client.ask(table, "count_rows", {}, timeout=INSERT_SECONDS)
    if client.expect("count_rows", answer, 200) and answer is not None and answer.json() < acknowledged:
        client.journal.contradictions.append(
            f"{table.name}: count_rows answered {answer.json()} after {acknowledged} rows were acknowledged"
        )
    client.expect("describe", client.ask(table, "describe", {}), 200)
    known = table.known
    listed = client.ask(table, "version/list?limit=5&descending=true")
    if client.expect("version/list", listed, 200) and listed is not None:
        latest: int = listed.json()["versions"][0]["version"]
        if latest < known:
            client.journal.contradictions.append(f"{table.name}: latest is {latest} after {known} was seen")
        table.saw(latest)


def use_refs(client: Client) -> None:
    if client.chance.random() < 0.5:
        _use_tag(client)
    else:
        _use_branch(client)


def _use_tag(client: Client) -> None:
    table = client.chance.choice(client.tables.rows)
    name = f"tag-{next(client.numbers)}"
    version = client.chance.randint(1, table.known)
    made = client.ask(table, "tags/create", {"tag": name, "version": version}, timeout=INSERT_SECONDS)
    if not client.expect("tags/create", made, 200):
        return
    shown = client.ask(table, "tags/version", {"tag": name})
    if client.expect("tags/version", shown, 200) and shown is not None and shown.json()["version"] != version:
        client.journal.contradictions.append(f"{table.name}: tag of {version} names {shown.text}")
    client.expect("tags/delete", client.ask(table, "tags/delete", {"tag": name}, timeout=INSERT_SECONDS), 200)


def _use_branch(client: Client) -> None:
    """A branch from the empty first version: it holds the rows inserted into it, and no others."""
    table = client.chance.choice(client.tables.rows)
    name = f"branch-{next(client.numbers)}"
    asked = {"name": name, "from_version": 1}
    made = client.ask(table, "branches/create", asked, timeout=INSERT_SECONDS)
    if not client.expect("branches/create", made, 200):
        return
    results = [_insert(client, table, next(client.numbers), {"branch": name}) for _ in range(BRANCH_ROWS)]
    counted = client.ask(table, "count_rows", {"branch": name}, timeout=INSERT_SECONDS)
    if client.expect("count_rows", counted, 200) and counted is not None:
        least = results.count(Result.DONE)
        if not least <= counted.json() <= least + results.count(Result.UNKNOWN):
            client.journal.contradictions.append(
                f"{table.name}: {name} has {counted.json()} rows after {results}"
            )
    deleted = client.ask(table, "branches/delete", {"name": name}, timeout=INSERT_SECONDS)
    client.expect("branches/delete", deleted, 200)


def clean_up(client: Client) -> None:
    table = client.chance.choice(client.tables.cleaned)
    if client.chance.random() < 0.5:
        lance.dataset(str(table.directory)).cleanup_old_versions(CLEANED_AFTER)
        client.journal.did("clean-up by location")
        return
    shown = client.ask(table, "version/describe", {})
    if not client.expect("version/describe", shown, 200) or shown is None:
        return
    latest: int = shown.json()["version"]["version"]
    ranges = [{"start_version": 1, "end_version": max(1, latest - KEPT_VERSIONS)}]
    deleted = client.ask(table, "version/delete", {"ranges": ranges}, timeout=INSERT_SECONDS)
    client.expect("version/delete", deleted, 200)
    client.journal.did("clean-up through the catalog")


ACTIONS: Final[Mapping[Kind, Callable[[Client], None]]] = {
    Kind.COMMIT: commit_manifest,
    Kind.PUT: put_manifest,
    Kind.READ: read_manifest,
    Kind.BATCH: commit_batch,
    Kind.APPEND: append,
    Kind.APPEND_BY_LOCATION: append_by_location,
    Kind.INSERT: insert,
    Kind.REFS: use_refs,
    Kind.READ_ROWS: read_rows,
    Kind.CLEAN_UP: clean_up,
}
