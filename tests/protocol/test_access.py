"""Access is managed at run time: what is granted or taken back counts on every server within two seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import lancedb
import pytest
from pyiceberg.catalog.rest import RestCatalog
from typer.testing import CliRunner

import tidemill
from tests.conftest import RunningServer, start_server
from tests.iceberg_requests import new_table, new_view
from tests.postgres import PostgresCluster, PostgresMissing
from tests.protocol.wire import TableOnWire, some_rows
from tidemill.cli.main import app
from tidemill.sdk.auth import Auth
from tidemill.sdk.errors import Forbidden, TidemillRequestError, Unauthenticated
from tidemill.sdk.lake import Lake

OWNER: Final = "owner:the-owner-of-it-all"
LIMITED: Final = "limited:with-a-namespace"
CLIENTS: Final[dict[str, Any]] = {
    "owner": {"secret": OWNER.partition(":")[2]},
    "limited": {"secret": LIMITED.partition(":")[2], "grants": {"desk": ["admin"]}},
}
EFFECT_SECONDS: Final = 2.0
OUTSIDE_OF_DESK: Final[tuple[dict[str, Any], ...]] = (
    {"namespace": "home"},
    {"namespace": []},
    {"table": "home.t"},
    {"function": "f"},
)
TOKENS: Final = "/iceberg/v1/oauth/tokens"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('access') / 'shared.db'}"
        return
    try:
        cluster = PostgresCluster()
    except PostgresMissing as missing:
        pytest.skip(str(missing))
    try:
        cluster.create_database("access")
        yield cluster.url("access")
    finally:
        cluster.stop()


@dataclass(frozen=True)
class Servers:
    """Two servers on one database, and the owner at the first of them."""

    here: RunningServer
    there: RunningServer
    lake: Lake

    @property
    def auth(self) -> Auth:
        return self.lake.auth

    def as_client(self, api_key: str) -> httpx.Client:
        """At the other server."""
        return httpx.Client(base_url=self.there.url, headers={"x-api-key": api_key}, trust_env=False)


def started(root: Path, database: str, warehouse: Path) -> RunningServer:
    return start_server(
        root,
        "--no-worker",
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
        TIDEMILL_DATABASE_URL=database,
        TIDEMILL_WAREHOUSE=str(warehouse),
        TIDEMILL_SECRET_KEY="MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
        TIDEMILL_FAILED_LOGINS_PER_ADDRESS="100000",
        TIDEMILL_FAILED_LOGINS_PER_CLIENT="100000",
    )


@pytest.fixture(scope="module")
def servers(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    here, there = (started(tmp_path_factory.mktemp(name), database, warehouse) for name in ("one", "two"))
    with tidemill.connect(here.url, credential=OWNER) as lake:
        for name in ("desk", "home", "away"):
            lake.create_namespace(name)
        yield Servers(here, there, lake)
    for server in (here, there):
        server.stop()


@pytest.fixture
def name() -> str:
    return f"n{uuid4().hex[:12]}"


@pytest.fixture
def owner(servers: Servers) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=servers.here.url, headers={"x-api-key": OWNER}, trust_env=False) as http:
        yield http


def listing(http: httpx.Client) -> int:
    return http.get("/v1/namespace/home/table/list").status_code


def eventually(answers: Callable[[], int], status: int) -> None:
    """The answer has to change in time, and then to stay."""
    changed_at = time.monotonic()
    while answers() != status:
        assert time.monotonic() - changed_at < EFFECT_SECONDS, f"still {answers()}"
    assert [answers() for _ in range(20)] == [status] * 20


def test_a_new_client_may_do_nothing_until_it_is_granted_something_and_after_it_is_revoked(
    servers: Servers, name: str
) -> None:
    made = servers.auth.create_client(name)
    with servers.as_client(made.api_key) as http:
        eventually(lambda: listing(http), 403)
        servers.auth.grant("read", client=name, namespace="home")
        eventually(lambda: listing(http), 200)
        assert http.get("/v1/namespace/away/table/list").status_code == 403
        assert servers.auth.revoke("read", client=name, namespace="home") == 1
        eventually(lambda: listing(http), 403)


def test_a_removed_key_or_client_and_its_tokens_are_refused_everywhere(servers: Servers, name: str) -> None:
    first = servers.auth.create_client(name)
    second = servers.auth.create_key(name, "second")
    servers.auth.grant("read", client=name, namespace="home")
    with servers.as_client(first.api_key) as by_key, servers.as_client(second.api_key) as other:
        eventually(lambda: listing(other), 200)
        form = dict(zip(("client_id", "client_secret"), first.api_key.split(":"), strict=True))
        token = by_key.post(TOKENS, data={"grant_type": "client_credentials", **form}).json()["access_token"]
        bearer = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=servers.there.url, headers=bearer, trust_env=False) as by_token:
            assert (listing(by_key), listing(by_token)) == (200, 200)
            servers.auth.remove_key(name, "default")
            eventually(lambda: listing(by_token), 401)
            assert (listing(by_key), listing(other)) == (401, 200)
            exchange = {
                "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                "subject_token": token,
                "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }
            assert by_token.post(TOKENS, data=exchange).status_code == 400
        servers.auth.remove_client(name)
        eventually(lambda: listing(other), 401)


def test_roles_bring_their_grants_to_their_members_and_take_them_back(servers: Servers, name: str) -> None:
    made = servers.auth.create_client(name)
    servers.auth.create_role(f"r-{name}")
    servers.auth.grant(["read", "write"], role=f"r-{name}", namespace="home")
    with servers.as_client(made.api_key) as http:
        servers.auth.add_member(f"r-{name}", name)
        eventually(lambda: listing(http), 200)
        servers.auth.remove_member(f"r-{name}", name)
        eventually(lambda: listing(http), 403)
        servers.auth.add_member(f"r-{name}", name)
        eventually(lambda: listing(http), 200)
        servers.auth.remove_role(f"r-{name}")
        eventually(lambda: listing(http), 403)


def test_a_key_ends_when_it_expires(servers: Servers, name: str) -> None:
    servers.auth.create_client(name)
    servers.auth.grant("read", client=name, namespace="home")
    brief = servers.auth.create_key(name, "brief", expires_in=timedelta(seconds=4))
    with servers.as_client(brief.api_key) as http:
        eventually(lambda: listing(http), 200)
        deadline = time.monotonic() + 30
        while listing(http) == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "The key 'brief'" in http.get("/v1/namespace/home/table/list").json()["error"]


def test_a_restricted_key_does_less_than_its_client(servers: Servers, name: str) -> None:
    servers.auth.create_client(name)
    servers.auth.grant("manage", client=name, namespace=[])
    reading = servers.auth.create_key(name, "reading", permissions=["read"], namespace="home")
    with servers.as_client(reading.api_key) as http:
        eventually(lambda: listing(http), 200)
        assert http.get("/v1/namespace/list").json()["namespaces"] == ["home"]
        assert http.get("/v1/namespace/away/table/list").status_code == 403
        assert http.post(f"/v1/namespace/home${name}/create", json={}).status_code == 403
        # Nor can it make itself another key.
        assert http.post(f"/api/v1/auth/clients/{name}/keys", json={"name": "more"}).status_code == 403
        said = http.get("/api/v1/auth/whoami").json()
        assert said["scope"] == {"permissions": ["read"], "namespace": ["home"]}
        assert (said["principal"], said["key"]) == (name, "reading")


def test_a_client_makes_keys_for_itself_that_end_with_its_own(servers: Servers, name: str) -> None:
    servers.auth.create_client(name)
    brief = servers.auth.create_key(name, "brief", expires_in=timedelta(hours=1))
    with tidemill.connect(servers.here.url, credential=brief.api_key) as lake:
        lake.auth.create_key(name, "shorter", expires_in=timedelta(minutes=1))
        for expires_in in (None, timedelta(hours=2)):
            with pytest.raises(TidemillRequestError, match="expires_in_seconds"):
                lake.auth.create_key(name, "longer", expires_in=expires_in)
        with pytest.raises(Forbidden):
            lake.auth.list_keys("somebody")
        assert {key.name for key in lake.auth.list_keys(name)} == {"default", "brief", "shorter"}


def test_the_last_use_of_a_key_is_recorded(servers: Servers, name: str) -> None:
    made = servers.auth.create_client(name)
    assert servers.auth.list_keys(name)[0].last_used_at is None
    with servers.as_client(made.api_key) as http:
        eventually(lambda: listing(http), 403)
    deadline = time.monotonic() + 30
    while servers.auth.list_keys(name)[0].last_used_at is None:
        assert time.monotonic() < deadline


@pytest.fixture
def visitor(servers: Servers, name: str) -> Iterator[httpx.Client]:
    """A new client at the first server, where its grants count at once."""
    made = servers.auth.create_client(name)
    with httpx.Client(
        base_url=servers.here.url, headers={"x-api-key": made.api_key}, trust_env=False
    ) as http:
        yield http


def test_a_lance_table_is_shared_without_its_neighbours(
    servers: Servers, owner: httpx.Client, visitor: httpx.Client, name: str
) -> None:
    for each in (name, f"{name}x"):
        TableOnWire(owner, "home", each).create(some_rows())
    servers.auth.grant("read", client=name, table=["home", name])
    assert visitor.get("/v1/namespace/list").json()["namespaces"] == ["home"]
    assert visitor.get("/v1/namespace/home/table/list").json()["tables"] == [name]
    assert visitor.get("/v1/table").json()["tables"] == [f"home${name}"]
    assert visitor.post(f"/v1/table/home${name}/describe", json={}).status_code == 200
    assert visitor.post(f"/v1/table/home${name}x/describe", json={}).status_code == 403
    assert visitor.post(f"/v1/table/home${name}/drop", json={}).status_code == 403
    assert visitor.get("/v1/namespace/away/table/list").status_code == 403
    assert visitor.post("/v1/namespace/home/describe", json={}).json().get("properties", {}) == {}
    key = visitor.headers["x-api-key"]
    database: Any = lancedb.connect("db://x", api_key=key, host_override=servers.here.url)
    table = database.open_table(name, namespace_path=["home"])
    assert table.count_rows() == 3


@pytest.mark.parametrize(("kind", "made"), [("tables", new_table), ("views", new_view)])
def test_an_iceberg_table_or_view_is_shared_without_its_neighbours(
    servers: Servers, owner: httpx.Client, visitor: httpx.Client, name: str, kind: str, made: Any
) -> None:
    for each in (name, f"{name}x"):
        assert owner.post(f"/iceberg/v1/namespaces/home/{kind}", json=made(each)).is_success
    servers.auth.grant("read", client=name, table=["home", name])
    assert visitor.get("/iceberg/v1/namespaces").json()["namespaces"] == [["home"]]
    found = visitor.get(f"/iceberg/v1/namespaces/home/{kind}").json()["identifiers"]
    assert [each["name"] for each in found] == [name]
    assert visitor.get(f"/iceberg/v1/namespaces/home/{kind}/{name}").status_code == 200
    assert visitor.get(f"/iceberg/v1/namespaces/home/{kind}/{name}x").status_code == 403
    assert visitor.delete(f"/iceberg/v1/namespaces/home/{kind}/{name}").status_code == 403


def test_pyiceberg_reads_the_one_table_that_it_is_granted(
    servers: Servers, owner: httpx.Client, visitor: httpx.Client, name: str
) -> None:
    assert owner.post("/iceberg/v1/namespaces/home/tables", json=new_table(name)).is_success
    servers.auth.grant("write", client=name, table=["home", name])
    uri = f"{servers.here.url}/iceberg"
    settings = {"oauth2-server-uri": f"{uri}/v1/oauth/tokens", "credential": visitor.headers["x-api-key"]}
    catalog = RestCatalog("lake", uri=uri, **settings)
    assert catalog.list_tables("home") == [("home", name)]
    with catalog.load_table(("home", name)).update_schema() as change:
        change.update_column("id", doc="shared")
    assert catalog.load_table(("home", name)).schema().fields[0].doc == "shared"


def test_a_renamed_table_keeps_its_grants_and_its_successor_gets_none(
    servers: Servers, owner: httpx.Client, visitor: httpx.Client, name: str
) -> None:
    TableOnWire(owner, "home", name).create(some_rows())
    servers.auth.grant("read", client=name, table=["home", name])
    renamed = {"new_table_name": f"{name}new"}
    assert owner.post(f"/v1/table/home${name}/rename", json=renamed).is_success
    TableOnWire(owner, "home", name).create(some_rows())

    def describing(table: str) -> int:
        return visitor.post(f"/v1/table/home${table}/describe", json={}).status_code

    eventually(lambda: describing(name), 403)
    assert describing(f"{name}new") == 200
    assert owner.post(f"/v1/table/home${name}new/drop", json={}).is_success
    TableOnWire(owner, "home", f"{name}new").create(some_rows())
    eventually(lambda: describing(f"{name}new"), 403)
    assert servers.auth.list_grants(client=name) == []


def test_the_admin_of_a_namespace_shares_it_and_nothing_else(
    servers: Servers, owner: httpx.Client, name: str
) -> None:
    owner.post(f"/v1/namespace/desk${name}/create", json={})
    servers.auth.create_client(name)
    with tidemill.connect(servers.here.url, credential=LIMITED) as lake:
        lake.auth.grant(["read", "admin"], client=name, namespace=["desk", name])
        assert [grant.permission for grant in lake.auth.list_grants(client=name)] == ["admin", "read"]
        assert lake.auth.revoke("admin", client=name, namespace=["desk", name]) == 1
        for outside in OUTSIDE_OF_DESK:
            with pytest.raises(Forbidden, match="'admin'"):
                lake.auth.grant("read", client=name, **outside)
            with pytest.raises(Forbidden, match="'admin'"):
                lake.auth.revoke("read", client=name, **outside)
        for refused in (
            lambda: lake.auth.create_client("x"),
            lambda: lake.auth.create_role("x"),
            lambda: lake.auth.create_key(name, "x"),
            lake.auth.list_clients,
            lake.auth.list_roles,
        ):
            with pytest.raises(Forbidden):
                refused()
        # What others have elsewhere is not told.
        assert {grant.object[:1] for grant in lake.auth.list_grants()} == {("desk",)}


def test_clients_of_the_settings_stay_what_the_settings_say(servers: Servers) -> None:
    with pytest.raises(TidemillRequestError, match="settings"):
        servers.auth.create_client("limited")
    for call in (servers.auth.remove_client, servers.auth.list_keys):
        with pytest.raises(TidemillRequestError, match="TIDEMILL_CLIENTS"):
            call("owner")
    with pytest.raises(TidemillRequestError, match="has them from the settings"):
        servers.auth.revoke("admin", client="owner", namespace=[])
    known = {client.client: client.in_settings for client in servers.auth.list_clients()}
    assert known["owner"]
    assert known["limited"]


def test_a_client_of_the_settings_can_be_granted_more(servers: Servers) -> None:
    with servers.as_client(LIMITED) as http:
        assert listing(http) == 403
        servers.auth.grant("read", client="limited", namespace="home")
        eventually(lambda: listing(http), 200)
        servers.auth.revoke("read", client="limited", namespace="home")
        eventually(lambda: listing(http), 403)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"permissions": ["read"], "namespace": []}, "client: give exactly one of client, user, role"),
        (
            {"client": "a", "role": "b", "permissions": ["read"], "namespace": []},
            "give exactly one of client",
        ),
        ({"client": "owner", "permissions": ["read"]}, "namespace: give exactly one of namespace, table"),
        ({"client": "owner", "permissions": [], "namespace": []}, "permissions: is missing"),
        ({"client": "owner", "permissions": ["raed"], "namespace": []}, "permissions"),
        ({"client": "owner", "permissions": ["read"], "table": []}, "table: is the root"),
        ({"client": "owner", "permissions": ["read"], "namespace": [], "x": 1}, "x: is not a known field"),
        ({"user": "nocolon", "permissions": ["read"], "namespace": []}, "user: 'nocolon' must be"),
        ({"role": "two words", "permissions": ["read"], "namespace": []}, "role: 'two words' must be"),
    ],
)
def test_a_grant_that_is_not_clear_is_refused_by_its_field(
    owner: httpx.Client, body: dict[str, Any], problem: str
) -> None:
    for path in ("/api/v1/auth/grants", "/api/v1/auth/grants/revoke"):
        answer = owner.post(path, json=body)
        assert answer.status_code == 400
        assert problem in answer.json()["error"]["message"]


def test_what_does_not_exist_cannot_be_granted(servers: Servers) -> None:
    for given, problem in (
        ({"client": "nobody", "namespace": []}, "Client nobody does not exist"),
        ({"role": "nobody", "namespace": []}, "Role nobody does not exist"),
        ({"client": "owner", "namespace": "nowhere"}, "Namespace nowhere does not exist"),
        ({"client": "owner", "table": "home.nothing"}, "Table home.nothing does not exist"),
    ):
        with pytest.raises(TidemillRequestError, match=problem):
            servers.auth.grant("read", **given)


def test_secrets_are_shown_once_and_nowhere_else(servers: Servers, owner: httpx.Client, name: str) -> None:
    made = owner.post("/api/v1/auth/clients", json={"client": name})
    assert made.headers["cache-control"] == "no-store"
    secret = made.json()["key"]["secret"]
    assert made.json()["key"]["api_key"] == f"{name}:{secret}"
    for path in ("clients", f"clients/{name}/keys", "grants", "whoami"):
        assert secret not in owner.get(f"/api/v1/auth/{path}").text
    with servers.as_client(f"{name}:{secret}") as http:
        eventually(lambda: listing(http), 403)
    for server in (servers.here, servers.there):
        assert secret not in (server.root / "server.log").read_text()
        for file in server.root.parent.rglob("*.db*"):
            assert secret.encode() not in file.read_bytes()


def test_a_key_of_another_client_is_worth_nothing(servers: Servers, name: str) -> None:
    made = servers.auth.create_client(name)
    secret = made.api_key.partition(":")[2]
    for stolen in (f"owner:{secret}", f"{name}x:{secret}", f"{name}:{secret[:-1]}", f"{name}:"):
        with servers.as_client(stolen) as http:
            assert [listing(http) for _ in range(3)] == [401] * 3


def test_tokens_of_the_sdk_open_the_server(servers: Servers) -> None:
    token, lifetime = servers.auth.token()
    assert lifetime > timedelta(minutes=1)
    headers = {"authorization": f"Bearer {token}"}
    assert (
        httpx.get(f"{servers.there.url}/api/v1/auth/whoami", headers=headers).json()["principal"] == "owner"
    )
    with tidemill.connect(servers.here.url, credential="owner:wrong") as stranger:
        with pytest.raises(Unauthenticated):
            stranger.auth.whoami()
        with pytest.raises(Unauthenticated):
            stranger.auth.token()


def test_the_commands_do_the_same(servers: Servers, name: str) -> None:
    def said(*command: str, credential: str = OWNER) -> str:
        environment = {"TIDEMILL_URL": servers.here.url, "TIDEMILL_CREDENTIAL": credential}
        done = CliRunner().invoke(app, ["auth", *command], env=environment)
        assert done.exit_code == 0, done.output
        return done.output

    key = said("client", "create", name).splitlines()[-1]
    said("grant", "read,compute", "--client", name, "--namespace", "home")
    assert "compute" in said("whoami", credential=key)
    assert "Revoked compute" in said("revoke", "compute", "--client", name, "--namespace", "home")
    token = said("token", credential=key).strip()
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.get(f"{servers.here.url}/v1/namespace/home/table/list", headers=headers)
    assert answer.status_code == 200
    said("client", "remove", name)
    assert httpx.get(f"{servers.here.url}/api/v1/auth/whoami", headers=headers).status_code == 401


def test_a_server_without_authentication_says_how_to_turn_it_on(server: RunningServer) -> None:
    with tidemill.connect(server.url) as lake:
        who = lake.auth.whoami()
        assert (who.principal, who.authentication) == ("local", False)
        for call in (
            lambda: lake.auth.create_client("a"),
            lambda: lake.auth.create_role("a"),
            lambda: lake.auth.grant("read", client="a", namespace=[]),
        ):
            with pytest.raises(TidemillRequestError, match="TIDEMILL_CLIENTS"):
                call()
