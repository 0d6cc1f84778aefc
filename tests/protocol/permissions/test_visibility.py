"""Listings show what the caller may read and the way there, and tell nothing about anything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.protocol.permissions.matrix import OWNER, SECRET, key_of
from tests.protocol.permissions.objects import Objects
from tests.protocol.permissions.test_permissions import Stand, owner_of, running

CLIENTS: Final[dict[str, Any]] = {
    OWNER: {"secret": SECRET, "grants": {"": ["admin"]}},
    "team": {"secret": SECRET, "grants": {"org.team_b": ["read", "compute"]}},
    "deep": {"secret": SECRET, "grants": {"home.inner.leaf": ["read"]}},
    "stranger": {"secret": SECRET, "grants": {}},
}
# "away" and "home" are there already.
NAMESPACES: Final = (
    *("org", "org$team_a", "org$team_b", "org$team_b$inner", "org$team_c"),
    *("home$inner", "home$inner$leaf", "zoo"),
)
FIELD: Final = {"id": 1, "name": "x", "type": "long", "required": True}
TABLE: Final = {"schema": {"type": "struct", "fields": [FIELD]}}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with running(tmp_path_factory.mktemp("seen"), CLIENTS) as (server, http), owner_of(server) as owner:
        objects = Objects(owner)
        for ident in NAMESPACES:
            objects.ask("POST", f"/v1/namespace/{ident}/create", {"properties": {"contact": "someone"}})
        for team in ("team_a", "team_b"):
            objects.ask(
                "POST", f"/iceberg/v1/namespaces/org%1F{team}/tables", {"name": f"ice_{team}", **TABLE}
            )
        yield Stand(server, http, objects)


@pytest.fixture(scope="module")
def tables(stand: Stand) -> list[str]:
    """One of each team."""
    return [stand.objects.ident("org$team_a"), stand.objects.ident("org$team_b")]


def get(stand: Stand, client: str, path: str, **params: str | int) -> httpx.Response:
    return stand.http.get(path, headers=key_of(client), params=params)


@pytest.mark.parametrize(
    ("client", "parent", "children"),
    [
        ("team", "", ["org"]),
        ("team", "org", ["team_b"]),
        ("team", "org$team_b", ["inner"]),
        ("deep", "", ["home"]),
        ("deep", "home", ["inner"]),
        ("deep", "home$inner", ["leaf"]),
    ],
)
def test_a_team_can_browse_from_the_root_down_to_its_namespace(
    stand: Stand, client: str, parent: str, children: list[str]
) -> None:
    path = f"/v1/namespace/{parent}/list" if parent else "/v1/namespace/list"
    assert get(stand, client, path).json()["namespaces"] == children
    params = {"parent": parent.replace("$", "\x1f")} if parent else {}
    answer = get(stand, client, "/iceberg/v1/namespaces", **params)
    assert [levels[-1] for levels in answer.json()["namespaces"]] == children


def test_pages_are_full_however_many_hidden_names_lie_between(stand: Stand) -> None:
    first = get(stand, OWNER, "/v1/namespace/list", limit=1).json()
    assert first["namespaces"] == ["away"]
    page = get(stand, "team", "/v1/namespace/list", limit=1).json()
    assert (page["namespaces"], page.get("page_token")) == (["org"], None)
    page = get(stand, "team", "/iceberg/v1/namespaces", pageSize=1).json()
    assert (page["namespaces"], page["next-page-token"]) == ([["org"]], None)


def test_those_who_pass_through_a_namespace_do_not_see_its_properties(stand: Stand) -> None:
    for client, properties in ((OWNER, {"contact": "someone"}), ("team", {})):
        answer = stand.http.post("/v1/namespace/org/describe", headers=key_of(client), json={})
        assert properties.items() <= answer.json().get("properties", {}).items()
        assert ("contact" in answer.text) == bool(properties)
        answer = get(stand, client, "/iceberg/v1/namespaces/org")
        assert ("contact" in answer.json()["properties"]) == bool(properties)


def test_what_others_have_looks_like_what_does_not_exist(stand: Stand, tables: list[str]) -> None:
    for there, missing in (("org$team_a", "org$team_x"), ("zoo", "zo"), ("org$team_a$t", "org$team_a$u")):
        for path in ("/v1/namespace/{}/list", "/v1/namespace/{}/table/list"):
            texts = []
            for name in (there, missing):
                answer = get(stand, "team", path.format(name))
                assert answer.status_code == 403
                body = {key: text for key, text in answer.json().items() if key != "instance"}
                texts.append(str(body).replace(name.replace("$", "."), "?"))
            assert texts[0] == texts[1]


def test_tables_of_others_are_in_no_listing(stand: Stand, tables: list[str]) -> None:
    theirs, own = tables
    listed = get(stand, "team", "/v1/table").json()["tables"]
    assert own in listed
    assert theirs not in listed
    assert get(stand, "team", "/v1/namespace/org/table/list").json()["tables"] == []
    assert get(stand, "team", "/iceberg/v1/namespaces/org/tables").json()["identifiers"] == []
    names = get(stand, "team", "/iceberg/v1/namespaces/org%1Fteam_b/tables").json()["identifiers"]
    assert [name["name"] for name in names] == ["ice_team_b"]
    assert get(stand, "team", "/iceberg/v1/namespaces/org%1Fteam_a/tables").status_code == 403


def test_a_stranger_sees_nothing(stand: Stand) -> None:
    for path in ("/v1/namespace/list", "/v1/table", "/iceberg/v1/namespaces", "/api/v1/jobs"):
        assert get(stand, "stranger", path).status_code == 403


def test_jobs_of_others_are_not_listed(stand: Stand) -> None:
    job = stand.objects.still_job
    assert job in get(stand, OWNER, "/api/v1/jobs").text
    answer = get(stand, "team", "/api/v1/jobs")
    assert (answer.status_code, job in answer.text) == (200, False)


def test_pyiceberg_walks_from_the_root_to_the_tables_of_the_team(stand: Stand) -> None:
    uri = f"{stand.server.url}/iceberg"
    settings = {"uri": uri, "oauth2-server-uri": f"{uri}/v1/oauth/tokens", "credential": f"team:{SECRET}"}
    catalog = RestCatalog("lake", **settings)
    found, ways = [], [()]
    while ways:
        way = ways.pop()
        children = catalog.list_namespaces(way)
        ways += children
        for child in children:
            found += catalog.list_tables(child)
    assert found == [("org", "team_b", "ice_team_b")]
