"""The views through which something is loaded; who may load it does not depend on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, namespace_path
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.identifiers import LEVEL_SEPARATOR, named_in, split_levels

PARAMETER: Final = "referenced-by"
MAX_REFERRERS: Final = 10
LOADS: Final = ("/tables/{table}", "/views/{view}", "/tables/{table}/credentials")


def with_checked_referrers(route: Route) -> Route:
    """For routes that load something: the parameter is optional, and has to be right where it is."""
    if route.method != "GET" or not route.pattern.endswith(LOADS):
        return route

    def checked(call: Call) -> Response:
        referrers_of(call.query.get(PARAMETER) or "")
        return route.handler(call)

    return replace(route, handler=checked)


def referrers_of(given: str) -> tuple[TableIdent, ...]:
    """The outermost first; `given` was decoded once, and Java has encoded the names in it once more."""
    named: list[str] = []
    for part in map(unquote, given.split(",") if given else ()):
        if named and LEVEL_SEPARATOR not in part:
            # The comma before it belongs to a name.
            named[-1] = f"{named[-1]},{part}"
        else:
            named.append(part)
    if len(named) > MAX_REFERRERS:
        raise InvalidInput(PARAMETER, f"has {len(named)} views; at most {MAX_REFERRERS} are looked at")
    return tuple(_view(each) for each in named)


def _view(text: str) -> TableIdent:
    levels = split_levels(text)
    if len(levels) < 2:
        raise InvalidInput(PARAMETER, f"{text!r:.60} is no view: it has to be a namespace, %1F and a name")
    return named_in(namespace_path(levels[:-1], PARAMETER), levels[-1], PARAMETER)
