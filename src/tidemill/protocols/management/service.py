"""The management API: the health check, and all its routes as one service."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.audit import AuditProtocol
from tidemill.protocols.http.app import Service
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.routing import Route, with_name_hints
from tidemill.protocols.management.errors import render_error
from tidemill.protocols.management.routes import access, audit, columns, functions, jobs, views


def health(call: Call) -> Response:
    report = call.operations.health.health()
    return json_response(asdict(report), 200 if report.is_serving else 503)


ROUTES: Final = (
    Route("GET", "/api/v1/health", health, is_public=True),
    *functions.ROUTES,
    *columns.ROUTES,
    *views.ROUTES,
    *jobs.ROUTES,
    *audit.ROUTES,
    *access.ROUTES,
)

MANAGEMENT_SERVICE: Final = Service(
    protocol=AuditProtocol.MANAGEMENT,
    prefix=("api",),
    routes=tuple(map(with_name_hints, ROUTES)),
    render_error=render_error,
)
