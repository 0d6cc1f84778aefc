"""Paginates listings with opaque tokens; clients that do not page get everything at once."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import query_integer

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
