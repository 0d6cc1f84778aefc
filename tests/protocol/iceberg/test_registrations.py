"""Names for tables and views that exist in storage."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.protocol.iceberg.wire import Space, check_error, check_form, set_properties


def register(space: Space, name: str, location: Any, **fields: Any) -> httpx.Response:
    return space.http.post(space.at("register"), json={"name": name, "metadata-location": location, **fields})


def register_view(space: Space, name: str, location: Any) -> httpx.Response:
    return space.http.post(space.at("register-view"), json={"name": name, "metadata-location": location})


def unregister(space: Space, name: str = "t") -> httpx.Response:
    return space.http.post(f"{space.table(name)}/unregister")


def test_an_unregistered_table_is_told_of_for_the_last_time(space: Space) -> None:
    made = space.made_table()
    told = check_form(unregister(space), "UnregisterTableResult")
    assert told == {"metadata-location": made["metadata-location"], "metadata": made["metadata"]}
    assert space.names("tables") == []
    check_error(space.commit(space.table()), 404, "NoSuchTableException")


def test_a_table_that_is_missing_is_not_unregistered(space: Space) -> None:
    message = f"Table does not exist: {space.name}.t"
    check_error(unregister(space), 404, "NoSuchTableException", message)


def test_a_table_is_registered_as_it_is(space: Space) -> None:
    made = space.made_table()
    unregister(space)
    answer = register(space, "again", made["metadata-location"])
    assert check_form(answer, "LoadTableResult") == made
    assert answer.headers["etag"] == space.http.get(space.table("again")).headers["etag"]


def test_a_name_that_is_taken_is_not_registered(space: Space) -> None:
    location = space.made_table("t")["metadata-location"]
    space.made_view("v")
    message = f"Table already exists: {space.name}.t"
    check_error(register(space, "t", location), 409, "AlreadyExistsException", message)
    message = f"View with same name already exists: {space.name}.v"
    check_error(register(space, "v", location), 409, "AlreadyExistsException", message)
    check_error(register(space, "v", location, overwrite=True), 409, "AlreadyExistsException", message)


def test_what_lies_in_the_place_of_a_table_is_not_registered_as_another(space: Space) -> None:
    location = space.made_table("t")["metadata-location"]
    check_error(register(space, "twin", location), 400, "BadRequestException")
    location = space.made_view("v")["metadata-location"]
    check_error(register_view(space, "twin", location), 400, "BadRequestException")


def test_a_table_is_overwritten_where_that_is_asked_for(space: Space) -> None:
    before = space.made_table()
    space.commit(space.table(), set_properties(a="1"))
    answer = register(space, "t", before["metadata-location"], overwrite=True)
    assert check_form(answer, "LoadTableResult") == before
    assert space.http.get(space.table()).json() == before


@pytest.mark.parametrize("register_it", [register, register_view])
def test_a_file_that_is_missing_is_not_registered(space: Space, register_it: Any) -> None:
    location = space.made_table()["metadata"]["location"] + "/metadata/missing.metadata.json"
    message = f"Failed to open input stream for file: {location}"
    check_error(register_it(space, "u", location), 404, "NotFoundException", message)


@pytest.mark.parametrize("register_it", [register, register_view])
def test_a_location_is_needed(space: Space, register_it: Any) -> None:
    check_error(register_it(space, "u", None), 400, "BadRequestException", "metadata-location: ")
    check_error(register_it(space, "u", 1), 400, "BadRequestException", "metadata-location: ")


def test_a_dropped_view_can_be_registered_again(space: Space) -> None:
    made = space.made_view()
    space.http.delete(space.view())
    answer = register_view(space, "again", made["metadata-location"])
    assert check_form(answer, "LoadViewResult") == made


def test_a_name_that_is_taken_is_not_registered_for_a_view(space: Space) -> None:
    location = space.made_view("v")["metadata-location"]
    space.made_table("t")
    message = f"View already exists: {space.name}.v"
    check_error(register_view(space, "v", location), 409, "AlreadyExistsException", message)
    message = f"Table with same name already exists: {space.name}.t"
    check_error(register_view(space, "t", location), 409, "AlreadyExistsException", message)


def test_a_table_is_not_registered_as_a_view(space: Space) -> None:
    location = space.made_table()["metadata-location"]
    check_form(register_view(space, "v", location), "IcebergErrorResponse", 400)


def test_a_registration_needs_its_namespace(space: Space) -> None:
    location = space.made_table()["metadata-location"]
    answer = register(Space(space.http, "nowhere"), "t", location)
    check_error(answer, 404, "NoSuchNamespaceException", "Namespace does not exist: nowhere")
