"""Reads what Lance requests have in common: the client's dialect, the id in path and body, flags, pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from tidemill.catalog.model.identifiers import DependantPolicy, NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import (
    Fields,
    levels_of,
    namespace_of,
    query_flag,
    query_integer,
    read_object,
    table_of,
)
from tidemill.protocols.http.routing import Route


def namespace_request(call: Call) -> tuple[NamespacePath, Fields]:
    return namespace_of(call), _body(call)


def table_request(call: Call) -> tuple[TableIdent, Fields]:
    return table_of(call), _body(call)


def flag_of(call: Call, fields: Fields, key: str) -> bool:
    """Some clients send flags in the query, others in the body."""
    in_query = query_flag(call.query, key)
    return (fields.flag(key) if in_query is None else in_query) or False


def dependant_policy(call: Call, fields: Fields) -> DependantPolicy:
    """What becomes of views made from what is dropped; an extension that other clients do not send."""
    is_cascade, is_forced = flag_of(call, fields, "cascade"), flag_of(call, fields, "force")
    if is_cascade and is_forced:
        raise InvalidInput("force", "cannot be combined with cascade; choose one of them")
    if is_cascade:
        return DependantPolicy.CASCADE
    return DependantPolicy.FORCE if is_forced else DependantPolicy.RESTRICT


def read_page(call: Call, fetch: Callable[[Page], Sequence[str]]) -> tuple[list[str], str | None]:
    """One page of names and the token of the next. The token is the last name, as clients make up tokens."""
    limit, after = query_integer(call.query, "limit"), call.query.get("page_token") or None
    if limit == 0:
        return [], None
    if limit is None or limit < 0:
        return list(fetch(Page(after))), None
    names = list(fetch(Page(after, limit + 1)))
    return names[:limit], names[limit - 1] if len(names) > limit else None


def page_of(names: Iterable[str], page: Page) -> list[str]:
    """The names of a listing that are on this page."""
    following = sorted(name for name in names if page.after is None or name > page.after)
    return following[: page.limit]


def _body(call: Call) -> Fields:
    fields = read_object(call.body)
    # Callers are known by their headers; no operation of ours needs a context.
    fields.nested("identity")
    fields.nested("context")
    check_id(call, fields)
    return fields


def check_id(call: Call, fields: Fields) -> None:
    """An id in a body has to be that of the path.

    The Java client sends an empty list for no id, DuckDB the text in the path as a single level.
    """
    body_id = fields.texts("id")
    if body_id and body_id not in (levels_of(call), (call.parameters.get("id"),)):
        raise InvalidInput(
            fields.name_of("id"),
            f"{list(body_id)} in the body differs from {list(levels_of(call))} in the path",
        )


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
