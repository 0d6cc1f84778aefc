"""Secrets: named values, stored for functions and never shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput

MAX_SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """The visible part of a secret: everything but its value."""

    ident: TableIdent
    created_at: datetime
    updated_at: datetime


def checked_value(value: str) -> bytes:
    """Checks a value. Error messages do not show it."""
    raw = value.encode(errors="replace")
    if not raw:
        raise InvalidInput("value", "is empty; a secret needs a value")
    if len(raw) > MAX_SECRET_BYTES:
        raise InvalidInput("value", f"is longer than {MAX_SECRET_BYTES:,} bytes")
    return raw
