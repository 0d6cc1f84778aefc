"""Which locations in a warehouse may belong to a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemill.errors import InvalidInput

TABLE_SUFFIX: Final = ".lance"
JOBS_DIRECTORY: Final = "_jobs"
"""Directory for files of running jobs in object stores; no table may be located there."""


def check_removable(location: str, parts: Sequence[str]) -> None:
    """Raises InvalidInput for the warehouse itself and for paths inside a table.

    `parts` are the path segments below the warehouse.
    """
    if not parts or any(part.endswith(TABLE_SUFFIX) for part in parts[:-1]):
        raise InvalidInput("location", f"{location} is not a table of this warehouse")
