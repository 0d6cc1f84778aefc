"""Every route that changes something leaves one audit row, whether it succeeds or is refused; others none."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from tests.object_store import ObjectStore
from tests.protocol.permissions.matrix import (
    NOBODY,
    OWNER,
    Request,
    Row,
    client_with,
    client_without,
    key_of,
)
from tests.protocol.permissions.objects import Objects, new_name
from tests.protocol.permissions.test_permissions import (
    CLIENTS,
    LOCAL_ROWS,
    OBJECT_ROWS,
    ROWS,
    Stand,
    owner_of,
    running,
)
from tidemill.protocols.iceberg.service import ICEBERG_SERVICE
from tidemill.protocols.lance.service import LANCE_SERVICE
from tidemill.protocols.management.service import MANAGEMENT_SERVICE

SERVICES: Final = (MANAGEMENT_SERVICE, ICEBERG_SERVICE, LANCE_SERVICE)
ROUTES: Final = {f"{route.method} {route.pattern}": route for one in SERVICES for route in one.routes}
TOKENS: Final = "POST /iceberg/v1/oauth/tokens"
# What changes files of a table alone, or is answered without a change; its row is written after the fact.
OUTSIDE_THE_DATABASE: Final = {
    "POST /v1/jobs/cancel of a registration, which is over",
    "POST /v1/table/{id}/tags/create",
    "POST /v1/table/{id}/tags/update",
    "POST /v1/table/{id}/tags/delete",
    "POST /iceberg/v1/namespaces/{namespace}/tables that are staged",
    "POST /iceberg/v1/{prefix}/namespaces/{namespace}/tables that are staged",
}
REFUSED_PER_MINUTE: Final = "100000"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    root = tmp_path_factory.mktemp("audited")
    settings = {"TIDEMILL_AUDIT_REFUSALS_PER_MINUTE": REFUSED_PER_MINUTE}
    with running(root, CLIENTS, **settings) as (server, http), owner_of(server) as owner:
        yield Stand(server, http, Objects(owner))


@pytest.fixture(scope="module")
def remote(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    settings = {
        "TIDEMILL_WAREHOUSE": f"s3://{object_store.new_bucket()}/lake",
        "TIDEMILL_S3_REMOTE_SIGNING": "true",
        "TIDEMILL_AUDIT_REFUSALS_PER_MINUTE": REFUSED_PER_MINUTE,
        **object_store.environment,
    }
    root = tmp_path_factory.mktemp("audited-s3")
    with running(root, CLIENTS, **settings) as (server, http), owner_of(server) as owner:
        yield Stand(server, http, Objects(owner, object_store.endpoint))


def stored(stand: Stand, request_id: str) -> list[dict[str, Any]]:
    database = f"file:{stand.server.root / 'catalog.db'}?mode=ro"
    with closing(sqlite3.connect(database, uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        query = "SELECT * FROM audit_events WHERE request_id = ? AND protocol != 'server'"
        return [dict(row) for row in connection.execute(query, [request_id])]


def waited_for(stand: Stand, request_id: str) -> list[dict[str, Any]]:
    """Refusals are written after the response."""
    deadline = time.monotonic() + 30
    while not (found := stored(stand, request_id)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def send(stand: Stand, client: str, row: Row, request: Request) -> tuple[httpx.Response, str]:
    request_id = new_name()
    headers = {**request.options.get("headers", {}), "x-request-id": request_id}
    named = replace(request, options={**request.options, "headers": headers})
    return stand.send(client, row, named), request_id


def check_refused(stand: Stand, client: str, row: Row, request: Request) -> None:
    answer, request_id = send(stand, client, row, request)
    assert answer.status_code == 403
    [found] = waited_for(stand, request_id)
    assert (found["decision"], found["status"], found["error_code"]) == ("denied", 403, "permission_denied")
    assert (found["principal"], found["is_claimed"], found["is_committed"]) == (client, 0, 0)
    assert found["operation"] == row.route
    assert json.loads(found["objects"])


def check_row(stand: Stand, row: Row) -> None:
    request = row.prepare(stand.objects)
    for need in row.needs:
        check_refused(stand, client_without(need), row, request)
    client = client_with(row.needs)
    answer, request_id = send(stand, client, row, request)
    if not ROUTES[row.route].is_mutation:
        # What is stored before this response would be there by now.
        assert stored(stand, request_id) == []
        return
    [found] = stored(stand, request_id) if answer.is_success else waited_for(stand, request_id)
    assert found["principal"] == client
    assert found["address"] == "127.0.0.1"
    assert found["decision"] == ("allowed" if answer.is_success else "failed")
    if answer.is_success:
        assert found["is_committed"] == (str(row) not in OUTSIDE_THE_DATABASE), "not in its transaction"
        assert json.loads(found["objects"])


def test_every_mutating_route_has_a_row_that_proves_it() -> None:
    mutating = {name for name, route in ROUTES.items() if route.is_mutation}
    assert mutating - {row.route for row in ROWS} == {TOKENS}


@pytest.mark.parametrize("row", LOCAL_ROWS, ids=str)
def test_a_route_leaves_one_row_if_it_changes_something_or_is_refused(local: Stand, row: Row) -> None:
    check_row(local, row)


@pytest.mark.parametrize("row", OBJECT_ROWS, ids=str)
def test_a_signature_leaves_a_row_only_if_it_is_refused(remote: Stand, row: Row) -> None:
    check_row(remote, row)


def login(stand: Stand, client_id: str, secret: str) -> tuple[httpx.Response, str]:
    request_id = new_name()
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
    answer = stand.http.post(TOKENS.partition(" ")[2], data=form, headers={"x-request-id": request_id})
    return answer, request_id


def test_a_login_is_a_row(local: Stand) -> None:
    answer, request_id = login(local, NOBODY, "secret")
    assert answer.is_success
    [found] = stored(local, request_id)
    assert (found["principal"], found["decision"], found["operation"]) == (NOBODY, "allowed", TOKENS)


def test_a_failed_login_is_a_row_of_whom_it_claimed_to_be(local: Stand) -> None:
    answer, request_id = login(local, OWNER, "guessed")
    assert answer.status_code == 401
    [found] = waited_for(local, request_id)
    assert (found["principal"], found["is_claimed"], found["decision"]) == (OWNER, 1, "denied")
    assert (found["status"], found["error_code"]) == (401, "unauthenticated")


def test_a_wrong_key_is_a_row_that_does_not_repeat_unknown_names(local: Stand) -> None:
    request_id = new_name()
    headers = {"x-api-key": "my-secret-without-an-id", "x-request-id": request_id}
    assert local.http.get("/api/v1/jobs", headers=headers).status_code == 401
    [found] = waited_for(local, request_id)
    assert (found["principal"], found["is_claimed"], found["objects"]) == ("", 0, "[]")


def events(stand: Stand, client: str, **params: Any) -> list[dict[str, Any]]:
    answer = stand.http.get("/api/v1/audit", params=params, headers=key_of(client))
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["events"]
    return found


def test_the_audit_shows_others_their_own_events_alone(local: Stand) -> None:
    local.http.post("/v1/namespace/hidden/create", json={}, headers=key_of(NOBODY))
    name = new_name()
    local.objects.ask("POST", f"/v1/namespace/home${name}/create", {})
    deadline = time.monotonic() + 30
    while not (own := events(local, NOBODY, operation="namespace/{id}/create")):
        assert time.monotonic() < deadline
    assert {event["principal"] for event in own} == {NOBODY}
    assert events(local, NOBODY, object=f"home.{name}") == []
    [made] = events(local, OWNER, object=f"home.{name}")
    assert made["objects"] == [{"kind": "namespace", "levels": ["home", name]}]
