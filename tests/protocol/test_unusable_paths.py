"""Paths that no file can have, in every request that takes one: refused with 400, never a fault of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from tests.conftest import RunningServer
from tests.protocol.iceberg.wire import SCHEMA, set_properties, view_version
from tests.protocol.wire import TableOnWire, some_rows, stream

# Each is what comes after the warehouse.
PATHS: Mapping[str, str] = {
    "a long name": "x" * 256,
    "a long name in bytes": "ü" * 130,
    "a long name on the way": f"a/{'x' * 300}/t",
    "a NUL": "a\x00b",
    "a NUL on the way": "a\x00b/t",
    "a file": "a-file",
    "below a file": "a-file/t",
    "far below a file": "a-file/t/u",
    "a link to itself": "a-loop",
    "below a link to itself": "a-loop/t",
    "a long path": "/".join(["y" * 250] * 17),
}
REFS: Mapping[str, str] = {
    "a long name": "x" * 300,
    "a long path": "/".join(["y" * 150] * 40),
    "a NUL": "a\x00b",
    "a way out": "../../x",
    "nothing": "",
}

Send = Callable[[str], httpx.Response]


@pytest.fixture(scope="module")
def warehouse(server: RunningServer) -> Iterator[Path]:
    directory = server.root / "warehouse"
    file, loop = directory / "a-file", directory / "a-loop"
    file.write_text("not a directory")
    loop.symlink_to(loop)
    yield directory
    file.unlink()
    loop.unlink()


class Requests:
    """One request for each way to say where something lies, or what it is called."""

    def __init__(self, http: httpx.Client, table: TableOnWire) -> None:
        self._http = http
        self._table = table
        self._namespace = table.namespace

    def locations(self) -> dict[str, Send]:
        return {
            "register": lambda place: self._new("register", {"location": place}),
            "register with overwrite": lambda place: self._new(
                "register", {"location": place, "mode": "OVERWRITE"}
            ),
            "declare": lambda place: self._new("declare", {"location": place}),
            "create": self._create,
            "batch-commit": self._declare_in_batch,
        }

    def iceberg_locations(self) -> dict[str, Send]:
        return {
            "create table": lambda place: self._iceberg("tables", schema=SCHEMA, location=place),
            "stage table": lambda place: self._iceberg(
                "tables", schema=SCHEMA, location=place, **{"stage-create": True}
            ),
            "metadata path": lambda place: self._iceberg(
                "tables", schema=SCHEMA, properties={"write.metadata.path": place}
            ),
            "create view": lambda place: self._iceberg(
                "views", schema=SCHEMA, location=place, properties={}, **{"view-version": view_version()}
            ),
            "register table": lambda place: self._iceberg("register", **{"metadata-location": place}),
            "register view": lambda place: self._iceberg("register-view", **{"metadata-location": place}),
            "set location": lambda place: self._commit({"action": "set-location", "location": place}),
            "set metadata path": lambda place: self._commit(set_properties(**{"write.metadata.path": place})),
            "transaction": self._transaction,
        }

    def manifests(self) -> dict[str, Send]:
        return {
            "version/create": lambda path: self._table.post("version/create", self._entry(path)),
            "batch-create": lambda path: self._http.post(
                "/v1/table/version/batch-create",
                json={"entries": [{"id": self._table.levels, **self._entry(path)}]},
            ),
        }

    def refs(self) -> dict[str, Send]:
        point = {"version": 1}
        return {
            "tags/create": lambda name: self._table.post("tags/create", {"tag": name, **point}),
            "tags/update": lambda name: self._table.post("tags/update", {"tag": name, **point}),
            "tags/delete": lambda name: self._table.post("tags/delete", {"tag": name}),
            "tags/version": lambda name: self._table.post("tags/version", {"tag": name}),
            "branches/create": lambda name: self._table.post("branches/create", {"name": name}),
            "branches/delete": lambda name: self._table.post("branches/delete", {"name": name}),
            "version/list": lambda name: self._table.post("version/list", {"branch": name or "//"}),
            "describe": lambda name: self._table.post("describe", {"branch": name or "//"}),
            "version/create": lambda name: self._table.post(
                "version/create", {**self._entry("x"), "branch": name or "//"}
            ),
        }

    def _entry(self, path: str) -> dict[str, Any]:
        return {"version": 2, "manifest_path": path, "naming_scheme": "V2"}

    def _new(self, action: str, body: dict[str, Any]) -> httpx.Response:
        return self._http.post(f"/v1/table/{self._namespace}$n{uuid4().hex}/{action}", json=body)

    def _create(self, place: str) -> httpx.Response:
        path = f"/v1/table/{self._namespace}$n{uuid4().hex}/create"
        return self._http.post(path, params={"location": place}, content=stream(some_rows()))

    def _declare_in_batch(self, place: str) -> httpx.Response:
        declared = {"id": [self._namespace, f"n{uuid4().hex}"], "location": place}
        return self._http.post("/v1/table/batch-commit", json={"operations": [{"declare_table": declared}]})

    def _iceberg(self, action: str, **fields: Any) -> httpx.Response:
        path = f"/iceberg/v1/namespaces/{self._namespace}/{action}"
        return self._http.post(path, json={"name": f"n{uuid4().hex}", **fields})

    def _commit(self, update: dict[str, Any]) -> httpx.Response:
        name = f"n{uuid4().hex}"
        tables = f"/iceberg/v1/namespaces/{self._namespace}/tables"
        assert self._http.post(tables, json={"name": name, "schema": SCHEMA}).status_code == 200
        return self._http.post(f"{tables}/{name}", json={"requirements": [], "updates": [update]})

    def _transaction(self, place: str) -> httpx.Response:
        names = [f"n{uuid4().hex}" for _ in range(2)]
        tables = f"/iceberg/v1/namespaces/{self._namespace}/tables"
        for name in names:
            assert self._http.post(tables, json={"name": name, "schema": SCHEMA}).status_code == 200
        changes = [
            {
                "identifier": {"namespace": [self._namespace], "name": name},
                "requirements": [],
                "updates": [{"action": "set-location", "location": f"{place}/{name}"}],
            }
            for name in names
        ]
        return self._http.post("/iceberg/v1/transactions/commit", json={"table-changes": changes})


@pytest.fixture
def requests(http: httpx.Client, table: TableOnWire) -> Requests:
    return Requests(http, table)


def spellings(warehouse: Path, path: str) -> dict[str, str]:
    return {"absolute": f"{warehouse}/{path}", "relative": path, "uri": f"file://{warehouse}/{quote(path)}"}


def check_refused(ways: Mapping[str, Send], values: Mapping[str, str], right: set[int], word: str) -> None:
    """Every answer has one of these statuses, and names the field."""
    found = []
    for way, send in ways.items():
        for name, value in values.items():
            answer = send(value)
            if answer.status_code not in right or word not in answer.text:
                found.append(f"{way}, {name}: {answer.status_code} {answer.text[:300]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", PATHS)
def test_a_lance_table_lies_at_no_unusable_place(requests: Requests, warehouse: Path, kind: str) -> None:
    values = spellings(warehouse, PATHS[kind])
    check_refused(requests.locations(), values, {400}, "location")


@pytest.mark.parametrize("kind", PATHS)
def test_iceberg_puts_nothing_at_an_unusable_place(requests: Requests, warehouse: Path, kind: str) -> None:
    # To clients of Iceberg a percent sign is just that.
    values = {**spellings(warehouse, PATHS[kind]), "uri": f"file://{warehouse}/{PATHS[kind]}"}
    # What is to be registered may just not be there.
    check_refused(requests.iceberg_locations(), values, {400, 404}, "")


@pytest.mark.parametrize("kind", PATHS)
def test_a_manifest_lies_at_no_unusable_place(requests: Requests, warehouse: Path, kind: str) -> None:
    values = spellings(warehouse, PATHS[kind])
    check_refused(requests.manifests(), values, {400}, "manifest_path")


@pytest.mark.parametrize("kind", REFS)
def test_a_reference_has_no_unusable_name(requests: Requests, kind: str) -> None:
    check_refused(requests.refs(), {kind: REFS[kind]}, {400}, "")
