from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import SCHEMA, change, column, schema, spec, table
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.json_fields import MAX_INT, find_by_id, next_id
from tidemill.iceberg.metadata.tables import check_table
from tidemill.iceberg.model.entries import Document

ADD_SCHEMA: Document = {"action": "add-schema", "schema": schema(column(1, "other", "int"))}
ADD_SPEC: Document = {"action": "add-spec", "spec": spec(("other", 1, "identity"), first_id=None)}
ADD_ORDER: Document = {
    "action": "add-sort-order",
    "sort-order": {
        "order-id": 1,
        "fields": [
            {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
        ],
    },
}


def test_the_next_id_is_above_those_that_are_taken() -> None:
    assert (next_id([], 0, "x"), next_id([0, 4], 0, "x"), next_id([0, 4], 9, "x")) == (0, 5, 9)


@pytest.mark.parametrize("document", [{}, {"schema-id": None}, {"schema-id": 0}])
def test_an_id_that_is_left_out_is_0(document: Document) -> None:
    assert find_by_id([{"schema-id": 1}, document], "schema-id", 0) is document


def with_last(listed: str, key: str, last: Any) -> Document:
    """A table that has one more schema, spec or order, with this id."""
    base = table()
    more = {"schemas": {**SCHEMA, "fields": SCHEMA["fields"][:1]}, "partition-specs": spec(("n", 3, "void"))}
    added = more.get(listed, {"fields": ADD_ORDER["sort-order"]["fields"] * 2})
    return {**base, listed: [*base[listed], {**added, key: last}]}


@pytest.mark.parametrize(
    ("listed", "key", "update"),
    [
        ("schemas", "schema-id", ADD_SCHEMA),
        ("partition-specs", "spec-id", ADD_SPEC),
        ("sort-orders", "order-id", ADD_ORDER),
    ],
)
def test_there_is_no_id_after_the_last_one(listed: str, key: str, update: Document) -> None:
    base = with_last(listed, key, MAX_INT)
    check_table(base)
    with pytest.raises(InvalidMetadata, match=f"{key}: no ids are left"):
        change(base, update)


def test_there_is_no_partition_field_after_the_last_one() -> None:
    with pytest.raises(InvalidMetadata, match="field-id: no ids are left"):
        change({**table(), "last-partition-id": MAX_INT}, ADD_SPEC)


@pytest.mark.parametrize(
    ("listed", "key", "update"),
    [("schemas", "schema-id", ADD_SCHEMA), ("partition-specs", "spec-id", ADD_SPEC)],
)
def test_documents_with_null_for_an_id_can_be_changed(listed: str, key: str, update: Document) -> None:
    base = with_last(listed, key, None)
    base[listed] = [{**base[listed][0], key: 3}, base[listed][1]]
    base |= {"current-schema-id": 3} if listed == "schemas" else {"default-spec-id": 3}
    check_table(base)
    assert [each[key] for each in change(base, update)[listed]] == [3, None, 4]
