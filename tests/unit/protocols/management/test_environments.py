"""Manifests over the management API, and what jobs make of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.protocols.stand import Stand
from tidemill.catalog.model.callers import LOCAL_CALLER, Permission
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.sealed_variables import opened_variables
from tidemill.errors import InvalidInput
from tidemill.jobs.model.options import BackfillRequest

VARIABLES = {"TOKEN": "secret", "MODEL": "small"}
BODY = {"pip": ["pillow==11.0", "numpy>=2,<3"], "env_vars": VARIABLES}
# As Geneva's client writes a manifest that asks for nothing but a package.
GENEVA: dict[str, Any] = {
    "checksum": "abc",
    "conda": {},
    "conda_environment_path": None,
    "env_vars": {},
    "head_image": "image",
    "name": "m",
    "pip": ["pillow"],
    "pip_extra_index_urls": [],
    "py_modules": [],
    "requirements_path": None,
    "skip_site_packages": True,
    "version": "1",
    "worker_image": None,
    "zips": [],
}


@pytest.fixture
def stand() -> Stand:
    return Stand()


def resolved(stand: Stand, manifest: str | None) -> Environment | None:
    found = stand.environments.resolve(LOCAL_CALLER, manifest)
    return None if found is None else opened_variables(found, stand.environments.cipher)


def test_a_manifest_is_kept_and_shown_without_the_values_of_its_variables(stand: Stand) -> None:
    shown = {"name": "images", "pip": ["pillow==11.0", "numpy<3,>=2"], "env_vars": ["MODEL", "TOKEN"]}
    assert stand.send("PUT", "/api/v1/manifests/images", json=BODY).json() == shown
    assert stand.get("/api/v1/manifests/images").json() == shown
    assert stand.get("/api/v1/manifests").json() == {"manifests": [shown]}


def test_a_manifest_is_replaced_and_removed(stand: Stand) -> None:
    stand.send("PUT", "/api/v1/manifests/m", json=BODY)
    stand.send("PUT", "/api/v1/manifests/m", json={"pip": ["a"]})
    assert stand.get("/api/v1/manifests/m").json() == {"name": "m", "pip": ["a"], "env_vars": []}
    assert stand.send("DELETE", "/api/v1/manifests/m").status_code == 200
    assert stand.get("/api/v1/manifests").json() == {"manifests": []}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_manifest_that_is_not_there_is_named(stand: Stand, method: str) -> None:
    answer = stand.send(method, "/api/v1/manifests/nobody")
    assert answer.is_client_error
    assert "'nobody'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["%7Bx", "%20%7Bx", "%0A"])
def test_a_name_that_no_job_could_ask_for_is_refused(stand: Stand, name: str) -> None:
    answer = stand.send("PUT", f"/api/v1/manifests/{name}", json=BODY)
    assert (answer.status_code, stand.environments.store.kept) == (400, {})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"packages": ["a"]}, "packages"),
        ({"pip": "pillow"}, "pip"),
        ({"pip": [5]}, "pip[0]"),
        ({"pip": ["ok", "not a package!"]}, "pip[1]"),
        ({"pip": ["--index-url=http://elsewhere"]}, "pip[0]"),
        ({"pip": ["-r requirements.txt"]}, "pip[0]"),
        ({"env_vars": ["A"]}, "env_vars"),
        ({"env_vars": {"A B": "x"}}, "env_vars"),
        ({"env_vars": {"1A": "x"}}, "env_vars"),
        ({"env_vars": {"A": 1}}, "env_vars.A"),
        ({"env_vars": {"A": "x\x00"}}, "env_vars.A"),
        ({"conda": {"dependencies": ["a"]}}, "conda"),
        ({"zips": [["s3://bucket/a.zip"]]}, "zips"),
        ({"py_modules": ["a"]}, "py_modules"),
        ({"requirements_path": "requirements.txt"}, "requirements_path"),
        ({"conda_environment_path": "environment.yml"}, "conda_environment_path"),
        ({"pip_extra_index_urls": ["http://elsewhere"]}, "pip_extra_index_urls"),
    ],
)
def test_what_a_manifest_cannot_have_is_refused_by_field(
    stand: Stand, body: dict[str, Any], field: str
) -> None:
    answer = stand.send("PUT", "/api/v1/manifests/m", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{field}: ")
    with pytest.raises(InvalidInput) as refused:
        resolved(stand, json.dumps(body))
    assert refused.value.field == f"manifest.{field}"


def test_what_is_wrong_with_a_value_is_said_without_showing_it(stand: Stand) -> None:
    answer = stand.send("PUT", "/api/v1/manifests/m", json={"env_vars": {"A": "hidden\x00"}})
    assert "hidden" not in answer.text


def test_a_job_gets_the_manifest_it_names(stand: Stand) -> None:
    stand.send("PUT", "/api/v1/manifests/m", json=BODY)
    found = resolved(stand, "m")
    assert found == Environment(("pillow==11.0", "numpy<3,>=2"), VARIABLES)


def test_a_job_gets_the_manifest_it_brings(stand: Stand) -> None:
    assert resolved(stand, json.dumps(GENEVA)) == Environment(("pillow",))


def test_submitting_a_request_puts_the_environment_in_the_place_of_the_manifest(stand: Stand) -> None:
    stand.environments.store.put("m", Environment(("a",)))
    request = stand.environments.resolved(LOCAL_CALLER, BackfillRequest("size", manifest="m", task_size=2))
    assert request == BackfillRequest("size", environment=Environment(("a",)), task_size=2)


@pytest.mark.parametrize("manifest", [None, "", "  "])
def test_a_job_that_names_none_gets_none(stand: Stand, manifest: str | None) -> None:
    assert resolved(stand, manifest) is None


@pytest.mark.parametrize("manifest", ["nobody", "{", '{"pip": ', "[1]"])
def test_a_manifest_that_cannot_be_found_or_read_is_refused(stand: Stand, manifest: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        resolved(stand, manifest)
    assert refused.value.field == "manifest"


@pytest.mark.parametrize(
    ("manifest", "permissions"),
    [("m", [Permission.READ]), ('{"pip": ["a"]}', [Permission.FUNCTION]), ("{}", [])],
)
def test_bringing_packages_takes_the_right_to_bring_code(
    stand: Stand, manifest: str, permissions: list[Permission]
) -> None:
    stand.environments.store.put("m", Environment(("a",)))
    resolved(stand, manifest)
    assert stand.environments.asked == permissions


def test_changing_takes_another_permission_than_looking(stand: Stand) -> None:
    stand.send("PUT", "/api/v1/manifests/m", json={})
    stand.get("/api/v1/manifests")
    stand.get("/api/v1/manifests/m")
    stand.send("DELETE", "/api/v1/manifests/m")
    expected = [Permission.FUNCTION, Permission.READ, Permission.READ, Permission.FUNCTION]
    assert stand.environments.asked == expected
