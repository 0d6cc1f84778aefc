"""What a client with grants on one namespace tries, to get at what lies in another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import lance
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.conftest import RunningServer, start_server
from tests.iceberg_requests import SCHEMA
from tests.protocol.wire import stream

OWNER, STRANGER = "owner:o", "stranger:s"
CLIENTS: Final = {
    "owner": {"secret": "o"},
    "stranger": {"secret": "s", "grants": {"open": ["manage"]}},
}


@dataclass(frozen=True)
class Client:
    """Whoever has this key."""

    http: httpx.Client

    def iceberg(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.http.request(method, f"/iceberg/v1/{path}", json=body, **options)

    def lance(self, path: str, body: Any) -> httpx.Response:
        return self.http.post(f"/v1/{path}", json=body)

    def new_table(self, name: str, **fields: Any) -> httpx.Response:
        return self.iceberg("POST", "namespaces/open/tables", {"name": name, "schema": SCHEMA, **fields})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("borders"), "--no-worker", TIDEMILL_CLIENTS=json.dumps(CLIENTS)
    )
    yield running
    running.stop()


def as_client(server: RunningServer, key: str) -> Iterator[Client]:
    headers = {"x-api-key": key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as http:
        yield Client(http)


@pytest.fixture(scope="module")
def owner(server: RunningServer) -> Iterator[Client]:
    for client in as_client(server, OWNER):
        for name in ("open", "private"):
            assert client.lance(f"namespace/{name}/create", {}).status_code == 200
        rows = stream(pa.table({"id": [1, 2]}))
        for name in ("open$t", "private$t"):
            made = client.http.post(f"/v1/table/{name}/create", content=rows)
            assert made.status_code == 200, made.text
        yield client


@pytest.fixture
def stranger(server: RunningServer, owner: Client) -> Iterator[Client]:
    yield from as_client(server, STRANGER)


@pytest.fixture(scope="module")
def victim(server: RunningServer, owner: Client) -> dict[str, Any]:
    """A table in the other namespace, with a row, as its owner loads it."""
    catalog = RestCatalog("owner", uri=f"{server.url}/iceberg", **{"header.x-api-key": OWNER})
    made = catalog.create_table("private.victim", pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1]}))
    catalog.close()
    loaded: dict[str, Any] = owner.iceberg("GET", "namespaces/private/tables/victim").json()
    return loaded


def files_of(victim: dict[str, Any]) -> dict[Path, bytes]:
    place = Path(victim["metadata"]["location"].removeprefix("file://"))
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def check_bad(answer: httpx.Response, text: str) -> None:
    assert answer.status_code == 400, answer.text
    assert text in answer.text


@pytest.mark.parametrize("inside", ["", "/data", "/.."])
@pytest.mark.parametrize("is_staged", [True, False])
def test_no_table_takes_the_place_of_another_or_of_all(
    stranger: Client, victim: dict[str, Any], inside: str, is_staged: bool
) -> None:
    location = victim["metadata"]["location"]
    chosen = location.rpartition("/")[0] if inside == "/.." else location + inside
    before = files_of(victim)
    answer = stranger.new_table("x", location=chosen, **{"stage-create": is_staged})
    check_bad(answer, "location: ")
    assert files_of(victim) == before
    assert not Path(f"{location.removeprefix('file://')}/data/metadata").exists()


def test_no_metadata_is_written_into_the_place_of_another(stranger: Client, victim: dict[str, Any]) -> None:
    path = {"write.metadata.path": f"{victim['metadata']['location']}/metadata"}
    check_bad(stranger.new_table("x", properties=path), "location: ")


def test_of_two_tables_in_one_transaction_only_one_can_have_a_place(
    stranger: Client, server: RunningServer
) -> None:
    for name in ("one", "two"):
        stranger.new_table(name)
    place = f"file://{server.root}/warehouse/chosen"
    changes = [
        {
            "identifier": {"namespace": ["open"], "name": name},
            "requirements": [],
            "updates": [{"action": "set-location", "location": place + below}],
        }
        for name, below in (("one", ""), ("two", "/below"))
    ]
    check_bad(stranger.iceberg("POST", "transactions/commit", {"table-changes": changes}), "location: ")


def naming(victim: dict[str, Any]) -> list[dict[str, Any]]:
    """Updates that put files of the victim's into another table."""
    [snapshot] = victim["metadata"]["snapshots"]
    statistics = {
        "snapshot-id": 7,
        "statistics-path": victim["metadata-location"],
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    return [
        {"action": "add-snapshot", "snapshot": {**snapshot, "snapshot-id": 7, "sequence-number": 1}},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7},
        {"action": "set-statistics", "statistics": statistics},
    ]


def test_what_a_table_names_of_another_is_neither_read_nor_removed(
    stranger: Client, owner: Client, victim: dict[str, Any]
) -> None:
    stranger.new_table("naming")
    path = "namespaces/open/tables/naming"
    assert stranger.iceberg("POST", path, {"updates": naming(victim)}).status_code == 200
    planned = stranger.iceberg("POST", f"{path}/plan", {})
    assert planned.status_code == 406, planned.text
    assert "is in another table" in planned.text
    before = files_of(victim)
    assert stranger.iceberg("DELETE", f"{path}?purgeRequested=true").status_code == 204
    assert files_of(victim) == before
    assert owner.iceberg("GET", "namespaces/private/tables/victim").status_code == 200


def test_the_directory_of_all_iceberg_tables_is_nobodys(stranger: Client) -> None:
    check_bad(stranger.lance("table/open$squat/declare", {"location": "iceberg"}), "location")


def test_a_batch_declares_no_table_where_one_is(
    stranger: Client, owner: Client, server: RunningServer
) -> None:
    lance.write_dataset(pa.table({"id": [1]}), str(server.root / "warehouse" / "left"))
    declared = {"declare_table": {"id": ["open", "found"], "location": "left"}}
    check_bad(stranger.lance("table/open$found/declare", {"location": "left"}), "is not empty")
    check_bad(stranger.lance("table/batch-commit", {"operations": [declared]}), "is not empty")


def test_a_manifest_that_leads_to_another_table_is_not_followed(stranger: Client, owner: Client) -> None:
    """Whoever may write a table can put any manifest into its directory."""
    declared = stranger.lance("table/open$shadow/declare", {}).json()["location"]
    lance.dataset(owner.lance("table/private$t/describe", {}).json()["location"]).shallow_clone(declared, 1)
    for route, body in (
        ("query", {"k": 10, "vector": {}}),
        ("count_rows", {}),
        ("update", {"updates": [["id", "id + 1"]]}),
    ):
        refused = stranger.lance(f"table/open$shadow/{route}", body)
        assert refused.status_code == 409, refused.text
        assert "which this table may not" in refused.text


@pytest.mark.parametrize("name", ["private$t", "private$none", "nowhere$t"])
@pytest.mark.parametrize("route", ["add_columns", "alter_columns"])
def test_what_there_is_elsewhere_is_not_told(stranger: Client, name: str, route: str) -> None:
    column = {"virtual_column": {"udf": "eA=="}}
    body = {
        "branch": "b",
        "new_columns": [{"name": "z", **column}],
        "alterations": [{"path": "id", **column}],
    }
    answer = stranger.lance(f"table/{name}/{route}", body)
    assert answer.status_code == 403, answer.text


def test_a_job_is_cancelled_by_those_who_may_run_one(stranger: Client, owner: Client) -> None:
    made = owner.lance("materialized_view/open$mv/create", {"query": "SELECT id FROM open.t"})
    assert made.status_code == 202, made.text
    job = made.json()["job_id"]
    cancel = {"actions": [{"setStatusAction": {"status": "CANCELED"}}]}
    refused = stranger.lance(f"transaction/{job}/alter", cancel)
    assert refused.status_code == 403, refused.text
    assert owner.lance(f"transaction/{job}/alter", cancel).status_code == 200


def test_a_view_that_may_not_be_filled_is_not_made(stranger: Client) -> None:
    refused = stranger.lance("materialized_view/open$unfilled/create", {"query": "SELECT id FROM open.t"})
    assert refused.status_code == 403, refused.text
    assert stranger.lance("table/open$unfilled/exists", {}).status_code == 404


@pytest.mark.parametrize(
    ("route", "body"),
    [("query", {"k": 10, "vector": {}, "filter": "id = 1"}), ("count_rows", {"predicate": "id = 1"})],
)
def test_the_columns_of_a_source_are_not_told_through_a_view(
    stranger: Client, owner: Client, route: str, body: dict[str, Any]
) -> None:
    view = f"open$hides_{route}"
    made = owner.lance(f"view/{view}/create", {"query": "SELECT id AS number FROM private.t"})
    assert made.status_code == 200, made.text
    assert owner.lance(f"table/{view}/{route}", body).status_code == 400
    refused = stranger.lance(f"table/{view}/{route}", body)
    assert refused.status_code == 403, refused.text
