"""The Lance protocol as a service of the server: all routes of the specification, served or not."""

from __future__ import annotations

from typing import Final

from tidemill.protocols.http.app import Service
from tidemill.protocols.lance.errors import render_error
from tidemill.protocols.lance.routes import columns, data, jobs, namespaces, tables, unserved, versions, views

ROUTES: Final = (
    *namespaces.ROUTES,
    *tables.ROUTES,
    *data.ROUTES,
    *versions.ROUTES,
    *columns.ROUTES,
    *views.ROUTES,
    *jobs.ROUTES,
    *unserved.ROUTES,
)

LANCE_SERVICE: Final = Service(prefix=(), routes=ROUTES, render_error=render_error)
