"""Paths and query parameters of the Iceberg operations.

Each operation exists at two paths, with and without the prefix of the warehouse. Query parameters are pages
of listings, the snapshots to return, and the views that something is loaded by.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final
from urllib.parse import unquote, unquote_plus

import structlog
from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, namespace_path
from tidemill.catalog.model.json_values import read_choice
from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput, WarehouseNotFound
from tidemill.protocols.http.call import Call, Handler
from tidemill.protocols.http.fields import query_integer
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.mapping import ident_in, split_levels

BASE: Final = "/iceberg"
PREFIX: Final = "/{prefix}"


def route_pair(method: str, path: str, handler: Handler, **options: Any) -> tuple[Route, Route]:
    """Two routes, without and with the prefix; `path` is what follows `/v1/{prefix}` in the specification."""
    return (
        Route(method, f"{BASE}/v1{path}", handler, **options),
        Route(method, f"{BASE}/v1{PREFIX}{path}", _in_warehouse(handler), **options),
    )


def template_of(route: Route) -> str:
    """The operation as the `endpoints` of the configuration list it."""
    return f"{route.method} {route.pattern.removeprefix(BASE)}"


def check_warehouse(call: Call, name: str) -> None:
    known = call.operations.warehouse_name
    if name != known:
        raise WarehouseNotFound(name, known)


def _in_warehouse(handler: Handler) -> Handler:
    def checked(call: Call) -> Response:
        check_warehouse(call, call.parameters["prefix"])
        return handler(call)

    return checked


log = structlog.get_logger("tidemill.iceberg")

MAX_TOKEN_LENGTH: Final = 1024
DEFAULT_PAGE_SIZE: Final = 1000
MAX_PAGE_SIZE: Final = 10_000


def page_of(call: Call) -> Page:
    """The requested page; a client that sends neither token nor size gets everything."""
    size, token = query_integer(call.query, "pageSize"), call.query.get("pageToken")
    if size is not None and size < 1:
        raise InvalidInput("pageSize", f"must be at least 1, not {size}")
    if size is None and token is None:
        return Page()
    return Page(_decoded(token) if token else None, min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE))


def page_body(
    page: Page, key: str, fetch: Callable[[Page], Sequence[str]], entry: Callable[[str], Any]
) -> dict[str, Any]:
    """One page; the token of the last page is null, because an empty one would start over."""
    if page.limit is None:
        return {"next-page-token": None, key: [entry(name) for name in fetch(page)]}
    names = fetch(Page(page.after, page.limit + 1))
    listed = names[: page.limit]
    token = token_after(listed[-1]) if len(names) > page.limit else None
    return {"next-page-token": token, key: [entry(name) for name in listed]}


def token_after(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _decoded(token: str) -> str:
    try:
        if len(token) > MAX_TOKEN_LENGTH:
            raise ValueError
        padded = token + "=" * (-len(token) % 4)
        name = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("pageToken", f"{token!r:.60} is not a token of this listing") from error
    if "\x00" in name:
        raise InvalidInput("pageToken", f"{token!r:.60} is not a token of this listing")
    return name


class Snapshots(Enum):
    """Which snapshots a client wants: all, or only those that branches and tags point to."""

    ALL = "all"
    REFS = "refs"


def requested_snapshots(call: Call) -> Snapshots:
    raw = call.query.get("snapshots")
    return read_choice(Snapshots, raw, "snapshots") if raw else Snapshots.ALL


PARAMETER: Final = "referenced-by"
MAX_REFERRERS: Final = 10
LOADS: Final = ("/tables/{table}", "/views/{view}", "/tables/{table}/credentials")


def with_checked_referrers(route: Route) -> Route:
    """For routes that load something: the parameter is optional, but must be valid if given."""
    if route.method != "GET" or not route.pattern.endswith(LOADS):
        return route

    def checked(call: Call) -> Response:
        referrers = referrers_of(call) if call.raw_query else ()
        response = route.handler(call)
        if referrers:
            loaded = ".".join(call.parameters.values())
            views = [str(view) for view in referrers]
            log.info("loaded through views", loaded=loaded, views=views, caller=call.caller.principal)
        return response

    return replace(route, handler=checked)


def referrers_of(call: Call) -> tuple[TableIdent, ...]:
    """The views through which something is loaded, outermost first.

    Java sends `a%1Fv,a%1Fw`, with a comma in a name as %2C. Other clients encode the commas between views
    too, so a comma without a separator on both sides belongs to a name.
    """
    pairs = [pair.partition("=") for pair in call.raw_query.decode("latin-1").split("&")]
    raw = next((value for key, _, value in pairs if unquote_plus(key) == PARAMETER), "")
    parts = [unquote_plus(part) for part in raw.split(",")]
    if len(parts) == 1:
        parts = parts[0].split(",")
    names = _joined(call, [part if _is_view(call, part) else unquote(part) for part in parts])
    if len(names) > MAX_REFERRERS:
        raise InvalidInput(PARAMETER, f"has {len(names)} views; at most {MAX_REFERRERS} are allowed")
    return tuple(_view(call, text) for text in names)


def _joined(call: Call, parts: Sequence[str]) -> list[str]:
    names: list[str] = []
    for part in parts:
        if names and not (_is_view(call, part) and _is_view(call, names[-1])):
            names[-1] = f"{names[-1]},{part}"
        else:
            names.append(part)
    return [] if names == [""] else names


def _is_view(call: Call, text: str) -> bool:
    return len(split_levels(call, text)) > 1


def _view(call: Call, text: str) -> TableIdent:
    levels = split_levels(call, text)
    if len(levels) < 2:
        raise InvalidInput(
            PARAMETER, f"{text!r:.60} is not a view: it must be a namespace, the separator (%1F) and a name"
        )
    return ident_in(namespace_path(levels[:-1], PARAMETER), levels[-1], PARAMETER)
