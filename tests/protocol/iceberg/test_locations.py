"""Where tables and views are: locations of namespaces, and which locations clients may choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest

from tests.conftest import RunningServer
from tests.protocol.iceberg.wire import SCHEMA, Space, check_error, check_form, set_properties

ASSERT_CREATE: Final = {"type": "assert-create"}


def location_of(space: Space) -> str:
    told = check_form(space.http.get(space.at()), "GetNamespaceResponse")
    return str(told["properties"]["location"])


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def set_location(space: Space, location: str) -> None:
    answer = space.http.post(space.at("properties"), json={"updates": {"location": location}})
    assert answer.json()["updated"] == ["location"]


def other_space(space: Space, *levels: str) -> Space:
    names = [*levels, f"o{uuid4().hex[:12]}"]
    assert space.http.post("namespaces", json={"namespace": names}).status_code == 200
    return Space(space.http, "\x1f".join(names))


def creation(staged: dict[str, Any]) -> list[dict[str, Any]]:
    """The updates with which Java commits a staged table."""
    return [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]


@pytest.mark.parametrize("unique", [True, False])
def test_tables_are_created_as_trino_does_it(space: Space, unique: bool) -> None:
    """It takes the namespace's location and its own name, and expects an empty directory there."""
    for name in ("orders", "customers"):
        wanted = f"{location_of(space)}/{name}" + (f"-{uuid4().hex}" if unique else "")
        staged = space.made_table(name, location=wanted, **{"stage-create": True})["metadata"]
        assert staged["location"] == wanted
        assert [path for path in local(wanted).rglob("*") if path.is_file()] == []
        answer = space.commit(space.table(name), *creation(staged), requirements=[ASSERT_CREATE])
        assert check_form(answer, "CommitTableResponse")["metadata"]["location"] == wanted
        (local(wanted) / "data" / "file.parquet").write_bytes(b"rows")
    view = space.made_view("v", location=f"{location_of(space)}/v")
    assert view["metadata"]["location"] == f"{location_of(space)}/v"
    assert space.names("tables") == ["customers", "orders"]


def test_every_namespace_has_a_location_of_its_own_in_the_warehouse(
    space: Space, server: RunningServer
) -> None:
    spaces = [space, other_space(space), other_space(space, space.name), other_space(space, space.name)]
    locations = [location_of(one) for one in spaces]
    assert all(Path(server.root / "warehouse") in local(location).parents for location in locations)
    assert not any(
        f"{other}/".startswith(f"{one}/") for one in locations for other in locations if one is not other
    )


def test_a_namespace_made_through_lance_has_one(space: Space, http: httpx.Client) -> None:
    name = f"o{uuid4().hex[:12]}"
    assert http.post(f"/v1/namespace/{name}/create", json={"properties": {"a": "1"}}).status_code == 200
    assert http.post(f"/v1/namespace/{name}/describe", json={}).json()["properties"] == {"a": "1"}
    assert location_of(Space(space.http, name)).startswith("file:///")


def test_new_tables_and_views_go_into_the_location_of_their_namespace(space: Space) -> None:
    for made in (space.made_table("t"), space.made_view("v")):
        assert made["metadata"]["location"].rpartition("/")[0] == location_of(space)


def test_another_location_is_used_until_it_is_removed(space: Space) -> None:
    default = location_of(space)
    chosen = f"{default.rpartition('/iceberg/')[0]}/{space.name}/chosen/"
    set_location(space, chosen)
    assert location_of(space) == chosen
    staged = space.made_table("s", **{"stage-create": True})
    for made in (space.made_table("t"), space.made_view("v"), staged):
        assert made["metadata"]["location"].rpartition("/")[0] == chosen.rstrip("/")
    removal = space.http.post(space.at("properties"), json={"removals": ["location"]})
    assert removal.json() == {"updated": [], "removed": ["location"], "missing": []}
    assert location_of(space) == default
    assert space.made_table("u")["metadata"]["location"].startswith(f"{default}/")


def test_a_location_given_with_a_new_namespace_is_kept(space: Space) -> None:
    name, chosen = f"o{uuid4().hex[:12]}", f"{location_of(space)}/chosen"
    body = {"namespace": [name], "properties": {"location": chosen}}
    told = check_form(space.http.post("namespaces", json=body), "CreateNamespaceResponse")
    assert told["properties"] == {"location": chosen}
    assert Space(space.http, name).made_table()["metadata"]["location"].startswith(f"{chosen}/")


@pytest.mark.parametrize("elsewhere", ["/elsewhere", "s3://elsewhere/x", "relative", "file:///tmp/../x", ""])
def test_a_location_where_no_table_may_be_is_kept_but_not_used(space: Space, elsewhere: str) -> None:
    default = location_of(space)
    set_location(space, elsewhere)
    assert location_of(space) == (elsewhere or default)
    assert space.made_table()["metadata"]["location"].startswith(f"{default}/")


def test_a_location_in_a_table_is_not_used_for_another(space: Space) -> None:
    set_location(space, space.made_table("t")["metadata"]["location"])
    check_error(space.create_table("u"), 400, "BadRequestException", "location: ")
    check_error(space.create_table("u", **{"stage-create": True}), 400, "BadRequestException", "location: ")


@pytest.mark.parametrize("above", [0, 1, 2])
def test_no_table_takes_a_directory_of_namespaces(space: Space, http: httpx.Client, above: int) -> None:
    location = location_of(space)
    for _ in range(above):
        location = location.rpartition("/")[0]
    other = other_space(space)
    other.made_table("t")
    for answer in (
        other.create_table("x", location=location),
        other.create_table("x", location=f"{location}/", **{"stage-create": True}),
        other.create_view("x", location=location),
        other.commit(other.table("t"), {"action": "set-location", "location": location}),
    ):
        check_error(answer, 400, "BadRequestException", "location: ")
    answer = http.post(f"/v1/table/{other.name}$l/declare", json={"location": str(local(location))})
    assert answer.status_code == 400, answer.text


def test_tables_stay_where_they_are_when_they_move_to_another_namespace(space: Space) -> None:
    made, other = space.made_table("t"), other_space(space)
    body = {"source": space.ident("t"), "destination": other.ident("t")}
    assert space.http.post("tables/rename", json=body).status_code == 204
    assert other.commit(other.table("t"), set_properties(a="1")).status_code == 200
    assert other.http.get(other.table("t")).json()["metadata"]["location"] == made["metadata"]["location"]


@pytest.mark.parametrize("inside", ["", "/views/v", "/metadata"])
def test_a_view_may_be_in_the_location_of_a_table_of_its_namespace(space: Space, inside: str) -> None:
    table = space.made_table("t")
    location = f"{table['metadata']['location']}{inside}"
    view = space.made_view("v", location=location)
    assert view["metadata"]["location"] == location
    replaced = space.commit(space.view("v"), set_properties(a="1"))
    assert check_form(replaced, "LoadViewResult")["metadata"]["properties"] == {"a": "1"}
    assert space.http.delete(space.view("v")).status_code == 204
    body = {"name": "again", "metadata-location": replaced.json()["metadata-location"]}
    assert space.http.post(space.at("register-view"), json=body).status_code == 200


def test_a_view_may_move_into_the_location_of_a_table(space: Space) -> None:
    location = f"{space.made_table('t')['metadata']['location']}/views/v"
    space.made_view("v")
    moved = space.commit(space.view("v"), {"action": "set-location", "location": location})
    assert check_form(moved, "LoadViewResult")["metadata"]["location"] == location


def test_a_table_with_a_view_in_its_location_is_committed_and_purged_as_before(space: Space) -> None:
    properties = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    table = space.made_table("t", properties=properties)
    view = space.made_view("v", location=table["metadata"]["location"])
    for number in range(3):
        assert space.commit(space.table("t"), set_properties(number=str(number))).status_code == 200
    loaded = space.http.get(space.table("t")).json()
    assert not local(table["metadata-location"]).exists()
    assert check_form(space.http.post(f"{space.table('t')}/plan", json={}), "PlanTableScanResult")
    assert space.http.delete(space.table("t"), params={"purgeRequested": "true"}).status_code == 204
    assert not local(loaded["metadata-location"]).exists()
    assert local(view["metadata-location"]).exists()
    assert space.http.get(space.view("v")).json()["metadata"] == view["metadata"]


def test_a_view_takes_no_location_of_a_view_or_of_a_table_elsewhere_or_below(space: Space) -> None:
    table, view, other = space.made_table("t"), space.made_view("v"), other_space(space)
    location = table["metadata"]["location"]
    below = space.made_table("u", location=f"{location_of(space)}/a/b")
    for answer in (
        other.create_view("x", location=location),
        other.create_view("x", location=f"{location}/views/x"),
        space.create_view("x", location=view["metadata"]["location"]),
        space.create_view("x", location=f"{view['metadata']['location']}/x"),
        space.create_view("x", location=below["metadata"]["location"].rpartition("/")[0]),
    ):
        check_error(answer, 400, "BadRequestException", "location: ")


@pytest.mark.parametrize("above", [0, 1])
def test_a_table_takes_no_location_of_a_view(space: Space, above: int) -> None:
    """Whoever may read a table may read all files in its location."""
    location = space.made_view("v", location=f"{location_of(space)}/a/v")["metadata"]["location"]
    for _ in range(above):
        location = location.rpartition("/")[0]
    check_error(space.create_table("x", location=location), 400, "BadRequestException", "location: ")
