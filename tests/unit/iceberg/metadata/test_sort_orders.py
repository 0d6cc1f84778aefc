from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import change, order, table
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.model.entries import Document


def added(*fields: tuple[int, str], **more: Any) -> Document:
    return {"action": "add-sort-order", "sort-order": {**order(*fields), **more}}


def broken(key: str, value: str) -> Document:
    update = added((1, "identity"))
    update["sort-order"]["fields"][0][key] = value
    return update


def use(order_id: int) -> Document:
    return {"action": "set-default-sort-order", "sort-order-id": order_id}


def test_an_added_order_gets_the_next_id() -> None:
    changed = change(table(), added((1, "identity")), added((3, "identity")), use(-1))
    assert [known["order-id"] for known in changed["sort-orders"]] == [0, 1, 2]
    assert changed["default-sort-order-id"] == 2


def test_an_order_that_is_there_already_counts_as_the_last_added() -> None:
    base = change(table(), added((1, "identity")), use(-1))
    assert change(base, added((1, "identity")), use(-1)) is base
    assert change(base, added(), use(-1))["default-sort-order-id"] == 0


def test_directions_and_names_of_transforms_have_no_case() -> None:
    shouted = added((1, "IDENTITY"))
    shouted["sort-order"]["fields"][0].update({"direction": "ASC", "null-order": "NULLS-FIRST"})
    base = change(table(), added((1, "identity")), use(-1))
    assert change(base, shouted, use(-1)) is base


@pytest.mark.parametrize(
    ("update", "problem"),
    [
        (added((9, "identity")), r"sort field: identity\(9\) ASC NULLS FIRST"),
        (added((3, "day")), "Invalid source type string for transform: day"),
        (added(**{"order-id": 3}), "Unsorted order ID must be 0"),
        (added((1, "identity"), **{"order-id": 0}), "Sort order ID 0 is reserved for unsorted order"),
        (broken("direction", "up"), "Invalid sort direction"),
        (broken("null-order", "x"), "Unexpected null order"),
        (use(-1), "Cannot set last added sort order: no sort order has been added"),
        (use(6), "unknown sort order: 6"),
    ],
)
def test_an_order_that_cannot_be_is_refused(update: Document, problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        change(table(), update)
