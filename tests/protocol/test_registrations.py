"""Tables that get a name, lose it, or get another, while their data stays where it is."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import lance
import lancedb
import pytest
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import (
    DeregisterTableRequest,
    DescribeTableRequest,
    RegisterTableRequest,
    RenameTableRequest,
)

import tidemill
from tests.conftest import RunningServer
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

register = pytest.mark.operation("RegisterTable", client="urllib3")
deregister = pytest.mark.operation("DeregisterTable", client="urllib3")
rename = pytest.mark.operation("RenameTable", client="urllib3")


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def warehouse(server: RunningServer) -> Path:
    return server.root / "warehouse"


@pytest.fixture
def found(warehouse: Path) -> Iterator[Path]:
    """A table of two versions that the catalog does not know, written past the server."""
    place = warehouse / f"found-{uuid4().hex[:8]}" / "t"
    lance.write_dataset(some_rows(), place)
    lance.write_dataset(some_rows(4), place, mode="append")
    yield place
    shutil.rmtree(place.parent, ignore_errors=True)


@register
def test_a_table_in_storage_is_registered_with_its_versions(
    tables: TableApi, namespace: str, found: Path
) -> None:
    path = f"{namespace}$t"
    request = RegisterTableRequest(location=str(found), properties={"owner": "me"})
    answer = tables.register_table_with_http_info(path, request)
    assert (answer.status_code, answer.data.location) == (200, str(found))
    assert answer.data.properties == {"owner": "me"}
    assert [version.version for version in tables.list_table_versions(path).versions] == [1, 2]
    described = tables.describe_table(path, DescribeTableRequest())
    assert (described.version, described.properties) == (2, {"owner": "me"})
    assert described.managed_versioning


@register
@pytest.mark.operation("RegisterTable", client="http")
@pytest.mark.parametrize("spelling", ["relative", "file://", "file:", "slash at the end", "doubled slashes"])
def test_a_place_is_registered_in_every_spelling(
    http: httpx.Client, namespace: str, found: Path, warehouse: Path, spelling: str
) -> None:
    location = {
        "relative": str(found.relative_to(warehouse)),
        "file://": found.as_uri(),
        "file:": f"file:{found}",
        "slash at the end": f"{found}/",
        "doubled slashes": str(found).replace("/", "//"),
    }[spelling]
    table = TableOnWire(http, namespace, "t")
    assert table.asked("register", {"location": location})["location"] == str(found)
    assert table.asked("count_rows") == 6


@pytest.mark.operation("RegisterTable", client="pylance")
def test_a_registered_table_is_written_by_the_server_and_by_clients(
    http: httpx.Client, rest: RestNamespace, namespace: str, found: Path
) -> None:
    table = TableOnWire(http, namespace, "t")
    table.asked("register", {"location": str(found)})
    table.insert(some_rows(7))
    lance.write_dataset(some_rows(10), namespace_client=rest, table_id=table.levels, mode="append")
    assert (table.numbers(), table.asked("count_rows")) == ([1, 2, 3, 4], 12)


def test_branches_of_a_registered_table_are_found(http: httpx.Client, namespace: str, found: Path) -> None:
    lance.dataset(found).create_branch("dev")
    table = TableOnWire(http, namespace, "t")
    table.asked("register", {"location": str(found)})
    assert table.asked("describe", {"branch": "dev"})["version"] == 2
    check_refusal(table.post("describe", {"branch": "nowhere"}), 404, 22)


@register
def test_a_taken_name_is_not_registered_unless_overwriting(
    tables: TableApi, table: TableOnWire, found: Path
) -> None:
    path, before = "$".join(table.levels), table.directory
    with pytest.raises(ApiException) as raised:
        tables.register_table(path, RegisterTableRequest(location=str(found)))
    assert refusal(raised) == (409, 5)
    tables.register_table(path, RegisterTableRequest(location=str(found), mode="overwrite"))
    assert table.asked("count_rows") == 6
    assert before.exists()
    tables.register_table(path, RegisterTableRequest(location=str(before), mode="Overwrite"))
    assert table.asked("count_rows") == 3


@register
def test_the_namespace_of_a_registered_table_has_to_exist(
    tables: TableApi, namespace: str, found: Path
) -> None:
    with pytest.raises(ApiException) as raised:
        tables.register_table(f"{namespace}$nowhere$t", RegisterTableRequest(location=str(found)))
    assert refusal(raised) == (404, 1)


def test_a_view_is_never_replaced_by_a_registration(
    http: httpx.Client, lake: tidemill.Lake, table: TableOnWire, found: Path
) -> None:
    view = TableOnWire(http, table.namespace, "v")
    lake.create_materialized_view(view.levels, lake.table(table.levels).select("id"))
    for body in ({"location": str(found)}, {"location": str(found), "mode": "Overwrite"}):
        answer = view.post("register", body)
        assert (answer.status_code, answer.json()["code"]) in [(409, 5), (409, 19)]
    check_refusal(view.post("create?mode=overwrite", content=stream(some_rows())), 409, 19)
    assert view.asked("count_rows") == 0


@pytest.mark.parametrize(
    "location",
    [
        "/etc",
        "/",
        "..",
        "../catalog.db",
        "x/../../y",
        "file:///etc/../tmp",
        "s3://bucket/table",
        "memory://t",
        "nowhere",
        "_jobs\n",
        "x" * 3000,
    ],
)
def test_a_place_that_is_no_table_of_ours_is_refused(
    http: httpx.Client, namespace: str, location: str
) -> None:
    table = TableOnWire(http, namespace, "t")
    check_refusal(table.post("register", {"location": location}), 400, 13, "location")
    check_refusal(table.post("exists"), 404, 4)


def test_a_place_outside_the_warehouse_is_refused(
    http: httpx.Client, namespace: str, tmp_path: Path, warehouse: Path
) -> None:
    lance.write_dataset(some_rows(), tmp_path / "t")
    link = warehouse / f"link-{uuid4().hex}"
    link.symlink_to(tmp_path / "t")
    table = TableOnWire(http, namespace, "t")
    for location in (str(tmp_path / "t"), str(link), link.name):
        check_refusal(table.post("register", {"location": location}), 400, 13, "location")


def test_a_table_whose_manifest_reaches_elsewhere_is_not_registered(
    http: httpx.Client, namespace: str, tmp_path: Path, warehouse: Path
) -> None:
    original = lance.write_dataset(some_rows(), tmp_path / "original")
    place = warehouse / f"clone-{uuid4().hex}"
    original.shallow_clone(str(place), reference=1)
    table = TableOnWire(http, namespace, "t")
    check_refusal(table.post("register", {"location": str(place)}), 400, 13, "location")


def test_a_place_belongs_to_one_table(
    http: httpx.Client, table: TableOnWire, found: Path, warehouse: Path
) -> None:
    another = TableOnWire(http, table.namespace, "another")
    inside = table.directory / "tree" / "x"
    lance.write_dataset(some_rows(), inside)
    check_refusal(another.post("register", {"location": str(table.directory)}), 409, 5)
    check_refusal(another.post("register", {"location": str(inside)}), 400, 13, "location")
    another.asked("register", {"location": str(found)})
    third = TableOnWire(http, table.namespace, "third")
    lance.write_dataset(some_rows(), found / "inner")
    lance.write_dataset(some_rows(), found.parent)
    for location in (found / "inner", found.parent):
        check_refusal(third.post("register", {"location": str(location)}), 409, 5)
        check_refusal(third.post("declare", {"location": str(location)}), 409, 5)


@deregister
def test_a_deregistered_table_keeps_its_data_and_can_come_back(
    tables: TableApi, table: TableOnWire, namespace: str
) -> None:
    files, path = table.directory, "$".join(table.levels)
    table.insert(some_rows(4))
    answer = tables.deregister_table_with_http_info(path, DeregisterTableRequest())
    assert (answer.status_code, answer.data.id) == (200, table.levels)
    assert (answer.data.location, answer.data.properties) == (str(files), {})
    assert tables.list_tables(namespace).tables == []
    assert lance.dataset(files).count_rows() == 6
    tables.register_table(f"{namespace}$back", RegisterTableRequest(location=str(files)))
    back = TableOnWire(table.http, namespace, "back")
    assert (back.numbers(), back.asked("count_rows")) == ([1, 2], 6)
    tables.drop_table(f"{namespace}$back")
    assert not files.exists()


@deregister
@rename
def test_a_missing_table_is_neither_deregistered_nor_renamed(tables: TableApi, namespace: str) -> None:
    for path, code in ((f"{namespace}$nowhere", 4), (f"{namespace}$nowhere$t", 1)):
        for call in (
            partial(tables.rename_table, path, RenameTableRequest(new_table_name="t")),
            partial(tables.deregister_table, path, DeregisterTableRequest()),
        ):
            with pytest.raises(ApiException) as raised:
                call()
            assert refusal(raised) == (404, code)


def moved_away(server: RunningServer, table: TableOnWire, elsewhere: Path) -> None:
    """Has the catalog believe that the table lies outside the warehouse."""
    with closing(sqlite3.connect(server.root / "catalog.db", timeout=30)) as connection, connection:
        changed = connection.execute(
            "UPDATE tables SET location = ? WHERE location = ?", (str(elsewhere), str(table.directory))
        )
        assert changed.rowcount == 1


def test_data_outside_the_warehouse_is_not_dropped(
    server: RunningServer, table: TableOnWire, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "t"
    shutil.copytree(table.directory, elsewhere)
    moved_away(server, table, elsewhere)
    answer = table.post("drop")
    check_refusal(answer, 409, 19)
    assert "deregister" in answer.json()["error"]
    table.http.post(f"/v1/namespace/{table.namespace}/drop", json={"behavior": "Cascade"}).raise_for_status()
    check_refusal(table.post("exists"), 404, 1)
    assert lance.dataset(elsewhere).count_rows() == 3


@rename
def test_a_renamed_table_keeps_its_data_and_its_versions(
    tables: TableApi, table: TableOnWire, namespace: str
) -> None:
    table.insert(some_rows(4))
    before, files = table.versions(), table.directory
    answer = tables.rename_table_with_http_info(
        "$".join(table.levels), RenameTableRequest(new_table_name="u")
    )
    assert answer.status_code == 200
    assert tables.list_tables(namespace).tables == ["u"]
    renamed = TableOnWire(table.http, namespace, "u")
    assert (renamed.versions(), renamed.directory) == (before, files)
    check_refusal(table.post("describe"), 404, 4)
    table.create(some_rows(count=1))
    assert (table.asked("count_rows"), renamed.asked("count_rows")) == (1, 6)


@rename
@pytest.mark.operation("RenameTable", client="http")
@pytest.mark.parametrize("how", ["list", "text", "lancedb"])
def test_a_table_is_renamed_into_another_namespace(
    http: httpx.Client, table: TableOnWire, namespace: str, how: str
) -> None:
    assert http.post(f"/v1/namespace/{namespace}$inner/create", json={}).status_code == 200
    bodies: dict[str, dict[str, Any]] = {
        "list": {"new_namespace_id": [namespace, "inner"]},
        "text": {"new_namespace_id": f"{namespace}$inner"},
        "lancedb": {"new_namespace": [namespace, "inner"]},
    }
    table.asked("rename", {"new_table_name": "u", **bodies[how]})
    moved = http.post(f"/v1/table/{namespace}$inner$u/count_rows")
    assert moved.json() == 3
    check_refusal(table.post("exists"), 404, 4)


def test_a_table_is_renamed_into_the_root(http: httpx.Client, table: TableOnWire) -> None:
    name = f"t{uuid4().hex}"
    table.asked("rename", {"new_table_name": name, "new_namespace_id": []})
    assert http.post(f"/v1/table/{name}/count_rows").json() == 3
    http.post(f"/v1/table/{name}/drop").raise_for_status()


@pytest.mark.operation("RenameTable", client="http")
def test_a_client_that_sends_unset_lists_as_empty_renames_within_the_namespace(
    http: httpx.Client, table: TableOnWire, namespace: str
) -> None:
    table.asked("rename", {"id": [], "new_table_name": "u", "new_namespace_id": []})
    assert http.post(f"/v1/table/{namespace}$u/count_rows").json() == 3


@rename
def test_a_table_is_not_renamed_to_a_taken_name_or_a_missing_namespace(
    tables: TableApi, table: TableOnWire, namespace: str
) -> None:
    path = "$".join(table.levels)
    TableOnWire(table.http, namespace, "taken").asked("declare")
    for request, expected in (
        (RenameTableRequest(new_table_name="taken"), (409, 5)),
        (RenameTableRequest(new_table_name="t"), (409, 5)),
        (RenameTableRequest(new_table_name="u", new_namespace_id=[namespace, "nowhere"]), (404, 1)),
        (RenameTableRequest(new_table_name=".."), (400, 13)),
        (RenameTableRequest(new_table_name=""), (400, 13)),
        (RenameTableRequest(new_table_name="u", new_namespace_id=[""]), (400, 13)),
    ):
        with pytest.raises(ApiException) as raised:
            tables.rename_table(path, request)
        assert refusal(raised) == expected
    assert table.asked("count_rows") == 3


def test_a_table_does_not_take_the_name_of_a_view(lake: tidemill.Lake, table: TableOnWire) -> None:
    lake.create_materialized_view([table.namespace, "v"], lake.table(table.levels).select("id"))
    check_refusal(table.post("rename", {"new_table_name": "v"}), 409, 5)


@pytest.mark.operation("RenameTable", client="remote")
def test_lancedb_renames_over_the_wire(server: RunningServer, namespace: str) -> None:
    database = lancedb.connect("db://x", api_key="k", host_override=server.url)
    old, new = f"old{uuid4().hex}", f"new{uuid4().hex}"
    database.create_table(old, some_rows())
    database.rename_table(old, new)
    assert database.open_table(new).count_rows() == 3
    database.rename_table(new, "t", new_namespace_path=[namespace])
    assert database.open_table("t", namespace_path=[namespace]).count_rows() == 3


@pytest.mark.operation("RenameTable", client="lancedb")
def test_lancedb_renames_through_its_namespace(server: RunningServer, namespace: str) -> None:
    database = lancedb.connect_namespace("rest", {"uri": server.url})
    database.create_table("t", some_rows(), namespace_path=[namespace])
    database.rename_table("t", "u", cur_namespace_path=[namespace], new_namespace_path=[namespace])
    assert database.open_table("u", namespace_path=[namespace]).count_rows() == 3
    database.open_table("u", namespace_path=[namespace]).add(some_rows(4))
    assert database.open_table("u", namespace_path=[namespace]).count_rows() == 6


@tidemill.udf
def double(id: int) -> int:
    return id * 2


def test_jobs_columns_and_views_follow_a_renamed_table(lake: tidemill.Lake, table: TableOnWire) -> None:
    before = lake.table(table.levels)
    before.add_column("double", double)
    view = lake.create_materialized_view([table.namespace, "v"], before.select("id"))
    job = before.backfill("double")
    table.asked("rename", {"new_table_name": "u"})
    job.wait(300)
    after = lake.table([table.namespace, "u"])
    assert after.to_arrow()["double"].to_pylist() == [2, 4, 6]
    table.http.post(
        f"/v1/table/{table.namespace}$u/insert", content=stream(after.to_arrow())
    ).raise_for_status()
    view.refresh().wait(300)
    assert view.count_rows() == 6
    table.http.post(f"/v1/table/{table.namespace}$v/rename", json={"new_table_name": "w"}).raise_for_status()
    renamed = lake.view([table.namespace, "w"])
    renamed.refresh(full=True).wait(300)
    assert renamed.count_rows() == 6
