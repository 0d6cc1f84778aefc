"""Which places in a warehouse are tables' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemill.errors import InvalidInput

TABLE_SUFFIX: Final = ".lance"
JOBS_DIRECTORY: Final = "_jobs"
"""Files of running jobs, kept beside the tables in object stores; no table may lie there."""


def check_removable(location: str, parts: Sequence[str]) -> None:
    """Refuses the warehouse itself and what lies inside a table; `parts` are the names below the former."""
    if not parts or any(part.endswith(TABLE_SUFFIX) for part in parts[:-1]):
        raise InvalidInput("location", f"{location} is not a table of this warehouse")
