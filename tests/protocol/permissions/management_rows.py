"""The permissions that the routes of the management API need."""

from __future__ import annotations

from typing import Any, Final

from tests.protocol.permissions.matrix import (
    AWAY,
    HOME,
    ROOT,
    Need,
    Preparation,
    Request,
    Row,
    admin,
    browse,
    compute,
    function,
    on,
    read,
    read_untold,
    request,
)
from tests.protocol.permissions.objects import Objects, new_name
from tests.protocol.view_wire import LENGTH
from tidemill.catalog.model.callers import Permission
from tidemill.catalog.model.functions import encode_envelope

COLUMN: Final = {"column": "length"}


def server(**options: Any) -> Preparation:
    """About the whole server."""
    return lambda objects: request(**options)


def computed(body: Any = None, **options: Any) -> Preparation:
    return lambda objects: on(objects.still_computed, body, **options)


def column(**options: Any) -> Preparation:
    return lambda objects: request(parameters={"id": objects.still_computed, **COLUMN}, **options)


def view(body: Any = None) -> Preparation:
    return lambda objects: on(objects.still_view, body)


def job(objects: Objects) -> Request:
    return request(parameters={"job_id": objects.still_job})


def fresh_job(objects: Objects) -> Request:
    return request(parameters={"job_id": objects.job()})


def paused_job(objects: Objects) -> Request:
    job_id = objects.job()
    objects.ask("POST", f"/api/v1/jobs/{job_id}/pause")
    return request(parameters={"job_id": job_id})


def ended_job(objects: Objects) -> Request:
    """One whose events have an end."""
    job_id = objects.job()
    objects.ask("POST", f"/api/v1/jobs/{job_id}/cancel")
    return request(parameters={"job_id": job_id})


def client(body: Any = None, **more: str) -> Preparation:
    """About a new client of the catalog."""

    def prepared(objects: Objects) -> Request:
        return request(body, parameters={"client": objects.client(), **more})

    return prepared


def member(objects: Objects) -> Request:
    return request({}, parameters={"role": objects.role(), "member": objects.client()})


def member_only(objects: Objects) -> Request:
    return request(parameters={"role": objects.role(), "member": "owner"})


def granting(**on: list[str]) -> Preparation:
    return lambda objects: request({"client": "owner", "permissions": ["read"], **on})


def granting_on_table(objects: Objects) -> Request:
    name = objects.still.split("$")
    return request({"client": "owner", "permissions": ["read"], "table": name})


MANAGEMENT_ROWS: Final = (
    Row("GET /api/v1/functions", (browse(ROOT),), server()),
    Row(
        "GET /api/v1/functions",
        (read(HOME),),
        server(params={"namespace": HOME}),
        "of a namespace",
    ),
    Row("POST /api/v1/functions", (function(ROOT),), server(content=encode_envelope(LENGTH))),
    Row(
        "POST /api/v1/functions",
        (function(HOME),),
        server(content=encode_envelope(LENGTH), params={"namespace": HOME}),
        "in a namespace",
    ),
    Row("GET /api/v1/manifests", (read(ROOT),), server()),
    Row(
        "GET /api/v1/manifests/{name}",
        (read(ROOT),),
        lambda objects: request(parameters={"name": objects.still_manifest}),
    ),
    Row(
        "PUT /api/v1/manifests/{name}",
        (function(ROOT),),
        lambda objects: request({"pip": ["numpy"]}, parameters={"name": new_name()}),
    ),
    Row(
        "DELETE /api/v1/manifests/{name}",
        (function(ROOT),),
        lambda objects: request(parameters={"name": objects.manifest()}),
    ),
    Row("POST /api/v1/tables/{id}/preview", (compute(HOME),), computed(COLUMN)),
    Row("GET /api/v1/tables/{id}/columns/{column}/status", (read(HOME),), column()),
    Row(
        "GET /api/v1/tables/{id}/columns/{column}/rows",
        (read(HOME),),
        column(params={"selection": "missing"}),
    ),
    Row("GET /api/v1/tables/{id}/errors", (read(HOME),), computed()),
    Row("GET /api/v1/views/{id}/status", (read(HOME),), view()),
    Row("POST /api/v1/views/{id}/verify", (compute(HOME),), view({})),
    Row("GET /api/v1/views/{id}/errors", (read(HOME), read_untold(AWAY)), view()),
    Row(
        "POST /api/v1/views/{id}/owner",
        (Need(Permission.ADMIN, ROOT),),
        lambda objects: on(objects.materialized_view(), {"owner": "somebody"}),
    ),
    Row("GET /api/v1/tables/{id}/lineage", (read(HOME),), computed()),
    Row("POST /api/v1/tables/{id}/explain", (read(HOME),), computed(COLUMN)),
    Row("POST /api/v1/views/{id}/explain", (read(HOME), read_untold(AWAY)), view({})),
    Row("GET /api/v1/jobs", (browse(ROOT),), server()),
    Row(
        "GET /api/v1/jobs",
        (read(HOME),),
        lambda objects: request(params={"table": objects.still_computed}),
        "of one table",
    ),
    Row("GET /api/v1/jobs/{job_id}", (read(HOME),), job),
    Row("POST /api/v1/jobs/{job_id}/cancel", (compute(HOME),), fresh_job),
    Row("POST /api/v1/jobs/{job_id}/pause", (compute(HOME),), fresh_job),
    Row("POST /api/v1/jobs/{job_id}/resume", (compute(HOME),), paused_job),
    Row("GET /api/v1/jobs/{job_id}/events", (read(HOME),), job),
    Row("GET /api/v1/jobs/{job_id}/watch", (read(HOME),), ended_job),
    Row("GET /api/v1/auth/clients", (admin(ROOT),), server()),
    Row(
        "POST /api/v1/auth/clients",
        (admin(ROOT),),
        lambda objects: request({"client": new_name()}),
    ),
    Row("DELETE /api/v1/auth/clients/{client}", (admin(ROOT),), client()),
    Row("GET /api/v1/auth/clients/{client}/keys", (admin(ROOT),), client()),
    Row("POST /api/v1/auth/clients/{client}/keys", (admin(ROOT),), client({"name": "other"})),
    Row("DELETE /api/v1/auth/clients/{client}/keys/{key}", (admin(ROOT),), client(key="default")),
    Row("GET /api/v1/auth/roles", (admin(ROOT),), server()),
    Row("POST /api/v1/auth/roles", (admin(ROOT),), lambda objects: request({"role": new_name()})),
    Row(
        "DELETE /api/v1/auth/roles/{role}",
        (admin(ROOT),),
        lambda objects: request(parameters={"role": objects.role()}),
    ),
    Row("PUT /api/v1/auth/roles/{role}/members/{member}", (admin(ROOT),), member),
    Row("DELETE /api/v1/auth/roles/{role}/members/{member}", (admin(ROOT),), member_only),
    Row("POST /api/v1/auth/grants", (admin(HOME),), granting(namespace=["home"])),
    Row("POST /api/v1/auth/grants", (admin(HOME),), granting_on_table, "table"),
    Row("POST /api/v1/auth/grants", (admin(HOME),), granting(function=["home", "f"]), "function"),
    Row("POST /api/v1/auth/grants/revoke", (admin(HOME),), granting(namespace=["home"])),
)
