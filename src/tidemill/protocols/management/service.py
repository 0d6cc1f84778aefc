"""The management API: all its routes as one service."""

from __future__ import annotations

from typing import Final

from tidemill.protocols.http.app import Service
from tidemill.protocols.management.errors import render_error
from tidemill.protocols.management.routes import (
    columns,
    functions,
    health,
    jobs,
    views,
)

ROUTES: Final = (
    *health.ROUTES,
    *functions.ROUTES,
    *columns.ROUTES,
    *views.ROUTES,
    *jobs.ROUTES,
)

MANAGEMENT_SERVICE: Final = Service(prefix=("api",), routes=ROUTES, render_error=render_error)
