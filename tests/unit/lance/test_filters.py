"""Filters are looked at before Lance's parser is."""

from __future__ import annotations

import pytest

from tidemill.errors import InvalidInput
from tidemill.lance.filters import check_filter


@pytest.mark.parametrize(
    "text",
    [
        "x > 1",
        "name = 'a;b -- c' AND (x IN (1, 2, 3))",
        "x IS NULL OR NOT y",
        " AND ".join(f"x != {n}" for n in range(400)),
        "`odd name` LIKE '%(%'",
    ],
)
def test_ordinary_filters_pass(text: str) -> None:
    check_filter(text, "where")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("1=1; DROP TABLE t", "';'"),
        ("1=1 -- all", "comments"),
        ("1=1) --", "comments"),
        ("1=1)", "nothing opens"),
        ("(x > 1", "nothing closes"),
        ("(" * 60 + "x" + ")" * 60, "nested"),
        ("1" + "+1" * 3600, "operators"),
        ("x = " + " || ".join(["'a'"] * 900), "operators"),
        ("x = '" + "a" * 9000 + "'", "longer than"),
        ("x = 'never closed", "not a SQL expression"),
    ],
)
def test_dangerous_filters_are_refused_with_the_field_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match="where") as refused:
        check_filter(text, "where")
    assert problem in str(refused.value)
