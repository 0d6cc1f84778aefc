"""Validates `referenced-by`, the views through which something is loaded; permissions ignore them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, namespace_path
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.identifiers import LEVEL_SEPARATOR, ident_in, split_levels

PARAMETER: Final = "referenced-by"
MAX_REFERRERS: Final = 10
LOADS: Final = ("/tables/{table}", "/views/{view}", "/tables/{table}/credentials")


def with_checked_referrers(route: Route) -> Route:
    """For routes that load something: the parameter is optional, but must be valid if given."""
    if route.method != "GET" or not route.pattern.endswith(LOADS):
        return route

    def checked(call: Call) -> Response:
        referrers_of(call.query.get(PARAMETER) or "")
        return route.handler(call)

    return replace(route, handler=checked)


def referrers_of(value: str) -> tuple[TableIdent, ...]:
    """The views, outermost first. The value is already decoded once; Java encodes the names in it again."""
    names: list[str] = []
    for part in map(unquote, value.split(",") if value else ()):
        if names and LEVEL_SEPARATOR not in part:
            # The comma belongs to a name.
            names[-1] = f"{names[-1]},{part}"
        else:
            names.append(part)
    if len(names) > MAX_REFERRERS:
        raise InvalidInput(PARAMETER, f"has {len(names)} views; at most {MAX_REFERRERS} are allowed")
    return tuple(_view(text) for text in names)


def _view(text: str) -> TableIdent:
    levels = split_levels(text)
    if len(levels) < 2:
        raise InvalidInput(PARAMETER, f"{text!r:.60} is not a view: it must be a namespace, %1F and a name")
    return ident_in(namespace_path(levels[:-1], PARAMETER), levels[-1], PARAMETER)
