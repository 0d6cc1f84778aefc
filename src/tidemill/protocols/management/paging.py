"""Page size and page token of listings."""

from __future__ import annotations

from typing import Final

from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import query_integer

DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1000


def page_limit(call: Call, default: int = DEFAULT_PAGE, maximum: int = MAX_PAGE) -> int:
    limit = query_integer(call.query, "limit")
    if limit is None:
        return default
    if not 1 <= limit <= maximum:
        raise InvalidInput("limit", f"must be between 1 and {maximum}")
    return limit


def row_token(call: Call) -> int | None:
    """The last row id of the previous page."""
    row_id = query_integer(call.query, "page_token")
    if row_id is not None and row_id < 0:
        raise InvalidInput("page_token", f"must be the page_token of a previous page, not {row_id}")
    return row_id
