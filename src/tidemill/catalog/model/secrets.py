"""Secrets: named values that are kept for functions and shown to nobody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput

MAX_SECRET_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """What is told about a secret; its value is not part of it."""

    ident: TableIdent
    created_at: datetime
    updated_at: datetime


def checked_value(value: str) -> bytes:
    """What is wrong with a value is said without showing it."""
    raw = value.encode(errors="replace")
    if not raw:
        raise InvalidInput("value", "is empty; a secret needs a value")
    if len(raw) > MAX_SECRET_BYTES:
        raise InvalidInput("value", f"is longer than {MAX_SECRET_BYTES:,} bytes")
    return raw
