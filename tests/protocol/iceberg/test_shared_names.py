"""One name space and one warehouse for both protocols: neither takes what is the other's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from lance import write_dataset

from tests.conftest import RunningServer
from tests.protocol.iceberg.wire import SCHEMA, Space, check_error, check_form, keyed, set_properties
from tests.protocol.wire import check_refusal, some_rows, stream

TAKEN: Final = 409
# Codes of the Lance protocol.
NAMESPACE_NOT_EMPTY: Final = 3
TABLE_ALREADY_EXISTS: Final = 5
TABLE_NOT_FOUND: Final = 4


class Lance:
    """The Lance protocol in the namespace of a test."""

    def __init__(self, http: httpx.Client, namespace: str) -> None:
        self._http = http
        self._namespace = namespace

    def post(self, kind: str, name: str, action: str, **options: Any) -> httpx.Response:
        return self._http.post(f"/v1/{kind}/{self._namespace}${name}/{action}", **options)

    def namespace(self, action: str, body: Any) -> httpx.Response:
        return self._http.post(f"/v1/namespace/{self._namespace}/{action}", json=body)

    def table(self, name: str) -> httpx.Response:
        return self.post("table", name, "create", content=stream(some_rows()))

    def declaration(self, name: str) -> httpx.Response:
        return self.post("table", name, "declare", json={})

    def stored_query(self, name: str) -> httpx.Response:
        return self.post("view", name, "create", json={"query": f"SELECT id FROM {self._source()}"})

    def materialized_view(self, name: str) -> httpx.Response:
        body = {"query": f"SELECT id FROM {self._source()}", "with_no_data": True}
        return self.post("materialized_view", name, "create", json=body)

    def _source(self) -> str:
        self.table("source")
        return f"{self._namespace}.source"

    def directory(self, name: str) -> Path:
        answer = self.post("table", name, "describe", json={})
        assert answer.status_code == 200, answer.text
        return Path(answer.json()["location"])


@pytest.fixture
def lance(http: httpx.Client, space: Space) -> Lance:
    return Lance(http, space.name)


def warehouse_of(space: Space) -> Path:
    location = space.made_table("x")["metadata"]["location"]
    return Path(location.removeprefix("file://").rpartition("/iceberg/")[0])


def tree(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


@pytest.fixture
def untouched(lance: Lance) -> Iterator[Path]:
    """The directory of a Lance table `lance`, which is afterwards as it was before."""
    assert lance.table("lance").status_code == 200
    directory = lance.directory("lance")
    before = tree(directory)
    assert before
    yield directory
    assert tree(directory) == before


LANCE_KINDS: Final[dict[str, Callable[[Lance, str], httpx.Response]]] = {
    "table": Lance.table,
    "declaration": Lance.declaration,
    "stored query": Lance.stored_query,
    "materialized view": Lance.materialized_view,
}


NOUNS: Final = {
    "table": "a Lance table",
    "declaration": "a Lance table",
    "stored query": "a view of the Lance protocol",
    "materialized view": "a materialized view",
}


@pytest.mark.parametrize("kind", LANCE_KINDS)
@pytest.mark.parametrize("holder", ["table", "view"])
def test_what_iceberg_has_lance_does_not_take(space: Space, lance: Lance, kind: str, holder: str) -> None:
    made = space.made_table("x") if holder == "table" else space.made_view("x")
    answer = LANCE_KINDS[kind](lance, "x")
    assert (answer.status_code, answer.json()["code"]) == (TAKEN, TABLE_ALREADY_EXISTS), answer.text
    path = space.table("x") if holder == "table" else space.view("x")
    assert space.http.get(path).json()["metadata"] == made["metadata"]


@pytest.mark.parametrize("mode", ["Create", "ExistOk", "exist_ok", "Overwrite"])
@pytest.mark.parametrize("holder", ["table", "view"])
def test_no_mode_creates_a_lance_table_with_a_name_of_iceberg(
    space: Space, lance: Lance, mode: str, holder: str
) -> None:
    space.made_table("x") if holder == "table" else space.made_view("x")
    answer = lance.post("table", "x", "create", content=stream(some_rows()), params={"mode": mode})
    check_refusal(answer, TAKEN, TABLE_ALREADY_EXISTS)


@pytest.mark.parametrize("kind", LANCE_KINDS)
def test_what_lance_has_iceberg_does_not_take(space: Space, lance: Lance, kind: str) -> None:
    assert LANCE_KINDS[kind](lance, "x").is_success
    location = space.made_table("mine")["metadata-location"]
    view = space.made_view("seen")["metadata-location"]
    register = {"name": "x", "metadata-location": location}
    staged = {"requirements": [{"type": "assert-create"}], "updates": [set_properties(a="1")]}
    for answer in (
        space.create_table("x"),
        space.create_table("x", **{"stage-create": True}),
        space.create_view("x"),
        space.http.post(space.at("register"), json=register),
        space.http.post(space.at("register"), json={**register, "overwrite": True}),
        space.http.post(space.at("register-view"), json={**register, "metadata-location": view}),
        space.http.post(space.table("x"), json=staged),
        rename(space, "tables", "mine", "x"),
        rename(space, "views", "seen", "x"),
    ):
        check_error(answer, TAKEN, "AlreadyExistsException")
        assert answer.json()["error"]["message"].endswith(f"({NOUNS[kind]})")
    assert (space.names("tables"), space.names("views")) == (["mine"], ["seen"])


def rename(space: Space, kind: str, source: str, target: str) -> httpx.Response:
    body = {"source": space.ident(source), "destination": space.ident(target)}
    return space.http.post(f"{kind}/rename", json=body)


@pytest.mark.parametrize("kind", LANCE_KINDS)
def test_what_lance_has_is_named_and_is_no_table_and_no_view_of_iceberg(
    space: Space, lance: Lance, kind: str
) -> None:
    assert LANCE_KINDS[kind](lance, "x").is_success
    table, view = (f"{space.name}.x is {NOUNS[kind]}, not an Iceberg {noun}" for noun in ("table", "view"))
    for answer in (
        space.http.get(space.table("x")),
        space.http.delete(space.table("x"), params={"purgeRequested": "true"}),
        space.http.get(f"{space.table('x')}/credentials"),
        space.http.post(f"{space.table('x')}/plan", json={}),
        space.http.post(f"{space.table('x')}/unregister"),
        space.commit(space.table("x"), set_properties(a="1")),
        rename(space, "tables", "x", "y"),
    ):
        check_error(answer, 404, "NoSuchTableException", table)
    for answer in (
        space.http.get(space.view("x")),
        space.http.delete(space.view("x")),
        space.commit(space.view("x"), set_properties(a="1")),
        rename(space, "views", "x", "y"),
    ):
        check_error(answer, 404, "NoSuchViewException", view)
    assert space.http.head(space.table("x")).status_code == 404
    assert space.http.head(space.view("x")).status_code == 404
    assert (space.names("tables"), space.names("views")) == ([], [])


def test_a_view_that_is_a_table_is_called_one(space: Space) -> None:
    space.made_table("t")
    space.made_view("v")
    name = space.name
    table, view = (
        f"Table does not exist: {name}.v; it is an Iceberg",
        f"View does not exist: {name}.t; it is an",
    )
    check_error(space.http.get(space.table("v")), 404, "NoSuchTableException", f"{table} view")
    check_error(space.http.get(space.view("t")), 404, "NoSuchViewException", f"{view} Iceberg table")


def test_near_names_are_told_where_a_table_or_view_is_missing(space: Space, lance: Lance) -> None:
    space.made_table("customers")
    assert lance.table("custom").status_code == 200
    near = f"{space.name}.customers (an Iceberg table)"
    table, view = (
        f"{noun} does not exist: {space.name}.customer; did you mean " for noun in ("Table", "View")
    )
    key = keyed()
    for answer in (
        space.http.get(space.table("customer")),
        space.http.post(f"{space.table('customer')}/plan", json={}),
        space.http.post(f"{space.table('customer')}/metrics", json={"report-type": "x"}),
        space.http.delete(space.table("customer")),
        space.http.delete(space.table("customer"), headers=key),
        space.http.delete(space.table("customer"), headers=key),
        space.commit(space.table("customer"), set_properties(a="1")),
        rename(space, "tables", "customer", "y"),
    ):
        check_error(answer, 404, "NoSuchTableException", table)
        assert near in answer.json()["error"]["message"]
        assert f"{space.name}.custom (a Lance table)" in answer.json()["error"]["message"]
    answer = space.http.get(space.view("customer"))
    check_error(answer, 404, "NoSuchViewException", view)
    check_error(space.http.get(space.table("other")), 404, "NoSuchTableException")
    message = space.http.get(space.table("other")).json()["error"]["message"]
    assert message == f"Table does not exist: {space.name}.other"


@pytest.mark.parametrize("holder", ["table", "view"])
def test_what_iceberg_has_is_no_table_of_lance(space: Space, lance: Lance, holder: str) -> None:
    space.made_table("x") if holder == "table" else space.made_view("x")
    for action in ("describe", "drop", "deregister", "version/list"):
        check_refusal(lance.post("table", "x", action, json={}), 404, TABLE_NOT_FOUND)
    body = {"new_table_name": "y"}
    check_refusal(lance.post("table", "x", "rename", json=body), 404, TABLE_NOT_FOUND)


def test_lance_does_not_rename_onto_iceberg(space: Space, lance: Lance, untouched: Path) -> None:
    space.made_table("t")
    space.made_view("v")
    for name in ("t", "v"):
        answer = lance.post("table", "lance", "rename", json={"new_table_name": name})
        check_refusal(answer, TAKEN, TABLE_ALREADY_EXISTS)


def test_a_namespace_with_iceberg_tables_is_not_empty_for_lance(space: Space, lance: Lance) -> None:
    made = space.made_table("t")
    check_refusal(lance.namespace("drop", {"behavior": "Restrict"}), 409, NAMESPACE_NOT_EMPTY)
    assert space.http.get(space.table("t")).json()["metadata"] == made["metadata"]


def test_a_namespace_with_lance_tables_is_not_empty_for_iceberg(space: Space, untouched: Path) -> None:
    check_error(space.http.delete(space.at()), 409, "NamespaceNotEmptyException")


def test_a_cascade_takes_the_names_of_iceberg_and_leaves_its_files(space: Space, lance: Lance) -> None:
    made = space.made_table("t")
    space.made_view("v")
    assert lance.table("lance").status_code == 200
    directory = lance.directory("lance")
    assert lance.namespace("drop", {"behavior": "Cascade"}).status_code == 200
    check_error(space.http.get(space.at("tables")), 404, "NoSuchNamespaceException")
    assert not directory.exists()
    assert space.http.post("namespaces", json={"namespace": [space.name]}).status_code == 200
    body = {"name": "again", "metadata-location": made["metadata-location"]}
    again = space.http.post(space.at("register"), json=body)
    assert check_form(again, "LoadTableResult")["metadata"] == made["metadata"]


@pytest.mark.parametrize("inside", ["", "/data", "/sub/dir", "/_versions/"])
def test_iceberg_takes_no_place_in_a_lance_table(space: Space, untouched: Path, inside: str) -> None:
    location = f"file://{untouched}{inside}"
    space.made_table("t")
    space.made_view("v")
    for answer in (
        space.create_table("x", location=location),
        space.create_table("x", location=location, **{"stage-create": True}),
        space.create_view("x", location=location),
        space.http.post(space.table("x"), json=staged_at(location)),
        space.commit(space.table("t"), {"action": "set-location", "location": location}),
        space.commit(space.view("v"), {"action": "set-location", "location": location}),
    ):
        check_error(answer, 400, "BadRequestException", "location: ")
    assert (space.names("tables"), space.names("views")) == (["t"], ["v"])


def staged_at(location: str) -> dict[str, Any]:
    return {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": "01234567-89ab-4def-8123-456789abcdef"},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": location},
        ],
    }


def test_iceberg_writes_no_metadata_into_a_lance_table(space: Space, untouched: Path) -> None:
    space.made_table("t")
    properties = {"write.metadata.path": f"file://{untouched}/_versions"}
    for answer in (
        space.create_table("x", properties=properties),
        space.create_view("x", properties=properties),
        space.commit(space.table("t"), set_properties(**properties)),
    ):
        check_error(answer, 400, "BadRequestException", "location: ")


def test_iceberg_takes_no_place_around_a_lance_table(
    space: Space, lance: Lance, server: RunningServer
) -> None:
    outer = server.root / "warehouse" / space.name
    place = f"{space.name}/inner"
    assert lance.post("table", "lance", "declare", json={"location": place}).status_code == 200
    check_error(space.create_table("x", location=f"file://{outer}"), 400, "BadRequestException")
    check_error(space.create_view("x", location=str(outer)), 400, "BadRequestException")


@pytest.mark.parametrize("place", ["", "/data", "/deeper/still", "/.."])
def test_lance_takes_no_place_of_iceberg(space: Space, lance: Lance, place: str) -> None:
    outer = f"{space.name}/iceberg-tables"
    warehouse = warehouse_of(space)
    space.made_table("t", location=f"file://{warehouse}/{outer}/t")
    chosen = outer if place == "/.." else f"{outer}/t{place}"
    answer = lance.post("table", "lance", "declare", json={"location": chosen})
    check_refusal(answer, TAKEN, TABLE_ALREADY_EXISTS)
    write_dataset(some_rows(), str(warehouse / chosen))
    before = tree(warehouse / outer)
    answer = lance.post("table", "lance", "register", json={"location": chosen})
    check_refusal(answer, TAKEN, TABLE_ALREADY_EXISTS)
    assert tree(warehouse / outer) == before
