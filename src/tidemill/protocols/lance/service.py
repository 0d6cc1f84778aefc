"""The Lance protocol as a service of the server: all routes of the specification, served or not."""

from __future__ import annotations

from typing import Final

from tidemill.catalog.model.audit import AuditProtocol
from tidemill.protocols.http.app import Service
from tidemill.protocols.http.routing import with_name_hints
from tidemill.protocols.lance.errors import render_error
from tidemill.protocols.lance.requests import with_capability_header
from tidemill.protocols.lance.routes import (
    columns,
    data,
    functions,
    indexes,
    jobs,
    namespaces,
    refs,
    secrets,
    tables,
    transactions,
    versions,
    views,
)

ROUTES: Final = (
    *namespaces.ROUTES,
    *tables.ROUTES,
    *data.ROUTES,
    *versions.ROUTES,
    *refs.ROUTES,
    *columns.ROUTES,
    *indexes.ROUTES,
    *transactions.ROUTES,
    *views.ROUTES,
    *jobs.ROUTES,
    *functions.ROUTES,
    *secrets.ROUTES,
)

LANCE_SERVICE: Final = Service(
    protocol=AuditProtocol.LANCE,
    prefix=(),
    routes=tuple(with_capability_header(with_name_hints(route)) for route in ROUTES),
    render_error=render_error,
)
