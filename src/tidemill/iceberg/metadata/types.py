"""Types of columns: their names, default values, and the transforms that accept them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import abbreviated, get_int, get_ints, get_string
from tidemill.iceberg.model.entries import Document


@dataclass(frozen=True, slots=True)
class Column:
    """A field at any depth; `name` is its full path, `type` a type name or a JSON object."""

    field_id: int
    name: str
    type: Any
    is_required: bool
    parent: int | None
    has_default: bool = False

    @property
    def is_primitive(self) -> bool:
        return isinstance(self.type, str) and self.type.lower() != "variant"

    @property
    def kind(self) -> str:
        """The name of the type, for error messages."""
        return self.type if isinstance(self.type, str) else str(self.type["type"])


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


VOID: Final = "void"
_SYNTAX: Final = re.compile(r"\w[\w-]*(\[[^\[\]]*\])?")
_WIDTH: Final = re.compile(r"(bucket|truncate)\[(\d+)\]", re.ASCII)
_NAMED: Final = frozenset({"identity", "year", "month", "day", "hour", VOID})

_TIMESTAMPS: Final = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_DATES: Final = _TIMESTAMPS | {"date"}
_TRUNCATABLE: Final = frozenset({"int", "long", "string", "binary", "decimal"})
_SOURCES: Final[Mapping[str, frozenset[str]]] = {
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
    "truncate": _TRUNCATABLE,
    "bucket": _TRUNCATABLE | _DATES | {"time", "fixed", "uuid"},
}
_NOT_IDENTITY: Final = frozenset({"geography", "geometry", "variant"})


def check_transform(field: Document, where: str) -> None:
    """Checks the syntax, and for transforms of the specification also the parameters."""
    name = get_string(field, "transform", where)
    if not _SYNTAX.fullmatch(name):
        raise InvalidMetadata(f"Cannot parse transform: {where}.transform: {abbreviated(name)}")
    if match := _WIDTH.fullmatch(name.lower()):
        label = "number of buckets" if match[1] == "bucket" else "truncate width"
        # Python refuses to parse extremely long numbers.
        width = int(match[2][:20])
        if not 0 < width < _INT_LIMIT:
            raise InvalidMetadata(f"Invalid {label}: {match[2]:.20} (must be > 0)")


def canonical_transform(name: str) -> str:
    """Transforms of the specification are case-insensitive; unknown ones stay unchanged."""
    lower = name.lower()
    return lower if lower in _NAMED or _WIDTH.fullmatch(lower) else name


def get_sources(field: Document, where: str) -> Sequence[int]:
    """The ids of a field's source columns; only transforms of several columns use `source-ids`."""
    if field.get("source-id") is None and field.get("source-ids") is not None:
        sources = get_ints(field, "source-ids", where)
        if not sources:
            raise InvalidMetadata(f"Cannot parse {where}.source-ids: must not be empty")
        return sources
    return [get_int(field, "source-id", where)]


def with_fresh_sources(field: Document, fresh_ids: Mapping[int, int], where: str) -> Document:
    """The field with the fresh ids of its source columns."""
    sources = [fresh_ids[source] for source in get_sources(field, where)]
    renewed: dict[str, Any] = {"source-ids": sources} if "source-ids" in field else {}
    if field.get("source-id") is not None:
        renewed["source-id"] = sources[0]
    return {**field, **renewed}


def can_transform(transform: str, column: Column) -> bool:
    """Whether the transform accepts a primitive column; unknown transforms accept any."""
    family = get_family(column.type, column.name)
    name = transform.split("[")[0]
    if name == "identity":
        return family not in _NOT_IDENTITY
    return name not in _SOURCES or family in _SOURCES[name]
