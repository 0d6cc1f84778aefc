"""The Iceberg REST catalog as an HTTP service, with every operation of the specification."""

from __future__ import annotations

from typing import Final

from tidemill.protocols.http.app import Service
from tidemill.protocols.iceberg.errors import render_error
from tidemill.protocols.iceberg.idempotency import with_checked_key
from tidemill.protocols.iceberg.referrers import with_checked_referrers
from tidemill.protocols.iceberg.routes import (
    credentials,
    functions,
    metrics,
    namespaces,
    oauth,
    scans,
    tables,
    views,
)
from tidemill.protocols.iceberg.routes.config import config_routes

CATALOG_ROUTES: Final = (
    *namespaces.ROUTES,
    *map(with_checked_referrers, tables.ROUTES),
    *map(with_checked_referrers, views.ROUTES),
    *functions.ROUTES,
    *map(with_checked_key, scans.ROUTES),
    *map(with_checked_referrers, credentials.ROUTES),
    *metrics.ROUTES,
)

ROUTES: Final = (*config_routes(CATALOG_ROUTES), *oauth.ROUTES, *CATALOG_ROUTES)

ICEBERG_SERVICE: Final = Service(prefix=("iceberg",), routes=ROUTES, render_error=render_error)
