"""Iceberg tables in an object store, for clients that have no keys but what the server gives them."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.conftest import RunningServer, start_server
from tests.iceberg_requests import SCHEMA, new_key
from tests.object_store import KEY_ID, REGION, SECRET, ObjectStore
from tests.protocol.iceberg.clients import PEOPLE, people, pyiceberg_on, spark_view
from tests.protocol.iceberg.wire import Space, check_error, check_form

OWNER, READER, WRITER = "owner:all-of-it", "reader:only-looking", "writer:here-only"
CLIENTS: Final = {
    "owner": {"secret": "all-of-it"},
    "reader": {"secret": "only-looking", "grants": {"": ["read"]}},
    "writer": {"secret": "here-only", "grants": {"here": ["write"]}},
}
CLIENT_KEY, CLIENT_SECRET = "client-key", "client-secret"
SIGNING: Final = {"X-Iceberg-Access-Delegation": "remote-signing"}
NAMED = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
ODD_NAME = "a/b c%?#"


@dataclass(frozen=True)
class Stand:
    """A server, its bucket, and what lies there."""

    server: RunningServer
    store: ObjectStore
    bucket: str

    @property
    def url(self) -> str:
        return f"{self.server.url}/iceberg"

    def catalog(self, credential: str, **properties: str) -> AbstractContextManager[RestCatalog]:
        tokens = {"oauth2-server-uri": f"{self.url}/v1/oauth/tokens"}
        return pyiceberg_on(self.url, credential=credential, **tokens, **properties)

    def keys(self, location: str) -> list[str]:
        return self.store.keys(self.bucket, self.key(location))

    def key(self, location: str) -> str:
        return location.removeprefix(f"s3://{self.bucket}/")

    def content(self, location: str) -> bytes:
        answer = self.store.client().get_object(Bucket=self.bucket, Key=self.key(location))
        return bytes(answer["Body"].read())

    def http_url(self, location: str) -> str:
        return f"{self.store.endpoint}/{self.bucket}/{self.key(location)}"


def stand(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory, **settings: str) -> Iterator[Stand]:
    bucket = store.new_bucket()
    running = start_server(
        tmp_path_factory.mktemp("iceberg-s3"),
        "--no-worker",
        TIDEMILL_WAREHOUSE=f"s3://{bucket}/lake",
        **settings,
        **store.environment,
    )
    yield Stand(running, store, bucket)
    running.stop()


@pytest.fixture(scope="module")
def sessions(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Whoever comes in gets the session of a role."""
    settings = {
        "TIDEMILL_S3_VEND": "sts",
        "TIDEMILL_S3_ROLE_ARN": "arn:aws:iam::123456789012:role/tables",
        "TIDEMILL_CLIENTS": json.dumps(CLIENTS),
        "TIDEMILL_LOG_LEVEL": "DEBUG",
    }
    yield from stand(object_store, tmp_path_factory, **settings)


@pytest.fixture(scope="module")
def keys(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Everybody gets the same keys, or has requests signed."""
    settings = {
        "TIDEMILL_S3_VEND": "static",
        "TIDEMILL_S3_CLIENT_ACCESS_KEY_ID": CLIENT_KEY,
        "TIDEMILL_S3_CLIENT_SECRET_ACCESS_KEY": CLIENT_SECRET,
        "TIDEMILL_S3_REMOTE_SIGNING": "true",
    }
    yield from stand(object_store, tmp_path_factory, **settings)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, object_store: ObjectStore) -> None:
    """Neither in the environment nor, as it takes long to find out, from the metadata of a cloud machine."""
    for name in object_store.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def catalog(sessions: Stand) -> Iterator[RestCatalog]:
    with sessions.catalog(OWNER) as connected:
        yield connected


@pytest.fixture
def name(catalog: RestCatalog) -> str:
    made = f"n{uuid4().hex[:12]}"
    catalog.create_namespace(made)
    return made


@pytest.fixture
def table(catalog: RestCatalog, name: str) -> Table:
    made: Table = catalog.create_table((name, "people"), NAMED, partition_spec=BY_NAME)
    made.append(people((1, "ann"), (2, ODD_NAME)))
    return made


def names_in(table: Table, **scan: Any) -> list[str]:
    return sorted(table.scan(**scan).to_arrow()["name"].to_pylist())


def as_client(stand: Stand, credential: str) -> httpx.Client:
    return httpx.Client(base_url=f"{stand.url}/v1", headers={"x-api-key": credential}, timeout=60)


def numbers_of(stand: Stand, table: Table) -> list[str]:
    files = [key.rpartition("/")[2] for key in stand.keys(f"{table.location()}/metadata/")]
    return sorted(name.partition("-")[0] for name in files if name.endswith("metadata.json"))


def test_rows_are_written_and_read(sessions: Stand, catalog: RestCatalog, table: Table) -> None:
    assert table.location().startswith(f"s3://{sessions.bucket}/lake/iceberg/")
    again = catalog.load_table(table.name())
    again.overwrite(people((3, "eve")), "id = 1")
    assert names_in(catalog.load_table(table.name())) == [ODD_NAME, "eve"]
    assert names_in(table, row_filter="id = 1") == ["ann"]


def test_each_commit_leaves_a_numbered_file(sessions: Stand, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"a": "1"})
    assert numbers_of(sessions, table) == ["00000", "00001", "00002"]
    stored = json.loads(sessions.content(table.metadata_location))
    assert stored["properties"]["a"] == "1"


def test_metadata_is_compressed_where_the_table_says_so(
    sessions: Stand, catalog: RestCatalog, name: str
) -> None:
    properties = {"write.metadata.compression-codec": "gzip"}
    made = catalog.create_table((name, "packed"), PEOPLE, properties=properties)
    assert made.metadata_location.endswith(".gz.metadata.json")
    stored = json.loads(gzip.decompress(sessions.content(made.metadata_location)))
    assert stored["table-uuid"] == str(made.metadata.table_uuid)


def test_a_view_is_made_replaced_and_dropped(sessions: Stand, catalog: RestCatalog, name: str) -> None:
    made = catalog.create_view((name, "view"), PEOPLE, spark_view())
    location = made.metadata.location
    assert location.startswith(f"s3://{sessions.bucket}/lake/iceberg/")
    [key] = sessions.keys(location)
    assert key.endswith(".gz.metadata.json")
    assert json.loads(gzip.decompress(sessions.content(key)))["location"] == location
    catalog.drop_view((name, "view"))
    assert sessions.keys(location) == [key]


def test_a_renamed_table_stays_where_it_is(
    sessions: Stand, catalog: RestCatalog, name: str, table: Table
) -> None:
    before = sessions.keys(table.location())
    renamed = catalog.rename_table(table.name(), (name, "renamed"))
    assert (renamed.location(), names_in(renamed)) == (table.location(), [ODD_NAME, "ann"])
    assert sessions.keys(table.location()) == before


def test_a_dropped_table_is_registered_again(
    sessions: Stand, catalog: RestCatalog, name: str, table: Table
) -> None:
    catalog.drop_table(table.name())
    with pytest.raises(NoSuchTableError):
        catalog.load_table(table.name())
    again = catalog.register_table((name, "again"), table.metadata_location)
    assert names_in(again) == [ODD_NAME, "ann"]


def test_a_purged_table_leaves_no_object(sessions: Stand, catalog: RestCatalog, table: Table) -> None:
    table.delete("id = 1")
    assert any("%" in key for key in sessions.keys(table.location()))
    catalog.purge_table(table.name())
    assert sessions.keys(table.location()) == []


def test_scans_are_planned_in_the_object_store(sessions: Stand, table: Table) -> None:
    with sessions.catalog(OWNER, **{"scan-planning-mode": "server"}) as planning:
        assert names_in(planning.load_table(table.name()), row_filter="id > 1") == [ODD_NAME]


@dataclass(frozen=True)
class Told:
    """What a client is told with a table."""

    answer: httpx.Response
    config: dict[str, str]
    credentials: list[dict[str, Any]]
    prefix: str


def told(stand: Stand, table: Table, credential: str = OWNER, headers: dict[str, str] | None = None) -> Told:
    with as_client(stand, credential) as http:
        space = Space(http, table.name()[0])
        answer = http.get(space.table(table.name()[1]), headers=headers)
        body = check_form(answer, "LoadTableResult")
        listed = check_form(
            http.get(f"{space.table(table.name()[1])}/credentials"), "LoadCredentialsResponse"
        )
    credentials = body["storage-credentials"]
    assert listed["storage-credentials"] == credentials
    return Told(answer, body["config"], credentials, table.location())


def test_a_session_is_told_in_every_way_clients_know(sessions: Stand, table: Table) -> None:
    found = told(sessions, table)
    [credential] = found.credentials
    assert credential["prefix"] == table.location()
    assert credential["config"].items() <= found.config.items()
    assert found.config["s3.endpoint"] == sessions.store.endpoint
    assert found.config["client.region"] == found.config["s3.region"] == REGION
    assert int(found.config["s3.session-token-expires-at-ms"]) / 1000 - time.time() > 15 * 60
    assert {KEY_ID, SECRET}.isdisjoint(found.config.values())


def test_whoever_may_only_read_gets_another_session(sessions: Stand, table: Table) -> None:
    owner, reader = told(sessions, table), told(sessions, table, READER)
    assert owner.config["s3.session-token"] != reader.config["s3.session-token"]
    assert owner.config["s3.access-key-id"] != reader.config["s3.access-key-id"]
    with sessions.catalog(READER) as reading:
        assert names_in(reading.load_table(table.name())) == [ODD_NAME, "ann"]


def test_a_tag_stands_for_the_session_too(sessions: Stand, table: Table) -> None:
    owner, reader = told(sessions, table), told(sessions, table, READER)
    tag = owner.answer.headers["etag"]
    assert tag not in ("", reader.answer.headers["etag"])
    path = Space(httpx.Client(), table.name()[0]).table(table.name()[1])
    statuses = {}
    for credential in (OWNER, READER):
        with as_client(sessions, credential) as http:
            statuses[credential] = http.get(path, headers={"If-None-Match": tag}).status_code
    assert statuses == {OWNER: 304, READER: 200}


def test_a_request_that_is_sent_again_opens_no_table_that_has_gone_elsewhere(sessions: Stand) -> None:
    body, headers = {"name": "moved", "schema": SCHEMA}, {"Idempotency-Key": new_key()}
    with as_client(sessions, OWNER) as owner, as_client(sessions, WRITER) as writer:
        for name in ("here", "elsewhere"):
            assert owner.post("namespaces", json={"namespace": [name]}).status_code == 200
        first = writer.post("namespaces/here/tables", json=body, headers=headers)
        assert check_form(first, "LoadTableResult")["storage-credentials"]
        again = writer.post("namespaces/here/tables", json=body, headers=headers)
        assert check_form(again, "LoadTableResult")["storage-credentials"]
        moved = {
            "source": {"namespace": ["here"], "name": "moved"},
            "destination": {"namespace": ["elsewhere"], "name": "moved"},
        }
        assert owner.post("tables/rename", json=moved).status_code == 204
        late = check_form(
            writer.post("namespaces/here/tables", json=body, headers=headers), "LoadTableResult"
        )
    assert late["metadata"] == first.json()["metadata"]
    assert (late["config"], late.get("storage-credentials")) == ({}, None)


def test_sessions_stay_out_of_the_log(sessions: Stand, table: Table) -> None:
    found = told(sessions, table)
    log = (sessions.server.root / "server.log").read_text()
    secrets = [found.config[key] for key in ("s3.secret-access-key", "s3.session-token")]
    assert [secret for secret in (*secrets, SECRET) if secret in log] == []


@pytest.fixture(scope="module")
def shared(keys: Stand) -> Iterator[Table]:
    """A table that clients write with the keys of everybody."""
    with pyiceberg_on(keys.url) as connected:
        connected.create_namespace("shared")
        made = connected.create_table(("shared", "people"), PEOPLE)
        made.append(people((1, "ann")))
        yield made


def test_the_keys_of_everybody_are_told(keys: Stand, shared: Table) -> None:
    found = told(keys, shared)
    assert found.config["s3.access-key-id"] == CLIENT_KEY
    assert found.config["s3.secret-access-key"] == CLIENT_SECRET
    assert "s3.session-token" not in found.config
    assert [credential["prefix"] for credential in found.credentials] == [shared.location()]
    assert "s3.signer" not in found.config


def test_a_client_that_asks_for_it_has_its_requests_signed(keys: Stand, shared: Table) -> None:
    with as_client(keys, OWNER) as http:
        answer = http.get(Space(http, "shared").table("people"), headers=SIGNING)
    body = check_form(answer, "LoadTableResult")
    config = body["config"]
    assert "storage-credentials" not in body
    assert {CLIENT_KEY, CLIENT_SECRET}.isdisjoint(config.values())
    assert config["s3.remote-signing-enabled"] == "true"
    assert config["signer.endpoint"] == "v1/namespaces/shared/tables/people/sign"
    assert body["remote-signing-config"] == {"properties": {"table-uuid": body["metadata"]["table-uuid"]}}


def test_a_new_table_is_signed_for_from_the_start(keys: Stand, shared: Table) -> None:
    with as_client(keys, OWNER) as http:
        made = Space(http, "shared").made_table("signed", headers=SIGNING)
    uuid = made["metadata"]["table-uuid"]
    assert made["remote-signing-config"] == {"properties": {"table-uuid": uuid}}


def test_a_client_that_has_credentials_is_not_told_to_have_requests_signed(
    keys: Stand, shared: Table
) -> None:
    with as_client(keys, OWNER) as http:
        assert "remote-signing-config" not in http.get(Space(http, "shared").table("people")).json()


class Signer:
    """A client that has nothing but signatures."""

    def __init__(self, stand: Stand, table: Table) -> None:
        self._path = f"{stand.url}/v1/namespaces/{table.name()[0]}/tables/{table.name()[1]}/sign"

    def ask(self, method: str, uri: str, **more: Any) -> httpx.Response:
        body = {"region": REGION, "method": method, "uri": uri, "headers": {}, **more}
        return httpx.post(self._path, json=body)

    def send(self, method: str, uri: str, content: bytes = b"") -> httpx.Response:
        signed = check_form(self.ask(method, uri), "RemoteSignResult")
        headers = [(name, value) for name, values in signed["headers"].items() for value in values]
        return httpx.request(method, signed["uri"], headers=headers, content=content or None)


@pytest.fixture
def signer(keys: Stand, shared: Table) -> Signer:
    return Signer(keys, shared)


def test_signed_requests_reach_the_objects_of_the_table(keys: Stand, shared: Table, signer: Signer) -> None:
    location = f"{shared.location()}/data/name=a%2Fb/odd name.txt"
    uri = keys.http_url(location).replace("%", "%25").replace(" ", "%20")
    assert signer.send("PUT", uri, b"by signature").status_code == 200
    assert keys.content(location) == b"by signature"
    assert signer.send("GET", uri).content == b"by signature"
    assert signer.send("DELETE", uri).status_code == 204
    assert keys.keys(location) == []


def test_a_signature_is_made_with_the_keys_of_the_server_and_only_for_a_table(
    keys: Stand, shared: Table, signer: Signer
) -> None:
    answer = signer.ask("GET", keys.http_url(shared.metadata_location))
    [authorization] = check_form(answer, "RemoteSignResult")["headers"]["authorization"]
    assert f"Credential={KEY_ID}/" in authorization
    assert answer.headers["cache-control"] == "private"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_nothing_outside_the_table_is_signed(keys: Stand, shared: Table, signer: Signer, method: str) -> None:
    outside = [
        f"{keys.http_url(shared.location())}-other/file",
        f"{keys.store.endpoint}/{keys.bucket}/lake/other/file",
        f"{keys.http_url(shared.location())}/../other/file",
        f"{keys.http_url(shared.location())}/%2e%2e/other/file",
    ]
    for uri in outside:
        check_error(signer.ask(method, uri), 403, "ForbiddenException")


def test_nothing_is_signed_for_another_table_of_the_same_name(
    keys: Stand, shared: Table, signer: Signer
) -> None:
    uri = keys.http_url(shared.metadata_location)
    own = {"table-uuid": str(shared.metadata.table_uuid)}
    check_form(signer.ask("GET", uri, properties=own), "RemoteSignResult")
    other = signer.ask("GET", uri, properties={"table-uuid": "01234567-89ab-4def-8123-456789abcdef"})
    check_error(other, 400, "BadRequestException", "properties.table-uuid: ")


def test_nothing_elsewhere_is_signed(keys: Stand, shared: Table, signer: Signer) -> None:
    path = keys.key(shared.metadata_location)
    for uri in (f"{keys.store.endpoint}/another/{path}", f"http://evil.example/{keys.bucket}/{path}"):
        check_error(signer.ask("GET", uri), 400, "BadRequestException")


def test_where_signing_is_off_nothing_is_signed(sessions: Stand, table: Table) -> None:
    body = {"region": REGION, "method": "GET", "uri": sessions.http_url(table.location()), "headers": {}}
    with as_client(sessions, OWNER) as http:
        answer = http.post(f"namespaces/{table.name()[0]}/tables/people/sign", json=body)
    check_error(answer, 406, "UnsupportedOperationException")
