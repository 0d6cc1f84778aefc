"""Names that another one may have been meant to be."""

from __future__ import annotations

import pytest

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, close_names

TABLE = TableIdent(NamespacePath(("sales",)), "orders")


@pytest.mark.parametrize(
    ("name", "known", "close"),
    [
        ("ordres", ["orders", "customers"], ["orders"]),
        ("order", ["orders", "order_items", "border"], ["orders", "border"]),
        ("ORDERS", ["orders", "orders2"], ["orders"]),
        ("rders", ["orders", *(f"table{number}" for number in range(4))], ["orders"]),
        ("x", ["orders"], []),
        ("", ["orders"], []),
        ("o" * 65, ["o" * 64], []),
        ("o" * 64, ["o" * 65], []),
    ],
)
def test_the_most_similar_names_come_first(name: str, known: list[str], close: list[str]) -> None:
    assert close_names(name, known) == close


def test_few_names_of_many_are_compared() -> None:
    known = [f"table_{number:04}" for number in range(1000)]
    assert close_names("tabel_0042", known)[0] == "table_0042"
    assert len(close_names("table_", known)) <= 3


def test_a_missing_column_comes_with_the_one_meant_and_not_with_thousands() -> None:
    assert str(TableColumnNotFound(TABLE, "x", ("id", "text"))) == (
        "Table sales.orders has no column 'x'; its columns are id, text"
    )
    assert str(TableColumnNotFound(TABLE, "txt", ("id", "text"))) == (
        "Table sales.orders has no column 'txt'; did you mean 'text'? Its columns are id, text"
    )
    many = str(TableColumnNotFound(TABLE, "x", tuple(f"column{number}" for number in range(60))))
    assert many.endswith("column49 and 10 more")
