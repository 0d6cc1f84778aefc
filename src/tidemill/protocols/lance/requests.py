"""Reads what Lance requests have in common: the id in path and body, flags, pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, query_flag, query_integer, read_object
from tidemill.protocols.http.identifiers import levels_of, namespace_of, table_of


def namespace_request(call: Call) -> tuple[NamespacePath, Fields]:
    return namespace_of(call), _body(call)


def table_request(call: Call) -> tuple[TableIdent, Fields]:
    return table_of(call), _body(call)


def flag_of(call: Call, fields: Fields, key: str) -> bool:
    """Some clients send flags in the query, others in the body."""
    in_query = query_flag(call.query, key)
    return (fields.flag(key) if in_query is None else in_query) or False


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
    body_id = fields.texts("id")
    if body_id is not None and body_id != levels_of(call):
        raise InvalidInput(
            "id", f"{list(body_id)} in the body differs from {list(levels_of(call))} in the path"
        )
    return fields
