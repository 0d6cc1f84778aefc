"""Paths of the Iceberg operations: each exists with and without the warehouse prefix."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tidemill.errors import WarehouseNotFound
from tidemill.protocols.http.call import Call, Handler
from tidemill.protocols.http.routing import Route

BASE: Final = "/iceberg"
PREFIX: Final = "/{prefix}"


def route_pair(method: str, path: str, handler: Handler, **options: Any) -> tuple[Route, Route]:
    """Two routes, without and with the prefix; `path` is what follows `/v1/{prefix}` in the specification."""
    return (
        Route(method, f"{BASE}/v1{path}", handler, **options),
        Route(method, f"{BASE}/v1{PREFIX}{path}", _in_warehouse(handler), **options),
    )


def template_of(route: Route) -> str:
    """The operation as the `endpoints` of the configuration list it."""
    return f"{route.method} {route.pattern.removeprefix(BASE)}"


def check_warehouse(call: Call, name: str) -> None:
    known = call.operations.warehouse_name
    if name != known:
        raise WarehouseNotFound(name, known)


def _in_warehouse(handler: Handler) -> Handler:
    def checked(call: Call) -> Response:
        check_warehouse(call, call.parameters["prefix"])
        return handler(call)

    return checked
