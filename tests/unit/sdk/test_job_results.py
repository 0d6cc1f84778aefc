"""Previews in words."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tidemill.sdk.jobs import Preview, shortened
from tidemill.sdk.status import RowErrorInfo

ROWS = pa.table({"_rowid": [0, 17], "text": ["a tide", "the mill"], "words": [2, None]})
PREVIEW = Preview("library.docs", "words", "j1", 3, 812.25, 0, False, (), ROWS)
ERROR = RowErrorInfo("words", 17, "ValueError", "no", "Traceback: …", attempts=2)


def test_a_preview_shows_its_rows() -> None:
    assert repr(PREVIEW).splitlines() == [
        "Preview of library.docs.words at version 3: 2 rows, 812.2 rows/s",
        "_rowid  text      words",
        "0       a tide    2",
        "17      the mill  None",
    ]


def test_a_preview_shows_what_failed() -> None:
    preview = replace(PREVIEW, errors=(ERROR,), reused=1, is_truncated=True, rows_per_second=None)
    assert preview.summary.endswith(": 2 rows, 1 reused, 1 failed, truncated")
    assert repr(preview).splitlines()[-1] == "! words, row 17: ValueError: no (tried 2 times)"


def test_a_preview_without_rows_can_be_shown() -> None:
    assert "0 rows" in repr(replace(PREVIEW, rows=ROWS.slice(0, 0)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", "a b"),
        (None, "None"),
        (1.5, "1.5"),
        ("x" * 40, "x" * 31 + "…"),
        (b"\x00" * 1000, r"b'" + r"\x00" * 7 + r"\…"),
        ([0] * 1000, "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, …"),
    ],
)
def test_a_value_is_shown_in_a_few_characters(value: object, shown: str) -> None:
    assert shortened(value) == shown
