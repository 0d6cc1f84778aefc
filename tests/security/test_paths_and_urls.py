"""Every text of every route as a path or address that leads out of the warehouse.

The requests are those of the permission matrix, which succeed as they are. In each, one text at a time is
replaced by a path to what lies outside, or by the address of a service that only the server can reach. Fields
that name places are added where a request has none. Nothing outside may be read, written or connected to.
"""

from __future__ import annotations

import copy
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from zlib import crc32

import httpx
import lance
import pyarrow as pa
import pytest

from tests.conftest import start_server
from tests.protocol.permissions.iceberg_rows import ICEBERG_ROWS
from tests.protocol.permissions.lance_computed_rows import LANCE_COMPUTED_ROWS
from tests.protocol.permissions.lance_table_rows import LANCE_TABLE_ROWS
from tests.protocol.permissions.management_rows import MANAGEMENT_ROWS
from tests.protocol.permissions.matrix import OWNER, SECRET, Request, Row, key_of
from tests.protocol.permissions.objects import Objects
from tests.security.counting import count_attack

ROWS: Final = (*MANAGEMENT_ROWS, *LANCE_TABLE_ROWS, *LANCE_COMPUTED_ROWS, *ICEBERG_ROWS)
# One of so many attacks, always the same ones; `make security` tries all of them.
SHARE: Final = int(os.environ.get("TIDEMILL_ATTACK_SHARE", "12"))
MARK: Final = "what-is-outside-7d1c"
NAMED_PLACES: Final = (
    "location",
    "manifest_path",
    "metadata-location",
    "namespace_path",
    "storage_location",
    "table_uri",
)


@dataclass(frozen=True)
class Outside:
    """What an attacker is after: files beside the root of the server, and a service on its machine."""

    folder: Path
    root: Path
    port: int
    connections: list[str]

    def files(self) -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in self.folder.rglob("*")}

    def paths(self) -> tuple[str, ...]:
        table, up = self.folder / "loot.lance", f"../../../{self.folder.name}/loot.lance"
        return (
            str(table),
            f"file://{table}",
            f"file://localhost{table}",
            up,
            f"..{quote('/../../', safe='')}{self.folder.name}/loot.lance",
            f"{self.root}/warehouse/../../{self.folder.name}/loot.lance",
            f"{self.root}/warehouse/link.lance",
            str(self.folder / "metadata" / "v1.metadata.json"),
            f"{self.folder}/loot.lance/_versions/1.manifest",
            "\\..\\..\\" + self.folder.name,
            f"{table}\0.lance",
            "..",
        )

    def addresses(self) -> tuple[str, ...]:
        at = f"127.0.0.1:{self.port}"
        return (
            f"http://{at}/loot.lance",
            f"https://{at}/v1.metadata.json",
            f"s3://loot@{at}/loot",
            f"s3+http://{at}/loot",
            f"hdfs://{at}/loot",
            f"jdbc:postgresql://{at}/loot",
            f"git+http://{at}/loot.git",
            f"loot @ http://{at}/loot-1.0-py3-none-any.whl",
            f"--index-url=http://{at}/",
            f"\\\\127.0.0.1@{self.port}\\loot",
        )


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    folder, root = tmp_path_factory.mktemp("outside"), tmp_path_factory.mktemp("lake")
    lance.write_dataset(pa.table({"id": [1], "text": [MARK]}), folder / "loot.lance")
    metadata = folder / "metadata" / "v1.metadata.json"
    metadata.parent.mkdir()
    metadata.write_text(json.dumps({"format-version": 2, "location": str(folder), "properties": {"p": MARK}}))
    (root / "warehouse").mkdir()
    (root / "warehouse" / "link.lance").symlink_to(folder / "loot.lance")
    connections: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Outside(folder, root, listener.getsockname()[1], connections)
        threading.Thread(target=_note_connections, args=(listener, connections), daemon=True).start()
        yield found


def _note_connections(listener: socket.socket, connections: list[str]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(5)
            connections.append(repr(connection.recv(200)))


@pytest.fixture(scope="module")
def http(outside: Outside) -> Iterator[httpx.Client]:
    clients = json.dumps({OWNER: {"secret": SECRET}})
    server = start_server(outside.root, "--no-worker", TIDEMILL_CLIENTS=clients)
    with httpx.Client(base_url=server.url, timeout=60, headers=key_of(OWNER), trust_env=False) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def objects(http: httpx.Client) -> Objects:
    return Objects(http)


def variants(request: Request, values: tuple[str, ...]) -> Iterator[tuple[str, Request]]:
    """The request with one text replaced, or with one more field that names a place."""
    for value in values:
        for name in request.parameters:
            yield f"{name}={value}", replace(request, parameters={**request.parameters, name: value})
        for name in request.options.get("params", {}):
            yield f"?{name}={value}", with_option(request, "params", {name: value})
        body = request.options.get("json")
        for place in places_in(body):
            yield f"{place}={value}", _with_json(request, put(body, place, value))
        if isinstance(body, dict):
            for name in NAMED_PLACES:
                yield f"+{name}={value}", _with_json(request, {**body, name: value})
            options = {"storage_options": {"aws_endpoint": value, "aws_allow_http": "true"}}
            yield f"+storage_options={value}", _with_json(request, {**body, **options})
            properties = {"write.data.path": value, "write.metadata.path": value, "s3.endpoint": value}
            yield f"+properties={value}", _with_json(request, {**body, "properties": properties})


def with_option(request: Request, name: str, changes: Mapping[str, str]) -> Request:
    return replace(request, options={**request.options, name: {**request.options[name], **changes}})


def _with_json(request: Request, body: Any) -> Request:
    return replace(request, options={**request.options, "json": body})


def places_in(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON value has texts."""
    if isinstance(value, str):
        yield here
    elif isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from places_in(entry, (*here, key))


def put(value: Any, place: tuple[Any, ...], text: str) -> Any:
    if not place:
        return text
    changed = copy.copy(value)
    changed[place[0]] = put(value[place[0]], place[1:], text)
    return changed


def is_tried(name: str) -> bool:
    return crc32(name.encode()) % SHARE == 0


def send(http: httpx.Client, row: Row, request: Request) -> httpx.Response | None:
    values = {name: quote(value, safe="$.") for name, value in request.parameters.items()}
    try:
        return http.request(row.method, row.pattern.format(**values), **request.options)
    except httpx.InvalidURL:
        return None


def attack(kind: str, http: httpx.Client, row: Row, request: Request, values: tuple[str, ...]) -> list[str]:
    """What got through or crashed."""
    found = []
    for name, variant in variants(request, values):
        if not is_tried(f"{row} {name}"):
            continue
        answer = send(http, row, variant)
        if answer is None:
            continue
        has_read = MARK in answer.text
        count_attack(kind, status=answer.status_code, got_through=has_read)
        if has_read or (answer.status_code >= 500 and answer.status_code != 501):
            found.append(f"{row} {name}: {answer.status_code} {answer.text[:200]}")
    return found


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_no_text_leads_out_of_the_warehouse_or_to_another_service(
    http: httpx.Client, objects: Objects, outside: Outside, row: Row
) -> None:
    request, before = row.prepare(objects), outside.files()
    assert attack("paths out of the warehouse", http, row, request, outside.paths()) == []
    assert attack("addresses of other services", http, row, request, outside.addresses()) == []
    count_attack("addresses of other services", got_through=bool(outside.connections), times=0)
    assert outside.connections == []
    assert outside.files() == before
