"""The Iceberg REST catalog as an HTTP service: every operation of the specification, and what it supports."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.audit import AuditProtocol
from tidemill.catalog.model.identifiers import LEVEL_SEPARATOR
from tidemill.protocols.http.app import Service
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.errors import render_error, with_near_names
from tidemill.protocols.iceberg.idempotency import with_checked_key
from tidemill.protocols.iceberg.parameters import (
    BASE,
    PREFIX,
    check_warehouse,
    template_of,
    with_checked_referrers,
)
from tidemill.protocols.iceberg.routes import functions, namespaces, oauth, scans, tables, views


def config_routes(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Clients use only the endpoints listed here, so the list is derived from the routes."""
    endpoints = sorted({template_of(route) for route in routes if PREFIX in route.pattern})

    def get_config(call: Call) -> Response:
        requested = call.query.get("warehouse")
        # Many clients identify a warehouse by its location.
        if requested and requested.rstrip("/") != call.operations.iceberg_access.warehouse:
            check_warehouse(call, requested)
        lifetime = iso_duration(call.operations.receipts.lifetime)
        return json_response(
            {
                "defaults": {},
                "overrides": _separator(call.operations.namespace_separator),
                "endpoints": endpoints,
                "idempotency-key-lifetime": lifetime,
            }
        )

    return (Route("GET", f"{BASE}/v1/config", get_config, is_quick=True),)


def _separator(separator: str) -> dict[str, str]:
    """Percent-encoded, as the specification asks for; nothing if it is the one that clients assume."""
    return {} if separator == LEVEL_SEPARATOR else {"namespace-separator": f"%{ord(separator):02X}"}


def iso_duration(duration: timedelta) -> str:
    """Uses only hours, minutes and seconds: Java cannot parse weeks and months."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if count]
    return "PT" + ("".join(parts) or "0S")


CATALOG_ROUTES: Final = (
    *namespaces.ROUTES,
    *(with_near_names(with_checked_referrers(route)) for route in (*tables.ROUTES, *views.ROUTES)),
    *functions.ROUTES,
    *(with_near_names(with_checked_key(route)) for route in scans.ROUTES),
)

ROUTES: Final = (*config_routes(CATALOG_ROUTES), *oauth.ROUTES, *CATALOG_ROUTES)

ICEBERG_SERVICE: Final = Service(
    protocol=AuditProtocol.ICEBERG, prefix=("iceberg",), routes=ROUTES, render_error=render_error
)
