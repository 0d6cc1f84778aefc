"""Logins, refusals and changes in the audit: what is recorded, who sees it, and how it is shown.

That every route leaves the row it should is part of the permission matrix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

import tidemill
from tests.e2e.command import as_json, printed, tidemill_command
from tests.e2e.waiting import eventually
from tests.protocol.permissions.audit_rows import ROUTES, UNLIMITED, waited_for
from tests.protocol.permissions.lance_table_rows import create_versions
from tests.protocol.permissions.matrix import AWAY, HOME, NOBODY, OWNER, ROOT, SECRET, key_of
from tests.protocol.permissions.objects import Objects, new_name
from tests.protocol.permissions.test_permissions import ROWS, Stand, owner_of, running

SCHEMA: Final = Path(__file__).resolve().parents[3] / "docs/protocols/audit.md"
TOKENS: Final = "POST /iceberg/v1/oauth/tokens"
HOME_ADMIN: Final = "home-admin"
GRANTS: Final = {
    OWNER: {ROOT: ["admin"]},
    NOBODY: {"elsewhere": ["admin"]},
    HOME_ADMIN: {HOME: ["admin"], AWAY: ["write"]},
}
CLIENTS: Final = {name: {"secret": SECRET, "grants": held} for name, held in GRANTS.items()}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    root = tmp_path_factory.mktemp("audited")
    with running(root, CLIENTS, **UNLIMITED) as (server, http), owner_of(server) as owner:
        yield Stand(server, http, Objects(owner))


def test_every_mutating_route_has_a_row_that_proves_it() -> None:
    mutating = {name for name, route in ROUTES.items() if route.is_mutation}
    assert mutating - {row.route for row in ROWS} == {TOKENS}


def only_row(stand: Stand, answer: httpx.Response) -> dict[str, Any]:
    [found] = waited_for(stand.server.root, [answer.headers["x-request-id"]])
    return found


def login(stand: Stand, client_id: str, secret: str) -> httpx.Response:
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
    return stand.http.post(TOKENS.partition(" ")[2], data=form)


def test_a_login_is_a_row(local: Stand) -> None:
    answer = login(local, NOBODY, SECRET)
    assert answer.is_success
    found = only_row(local, answer)
    assert (found["principal"], found["decision"], found["operation"]) == (NOBODY, "allowed", TOKENS)


def test_a_failed_login_is_a_row_of_whom_it_claimed_to_be(local: Stand) -> None:
    answer = login(local, OWNER, "guessed")
    assert answer.status_code == 401
    found = only_row(local, answer)
    assert (found["principal"], found["is_claimed"], found["decision"]) == (OWNER, 1, "denied")
    assert (found["status"], found["error_code"]) == (401, "unauthenticated")


def test_a_wrong_key_is_a_row_that_does_not_repeat_unknown_names(local: Stand) -> None:
    answer = local.http.get("/api/v1/jobs", headers={"x-api-key": "my-secret-without-an-id"})
    assert answer.status_code == 401
    found = only_row(local, answer)
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
    own = eventually(lambda: events(local, NOBODY, operation="namespace/{id}/create"), "the refusal")
    assert {event["principal"] for event in own} == {NOBODY}
    assert events(local, NOBODY, object=f"home.{name}") == []
    [made] = events(local, OWNER, object=f"home.{name}")
    assert made["objects"] == [{"kind": "namespace", "levels": ["home", name]}]


def test_an_administrator_of_a_namespace_sees_what_concerns_it_and_no_objects_elsewhere(local: Stand) -> None:
    request = create_versions(local.objects)
    local.objects.ask("POST", "/v1/table/version/batch-create", **request.options)
    operation = {"operation": "batch-create"}
    [whole] = events(local, OWNER, object=HOME, **operation)
    assert {one["levels"][0] for one in whole["objects"]} == {HOME, AWAY}
    [seen] = events(local, HOME_ADMIN, object=HOME, **operation)
    assert {one["levels"][0] for one in seen["objects"]} == {HOME}
    assert events(local, HOME_ADMIN, **operation) == events(local, HOME_ADMIN, object=AWAY, **operation) == []


def lines(stand: Stand) -> Iterator[dict[str, Any]]:
    for line in (stand.server.root / "server.log").read_bytes().splitlines():
        if line.startswith(b"{") and (found := json.loads(line))["event"] == "audit":
            yield found


def test_names_are_shown_without_characters_that_mislead(local: Stand) -> None:
    answer = local.http.post("/v1/namespace/a%E2%80%AEb/create", json={}, headers=key_of(NOBODY))
    assert answer.status_code == 403
    row = only_row(local, answer)
    assert json.loads(row["objects"]) == [{"kind": "namespace", "levels": ["a\u202eb"]}]
    request_id = answer.headers["x-request-id"]
    line = eventually(
        lambda: next((one for one in lines(local) if one["request_id"] == request_id), None), "the line"
    )
    assert line["objects"] == [{"kind": "namespace", "levels": ["a\\u202eb"]}]
    environment = {"TIDEMILL_URL": local.server.url, "TIDEMILL_CREDENTIAL": f"{OWNER}:{SECRET}"}
    shown = printed(tidemill_command("audit", "--request-id", request_id, environment=environment))
    assert "namespace a\\u202eb" in shown
    assert "\u202e" not in shown


def test_a_grant_names_who_gets_what_on_what(local: Stand) -> None:
    grant = {"client": NOBODY, "permissions": ["read", "write"], "namespace": [HOME]}
    for operation in ("/api/v1/auth/grants", "/api/v1/auth/grants/revoke"):
        answer = local.http.post(operation, json=grant, headers=key_of(OWNER))
        assert answer.is_success, answer.text
        assert json.loads(only_row(local, answer)["objects"]) == [
            {"kind": "client", "name": NOBODY},
            {"kind": "permission", "name": "read"},
            {"kind": "permission", "name": "write"},
            {"kind": "namespace", "levels": [HOME]},
        ]


def test_a_change_of_members_names_role_and_member(local: Stand) -> None:
    role = local.objects.role()
    answer = local.http.put(f"/api/v1/auth/roles/{role}/members/{NOBODY}", json={}, headers=key_of(OWNER))
    assert answer.is_success, answer.text
    named = [{"kind": "role", "name": role}, {"kind": "client", "name": NOBODY}]
    assert json.loads(only_row(local, answer)["objects"]) == named


def test_the_client_of_python_and_the_command_show_the_same(local: Stand) -> None:
    name = ".".join(local.objects.table(HOME).levels)
    with tidemill.connect(local.server.url, credential=f"{OWNER}:{SECRET}") as lake:
        found = lake.audit(object=name, decision="allowed")
    assert {event.principal for event in found} == {OWNER}
    assert {str(one) for event in found for one in event.objects} == {f"table {name}"}
    options = ("--object", name, "--decision", "allowed", "--json")
    environment = {"TIDEMILL_URL": local.server.url, "TIDEMILL_CREDENTIAL": f"{OWNER}:{SECRET}"}
    shown = as_json(tidemill_command("audit", *options, environment=environment))
    assert shown == [event.to_dict() for event in found]


# By the types of docs/protocols/audit.md.
TYPES: Final = {
    "UUID": lambda value: UUID(value).version == 7,
    "ISO": lambda value: datetime.fromisoformat(value).tzinfo is not None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
}


def schema() -> dict[str, str]:
    text = SCHEMA.read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)
    return {name: kind.strip() for name, kind in rows}


def test_responses_and_lines_have_the_published_fields(local: Stand) -> None:
    login(local, OWNER, "guessed")
    local.objects.namespace(HOME)
    published = schema()
    assert len(published) == 16
    found = events(local, OWNER, limit=1000)
    logged = list(lines(local))
    assert found
    assert logged
    for event in found:
        check_fields(event, published)
    for line in logged:
        check_fields(
            {name: value for name, value in line.items() if name not in {"event", "level", "timestamp"}},
            published,
        )


def check_fields(event: dict[str, Any], published: dict[str, str]) -> None:
    assert list(event) == list(published)
    for name, kind in published.items():
        if event[name] is None:
            assert "null" in kind, name
        else:
            assert TYPES[kind.split()[0]](event[name]), name
