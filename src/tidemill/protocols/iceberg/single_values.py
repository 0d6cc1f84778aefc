"""JSON of single values, as Iceberg's table specification defines it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tidemill.errors import Unsupported

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(1970, 1, 1)
NANOS: Final = 1_000_000_000
UTC_OFFSET: Final = "+00:00"


def value_json(kind: IcebergType, value: Any) -> Any:
    """A partition value or bound, as pyiceberg reads it, as JSON of its type."""
    match value:
        case None | bool() | str():
            return value
        case Decimal():
            return _decimal(kind, value)
        case UUID():
            return str(value)
        case bytes():
            return str(UUID(bytes=value)) if isinstance(kind, UUIDType) else value.hex().upper()
        case float():
            # JSON has no infinities and NaN; Iceberg's own writer uses these strings.
            return value if math.isfinite(value) else _non_finite(value)
        case int():
            return _from_integer_within_calendar(kind, value)
        case date() | time() | datetime():
            return value.isoformat()
        case _:
            return str(value)


def _decimal(kind: IcebergType, value: Decimal) -> str:
    if isinstance(kind, DecimalType):
        value = value.quantize(Decimal(1).scaleb(-kind.scale))
    return f"{value:f}"


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _from_integer_within_calendar(kind: IcebergType, value: int) -> int | str:
    try:
        return _from_integer(kind, value)
    except OverflowError as error:
        raise Unsupported(f"The {kind} {value} is outside the supported years 1 to 9999") from error


def _from_integer(kind: IcebergType, value: int) -> int | str:
    """Converts days, micro- or nanoseconds since 1970 or since midnight."""
    match kind:
        case DateType():
            return _day(value)
        case TimeType():
            return (EPOCH + timedelta(microseconds=value)).time().isoformat(timespec="microseconds")
        case TimestampType():
            return _micros(value)
        case TimestamptzType():
            return _micros(value) + UTC_OFFSET
        case TimestampNanoType():
            return _nanos(value)
        case TimestamptzNanoType():
            return _nanos(value) + UTC_OFFSET
        case _:
            return value


def _day(days: int) -> str:
    return (EPOCH_DAY + timedelta(days=days)).isoformat()


def _micros(micros: int) -> str:
    moment = EPOCH + timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds")


def _nanos(nanos: int) -> str:
    seconds, rest = divmod(nanos, NANOS)
    moment = EPOCH + timedelta(seconds=seconds)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}.{rest:09d}"
