"""Names of primitive types, and the format version that introduced each."""

from __future__ import annotations

import re
from typing import Final

from tidemill.iceberg.errors import InvalidMetadata

_PLAIN: Final = frozenset(
    {
        "binary",
        "boolean",
        "date",
        "double",
        "float",
        "geography",
        "geometry",
        "int",
        "long",
        "string",
        "time",
        "timestamp",
        "timestamp_ns",
        "timestamptz",
        "timestamptz_ns",
        "unknown",
        "uuid",
        "variant",
    }
)
_MAX_PRECISION: Final = 38
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)", re.ASCII)
_FIXED: Final = re.compile(r"fixed\[\s*(\d{1,9})\s*\]", re.ASCII)
_GEOMETRY: Final = re.compile(r"geometry\s*\([^)]*\)")
_GEOGRAPHY: Final = re.compile(r"geography\s*\([^,)]*(,\s*(spherical|vincenty|thomas|andoyer|karney)?\s*)?\)")
_SINCE_V3: Final = frozenset(
    {"geography", "geometry", "timestamp_ns", "timestamptz_ns", "unknown", "variant"}
)


def get_family(name: str, where: str) -> str:
    """The type without its parameters; raises InvalidMetadata if there is no such type."""
    lower = name.lower()
    if lower in _PLAIN:
        return lower
    if match := _DECIMAL.fullmatch(lower):
        _check_precision(int(match[1]), where)
        return "decimal"
    for family, pattern in (("fixed", _FIXED), ("geometry", _GEOMETRY), ("geography", _GEOGRAPHY)):
        if pattern.fullmatch(lower):
            return family
    raise InvalidMetadata(f"Cannot parse type string to primitive: {where}: {name:.100}")


def first_version(family: str) -> int:
    """The format version that introduced the type."""
    return 3 if family in _SINCE_V3 else 1


def _check_precision(precision: int, where: str) -> None:
    if precision > _MAX_PRECISION:
        raise InvalidMetadata(
            f"Decimals with precision larger than {_MAX_PRECISION} are not supported: {where}: {precision}"
        )
