"""The configuration route, which clients call first to learn what the catalog supports."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.routing import BASE, PREFIX, check_warehouse, template_of


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
                "overrides": {},
                "endpoints": endpoints,
                "idempotency-key-lifetime": lifetime,
            }
        )

    return (Route("GET", f"{BASE}/v1/config", get_config, is_quick=True),)


def iso_duration(duration: timedelta) -> str:
    """Uses only hours, minutes and seconds: Java cannot parse weeks and months."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if count]
    return "PT" + ("".join(parts) or "0S")
