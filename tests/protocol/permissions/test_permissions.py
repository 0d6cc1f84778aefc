"""Every route of the three APIs refuses callers that lack a permission it needs, and serves all others.

The rows of the matrix say what each route needs. Each is tried over a socket, by clients that lack one of
the needs and have all else, by one that has nothing, and by one that has exactly the needs. All of them
leave in the audit what they should.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest

from tests.conftest import RunningServer, start_server
from tests.iceberg_requests import new_key
from tests.object_store import ObjectStore
from tests.protocol.permissions.audit_rows import ROUTES, UNLIMITED, Sent, check_audited
from tests.protocol.permissions.iceberg_rows import ICEBERG_ROWS, KEYED_ROWS, SIGNED_ROWS
from tests.protocol.permissions.lance_computed_rows import LANCE_COMPUTED_ROWS
from tests.protocol.permissions.lance_table_rows import LANCE_TABLE_ROWS
from tests.protocol.permissions.management_rows import MANAGEMENT_ROWS
from tests.protocol.permissions.matrix import (
    AWAY,
    HOME,
    NOBODY,
    OWNER,
    Need,
    Request,
    Row,
    client_with,
    client_without,
    clients_of,
    key_of,
    read,
    trusted,
)
from tests.protocol.permissions.objects import Objects
from tests.security.counting import count_attack

WAREHOUSE: Final = "tidemill"
WITHOUT_PREFIX, WITH_PREFIX = "/iceberg/v1/", "/iceberg/v1/{prefix}/"
# By the route, why it needs no permission.
OPEN: Final = {
    "GET /api/v1/health": "tells probes, which have no credential, whether the server can serve",
    "POST /iceberg/v1/oauth/tokens": "is where callers prove who they are",
    "GET /api/v1/audit": "shows every caller its own events, and more to administrators",
    "GET /api/v1/auth/whoami": "tells callers about themselves",
    "GET /api/v1/auth/grants": "lists the caller's own grants, and those on what it administers",
    "GET /iceberg/v1/config": "tells every client what the catalog can do, and nothing about what is in it",
}


def prefixed(row: Row) -> Row:
    """The same at the path that has the warehouse in it."""
    return replace(row, route=row.route.replace(WITHOUT_PREFIX, WITH_PREFIX))


LOCAL_ROWS: Final = (
    *MANAGEMENT_ROWS,
    *LANCE_TABLE_ROWS,
    *LANCE_COMPUTED_ROWS,
    *ICEBERG_ROWS,
    *map(prefixed, ICEBERG_ROWS),
)
OBJECT_ROWS: Final = (*SIGNED_ROWS, *map(prefixed, SIGNED_ROWS))
ROWS: Final = (*LOCAL_ROWS, *OBJECT_ROWS)
CLIENTS: Final = clients_of(ROWS)
REPLAYS: Final = [(row, need) for row in KEYED_ROWS for need in row.needs]


@dataclass(frozen=True)
class Stand:
    """A server, what its owner has put there, and a way to send requests as any client."""

    server: RunningServer
    http: httpx.Client
    objects: Objects

    def send(self, client: str, row: Row, request: Request) -> httpx.Response:
        options = dict(request.options)
        headers = {**options.pop("headers", {}), **key_of(client)}
        return self.http.request(row.method, path_of(row, request), headers=headers, **options)

    def state(self) -> Any:
        """What a refused request leaves as it is: the files, and all rows but those of the audit."""
        database = f"file:{self.server.root / 'catalog.db'}?mode=ro"
        with closing(sqlite3.connect(database, uri=True)) as connection:
            rows = [row for row in connection.iterdump() if '"audit_events"' not in row]
        return rows, {path: path.stat().st_mtime_ns for path in files_in(self.server.root / "warehouse")}


def files_in(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())


def path_of(row: Row, request: Request) -> str:
    values = {"prefix": WAREHOUSE, **request.parameters}
    return row.pattern.format(**{name: quote(value, safe="$") for name, value in values.items()})


@contextmanager
def running(
    root: Path, clients: dict[str, Any], **settings: str
) -> Iterator[tuple[RunningServer, httpx.Client]]:
    server = start_server(root, "--no-worker", TIDEMILL_CLIENTS=json.dumps(clients), **settings)
    try:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
            yield server, http
    finally:
        server.stop()


@contextmanager
def owner_of(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60, headers=key_of(OWNER), trust_env=False) as http:
        yield http


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    root = tmp_path_factory.mktemp("permissions")
    with running(root, CLIENTS, **UNLIMITED) as (server, http), owner_of(server) as owner:
        yield Stand(server, http, Objects(owner))


@pytest.fixture(scope="module")
def earlier(local: Stand) -> Iterator[Stand]:
    """A server over the same catalog that still trusts all clients, as before their grants were taken."""
    with running(local.server.root, trusted(CLIENTS)) as (server, http):
        yield Stand(server, http, local.objects)


@pytest.fixture(scope="module")
def remote(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    settings = {
        "TIDEMILL_WAREHOUSE": f"s3://{object_store.new_bucket()}/lake",
        "TIDEMILL_S3_REMOTE_SIGNING": "true",
        **UNLIMITED,
        **object_store.environment,
    }
    root = tmp_path_factory.mktemp("permissions-s3")
    with running(root, CLIENTS, **settings) as (server, http), owner_of(server) as owner:
        yield Stand(server, http, Objects(owner, object_store.endpoint))


def check_forbidden(answer: httpx.Response, need: Need | None = None) -> None:
    """The refusal in the form of its protocol; it names the permission and what it is missing on."""
    count_attack(
        "routes called without a permission", status=answer.status_code, got_through=answer.is_success
    )
    assert answer.status_code == 403, f"{answer.status_code} {answer.text}"
    if answer.request.method == "HEAD":
        return
    body, path = answer.json(), answer.request.url.path
    if path.startswith("/iceberg/"):
        code, message = body["error"]["type"], body["error"]["message"]
        assert code == "ForbiddenException"
    elif path.startswith("/api/"):
        code, message = body["error"]["code"], body["error"]["message"]
        assert code == "permission_denied"
    else:
        code, message = body["code"], body["error"]
        assert code == 15
    if need is not None and need.is_untold:
        assert need.namespace not in message.partition("lacks")[2].split()
    elif need is not None:
        resource = need.namespace or "(root)"
        assert f"lacks the permission '{need.permission.value}' on {resource}" in message


def check_row(stand: Stand, row: Row) -> None:
    request = row.prepare(stand.objects)
    before = stand.state()
    needs: list[Need | None] = [*row.needs]
    if not any(need.is_browsing for need in row.needs):
        needs.append(None)
    refused: list[Sent] = []
    for need in needs:
        client = NOBODY if need is None else client_without(need)
        refused.append(Sent(client, stand.send(client, row, request)))
        check_forbidden(refused[-1].answer, need)
    assert stand.state() == before
    client = client_with(row.needs)
    answer = stand.send(client, row, request)
    is_served = answer.is_success if row.status is None else answer.status_code == row.status
    assert is_served, f"{answer.status_code} {answer.text}"
    check_audited(stand.server.root, row, refused, Sent(client, answer))


def test_every_route_is_in_the_matrix_and_every_row_has_a_route() -> None:
    assert {row.route for row in ROWS} | OPEN.keys() == ROUTES.keys()
    assert {row.route for row in ROWS}.isdisjoint(OPEN)


def test_rows_have_names_of_their_own() -> None:
    assert len(set(map(str, ROWS))) == len(ROWS)


@pytest.mark.parametrize("row", LOCAL_ROWS, ids=str)
def test_a_route_is_for_those_with_its_permissions_alone(local: Stand, row: Row) -> None:
    check_row(local, row)


@pytest.mark.parametrize("row", OBJECT_ROWS, ids=str)
def test_a_signature_is_for_those_who_may_send_the_request(remote: Stand, row: Row) -> None:
    check_row(remote, row)


@pytest.mark.parametrize(("row", "need"), REPLAYS, ids=str)
def test_a_receipt_is_not_shown_to_those_who_lost_a_permission(
    local: Stand, earlier: Stand, row: Row, need: Need
) -> None:
    request = row.prepare(local.objects)
    keyed = replace(request, options={**request.options, "headers": {"Idempotency-Key": new_key()}})
    client = client_without(need)
    answer = earlier.send(client, row, keyed)
    assert answer.is_success, f"{answer.status_code} {answer.text}"
    check_forbidden(local.send(client, row, keyed), need)


@pytest.mark.parametrize("route", OPEN)
def test_an_open_route_serves_those_without_any_grant(local: Stand, route: str) -> None:
    form = {"grant_type": "client_credentials", "client_id": NOBODY, "client_secret": "secret"}
    method, path = route.split()
    answer = local.http.request(method, path, headers=key_of(NOBODY), data=form if method == "POST" else None)
    assert answer.is_success, answer.text


def lineage(stand: Stand, ident: str, client: str) -> Any:
    return stand.http.get(f"/api/v1/tables/{ident}/lineage", headers=key_of(client)).json()


def test_lineage_leaves_out_what_the_caller_cannot_read(local: Stand) -> None:
    view = local.objects.still_view
    [source] = lineage(local, view, OWNER)["upstream"]
    assert source["object"] == local.objects.still_away.levels
    assert lineage(local, view, client_with((read(HOME),)))["upstream"] == []
    assert lineage(local, view, client_without(read(AWAY)))["upstream"] == []
