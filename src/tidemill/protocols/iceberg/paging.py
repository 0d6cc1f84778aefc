"""Pages of listings: tokens that mean nothing to clients, and all at once for those that do not page."""

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
    """Where the page begins and how long it is; a client that gives neither token nor size gets all."""
    size, token = query_integer(call.query, "pageSize"), call.query.get("pageToken")
    if size is not None and size < 1:
        raise InvalidInput("pageSize", f"has to be at least 1, not {size}")
    if size is None and token is None:
        return Page()
    return Page(_position(token) if token else None, min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE))


def page_body(
    page: Page, key: str, fetch: Callable[[Page], Sequence[str]], entry: Callable[[str], Any]
) -> dict[str, Any]:
    """One page under its key; the token is null on the last one, because an empty one would begin anew."""
    if page.limit is None:
        return {"next-page-token": None, key: [entry(name) for name in fetch(page)]}
    names = fetch(Page(page.after, page.limit + 1))
    shown = names[: page.limit]
    token = token_after(shown[-1]) if len(names) > page.limit else None
    return {"next-page-token": token, key: [entry(name) for name in shown]}


def token_after(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _position(token: str) -> str:
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
