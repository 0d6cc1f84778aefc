"""Column types and the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from tidemill.store.column_types import (
    MAX_BIGINT,
    JsonText,
    MillisecondTime,
    RowId,
    from_milliseconds,
    in_milliseconds,
)

DIALECT = sqlite.dialect()
MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(MOMENTS)
def test_a_moment_keeps_its_milliseconds(moment: datetime) -> None:
    column = MillisecondTime()
    stored = column.process_bind_param(moment, DIALECT)
    read = column.process_result_value(stored, DIALECT)
    assert read is not None
    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)
    assert column.process_bind_param(read, DIALECT) == stored


def test_a_moment_of_another_zone_comes_back_in_utc() -> None:
    moment = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    read = MillisecondTime().process_result_value(
        MillisecondTime().process_bind_param(moment, DIALECT), DIALECT
    )
    assert read == moment
    assert read is not None
    assert read.tzinfo is UTC


@given(st.integers(0, 2**64 - 1))
def test_an_id_of_a_row_fits_a_signed_column_and_comes_back(row_id: int) -> None:
    stored = RowId().process_bind_param(row_id, DIALECT)
    assert stored is not None
    assert -MAX_BIGINT - 1 <= stored <= MAX_BIGINT
    assert RowId().process_result_value(stored, DIALECT) == row_id


def test_nothing_stays_nothing() -> None:
    for column in (MillisecondTime(), JsonText(), RowId()):
        assert column.process_bind_param(None, DIALECT) is None
        assert column.process_result_value(None, DIALECT) is None


def test_json_keeps_text_beyond_ascii_readable() -> None:
    assert JsonText().process_bind_param({"size": "Größe"}, DIALECT) == '{"size":"Größe"}'


def test_durations_are_whole_milliseconds() -> None:
    assert in_milliseconds(timedelta(seconds=1.5)) == 1_500
    assert from_milliseconds(1_500) == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
