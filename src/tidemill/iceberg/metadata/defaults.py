"""Checks default values of columns: readers reject a whole schema for one default of the wrong type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import abbreviated

DEFAULTS: Final = ("initial-default", "write-default")

_INT_LIMIT: Final = 2**31
_LONG_LIMIT: Final = 2**63
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"(\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?", re.ASCII)
_UTC: Final = re.compile(r"(?:Z|[+-]00:00)")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX: Final = re.compile(r"([0-9a-fA-F]{2})*")


def check_default(kind: Any, family: str | None, value: Any, where: str) -> None:
    """`kind` is the type as in JSON, `family` its name without parameters, or None for nested types."""
    if value is None:
        return
    if family not in _CHECKS:
        raise InvalidMetadata(
            f"Invalid default value for {family or 'nested type'}: {where}: "
            f"{abbreviated(value)} (must be null)"
        )
    if not _CHECKS[family](value, kind):
        raise InvalidMetadata(f"Cannot parse default as a {kind} value: {where}: {abbreviated(value)}")


def _is_boolean(value: Any, _: str) -> bool:
    return isinstance(value, bool)


def _is_integer(limit: int) -> Callable[[Any, str], bool]:
    # In Python, True is an integer.
    return lambda value, _: type(value) is int and -limit <= value < limit


def _is_float(value: Any, _: str) -> bool:
    """5 is not a float: Iceberg's library accepts only 5.0."""
    return isinstance(value, float)


def _is_string(value: Any, _: str) -> bool:
    return isinstance(value, str)


def _is_decimal(value: Any, kind: str) -> bool:
    """The number of digits after the point must equal the scale of the type."""
    # Python's own parser would accept 1_000 and spaces.
    if not isinstance(value, str) or _NUMBER.fullmatch(value) is None:
        return False
    scale = int(kind.rpartition(",")[2].strip(" )"))
    return Decimal(value).as_tuple().exponent == -scale


def _is_uuid(value: Any, _: str) -> bool:
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def _is_binary(value: Any, _: str) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _is_fixed(value: Any, kind: str) -> bool:
    length = int(kind.partition("[")[2].strip(" ]"))
    return _is_binary(value, kind) and len(value) == 2 * length


def _is_date(value: Any, _: str) -> bool:
    return (
        isinstance(value, str) and _DATE.fullmatch(value) is not None and _is_valid_moment(f"{value}T00:00")
    )


def _is_time(value: Any, _: str) -> bool:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    return match is not None and _is_valid_moment(f"2000-01-01T{match[1]}")


def _is_timestamp(value: Any, _: str) -> bool:
    day, separator, clock = value.partition("T") if isinstance(value, str) else ("", "", "")
    return bool(separator) and _is_date(day, "") and _is_time(clock, "")


def _is_timestamptz(value: Any, kind: str) -> bool:
    """Accepts only UTC, in which values are stored."""
    offset = _UTC.search(value) if isinstance(value, str) else None
    return offset is not None and offset.end() == len(value) and _is_timestamp(value[: offset.start()], kind)


def _is_valid_moment(moment: str) -> bool:
    try:
        datetime.fromisoformat(moment)
    except ValueError:
        return False
    return True


_CHECKS: Final[Mapping[str | None, Callable[[Any, str], bool]]] = {
    "binary": _is_binary,
    "boolean": _is_boolean,
    "date": _is_date,
    "decimal": _is_decimal,
    "double": _is_float,
    "fixed": _is_fixed,
    "float": _is_float,
    "int": _is_integer(_INT_LIMIT),
    "long": _is_integer(_LONG_LIMIT),
    "string": _is_string,
    "time": _is_time,
    "timestamp": _is_timestamp,
    "timestamp_ns": _is_timestamp,
    "timestamptz": _is_timestamptz,
    "timestamptz_ns": _is_timestamptz,
    "uuid": _is_uuid,
}
