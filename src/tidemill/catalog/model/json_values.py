"""Checks single JSON values; each raises InvalidInput with the name of the field."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any, Final, TypeVar

from tidemill.errors import InvalidInput

MAX_INTEGER: Final = 2**63 - 1
MAX_EXPRESSION_BYTES: Final = 8 * 1024

Choice = TypeVar("Choice", bound=Enum)


def checked_text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be a string, not {value!r:.60}")
    if "\x00" in value:
        raise InvalidInput(field, "contains a NUL character")
    if not is_storable(value):
        raise InvalidInput(field, "contains a lone surrogate, which is not valid Unicode")
    return value


def checked_expression(value: str, field: str) -> str:
    """Text in the query language, short enough to be parsed safely."""
    if not value.strip():
        raise InvalidInput(field, "is empty; leave it out or give an expression")
    if len(value.encode(errors="replace")) > MAX_EXPRESSION_BYTES:
        raise InvalidInput(field, f"is longer than {MAX_EXPRESSION_BYTES:,} bytes")
    return value


def checked_integer(value: Any, field: str, minimum: int, maximum: int = MAX_INTEGER) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        bounds = _bounds(minimum, None if maximum == MAX_INTEGER else maximum)
        raise InvalidInput(field, f"must be an integer {bounds}, not {value!r:.60}")
    return value


def checked_number(value: Any, field: str, minimum: float, maximum: float | None = None) -> float:
    is_finite = isinstance(value, int | float) and abs(value) <= sys.float_info.max
    is_above = maximum is not None and is_finite and value > maximum
    if not is_finite or isinstance(value, bool) or value < minimum or is_above:
        raise InvalidInput(field, f"must be a number {_bounds(minimum, maximum)}, not {value!r:.60}")
    return float(value)


def checked_flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be true or false, not {value!r:.60}")
    return value


def checked_texts(value: Any, field: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InvalidInput(field, "must be a list of strings")
    return tuple(checked_text(entry, field) for entry in value)


def read_choice(choices: type[Choice], raw: str, field: str) -> Choice:
    """Reads the value of an enum in any case, in PascalCase or snake_case.

    Quotes around it are ignored: lancedb's remote client, 0.39 for example, sends modes in quotes.
    """
    wanted = _folded(raw.strip('"'))
    for choice in choices:
        if _folded(str(choice.value)) == wanted:
            return choice
    names = ", ".join(str(choice.value) for choice in choices)
    raise InvalidInput(field, f"must be one of {names}, not {raw!r:.60}")


def is_storable(text: str) -> bool:
    """Whether the text has no lone surrogates, which JSON and URLs can contain but UTF-8 cannot encode."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _bounds(minimum: float, maximum: float | None) -> str:
    return f"of at least {minimum}" if maximum is None else f"between {minimum} and {maximum}"


def _folded(text: str) -> str:
    return text.replace("_", "").lower()
