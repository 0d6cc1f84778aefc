"""The two dialects spoken on the Lance routes: the specification's and that of lancedb's remote client."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers

LANCEDB_HEADER: Final = "x-lancedb-database"


def is_lancedb(headers: Headers) -> bool:
    return LANCEDB_HEADER in headers
