"""The route that clients ask first: what this catalog can do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.routing import BASE, PREFIX, check_warehouse, template_of


def config_routes(served: Iterable[Route]) -> tuple[Route, ...]:
    """Clients use nothing that is not listed here, so the list is made from the routes there are."""
    endpoints = sorted({template_of(route) for route in served if PREFIX in route.pattern})

    def get_config(call: Call) -> Response:
        wanted = call.query.get("warehouse")
        # Many clients know a warehouse by where it lies.
        if wanted and wanted.rstrip("/") != call.operations.iceberg_access.warehouse:
            check_warehouse(call, wanted)
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
    """In hours, minutes and seconds alone: Java stops at weeks and months."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if count]
    return "PT" + ("".join(parts) or "0S")
