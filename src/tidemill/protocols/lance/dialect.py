"""The two dialects of the Lance routes: the specification's and that of lancedb's remote client."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route

LANCEDB_HEADER: Final = "x-lancedb-database"
TABLE_VERSION_HEADER: Final = "x-lancedb-version"
# lancedb reads the capabilities of the server from this version. 0.2: several vectors in one query; 0.3:
# structured full-text queries; 0.4: writes in several parts, which we do not support.
CAPABILITY_HEADER: Final = "phalanx-version"
CAPABILITY: Final = "0.3.0"


def is_lancedb(headers: Headers) -> bool:
    return LANCEDB_HEADER in headers


def with_capability_header(route: Route) -> Route:
    """The route with a response header that tells lancedb's client the capabilities of the server."""

    def handler(call: Call) -> Response:
        response = route.handler(call)
        if is_lancedb(call.headers):
            response.headers[CAPABILITY_HEADER] = CAPABILITY
        return response

    return replace(route, handler=handler)


def with_version_header(call: Call, response: Response, version: int) -> Response:
    """Adds the version that was read. lancedb's client expects later reads not to go back behind it."""
    if is_lancedb(call.headers):
        response.headers[TABLE_VERSION_HEADER] = str(version)
    return response
