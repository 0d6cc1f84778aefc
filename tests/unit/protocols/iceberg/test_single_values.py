"""Values in JSON, as the table specification spells them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tidemill.errors import Unsupported
from tidemill.protocols.iceberg.single_values import value_json

SOME_UUID = UUID("eb26bdb1-a1d8-4aa6-990e-da940875492c")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (LongType(), None, None),
        (BooleanType(), True, True),
        (LongType(), 2**62, 2**62),
        (DoubleType(), 1.0, 1.0),
        (DoubleType(), float("nan"), "NaN"),
        (DoubleType(), float("-inf"), "-Infinity"),
        (DecimalType(9, 2), Decimal("14.2"), "14.20"),
        (DecimalType(20, 0), Decimal("1E+3"), "1000"),
        (StringType(), "ü", "ü"),
        (UUIDType(), SOME_UUID, str(SOME_UUID)),
        (UUIDType(), SOME_UUID.bytes, str(SOME_UUID)),
        (DateType(), 13850, "2007-12-03"),
        (DateType(), -1, "1969-12-31"),
        (TimeType(), 81068123456, "22:31:08.123456"),
        (TimestampType(), 1196676930123456, "2007-12-03T10:15:30.123456"),
        (TimestampType(), 0, "1970-01-01T00:00:00.000000"),
        (TimestamptzType(), 1196676930123456, "2007-12-03T10:15:30.123456+00:00"),
        (TimestampNanoType(), 1196676930123456789, "2007-12-03T10:15:30.123456789"),
        (TimestamptzNanoType(), -1, "1969-12-31T23:59:59.999999999+00:00"),
        (FixedType(3), b"xyz", "78797A"),
        (BinaryType(), b"\x0a", "0A"),
    ],
)
def test_a_value_has_the_form_of_its_type(kind: IcebergType, value: Any, expected: Any) -> None:
    assert value_json(kind, value) == expected


def test_days_outside_the_calendar_are_told_as_such() -> None:
    with pytest.raises(Unsupported, match="is outside the supported years 1 to 9999"):
        value_json(DateType(), 10_000_000)
