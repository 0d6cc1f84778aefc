"""Expressions that do not always have the same answer."""

from __future__ import annotations

import pytest

from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.determinism import check_deterministic


@pytest.mark.parametrize(
    "expression",
    [
        "rand() < 0.5",
        "x + RANDOM ( )",
        "ts > now()",
        "day = current_date",
        "current_timestamp() > ts",
        "CASE WHEN x THEN uuid() ELSE 'a' END",
        "unix_timestamp()",
    ],
)
def test_what_has_another_answer_each_time_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match=r"^field: \w+(\(\))? does not always have the same answer"):
        check_deterministic(expression, "field")


@pytest.mark.parametrize(
    "expression",
    [
        "x > 1",
        "'now()' = text",
        "`current_date` > 1",
        "row.current_date > 1",
        "rand > 1 AND uuid = 'a'",
        "unix_timestamp(ts)",
        "not 'closed",
    ],
)
def test_names_and_texts_are_no_calls(expression: str) -> None:
    check_deterministic(expression, "field")
