"""The two dialects spoken on the Lance routes: the specification's and that of lancedb's remote client."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route

LANCEDB_HEADER: Final = "x-lancedb-database"
TABLE_VERSION_HEADER: Final = "x-lancedb-version"
# lancedb reads from it what a server can do: from 0.2 on many vectors in one query, from 0.3 on structured
# full-text queries, from 0.4 on writes in several parts, which are not served.
CAPABILITY_HEADER: Final = "phalanx-version"
CAPABILITY: Final = "0.3.0"


def is_lancedb(headers: Headers) -> bool:
    return LANCEDB_HEADER in headers


def with_capability_header(route: Route) -> Route:
    """The route, telling lancedb's client what it may ask for."""

    def handler(call: Call) -> Response:
        response = route.handler(call)
        if is_lancedb(call.headers):
            response.headers[CAPABILITY_HEADER] = CAPABILITY
        return response

    return replace(route, handler=handler)


def with_version_header(call: Call, response: Response, version: int) -> Response:
    """lancedb's client takes the version of a read for one that later reads must not fall behind."""
    if is_lancedb(call.headers):
        response.headers[TABLE_VERSION_HEADER] = str(version)
    return response
