from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import SCHEMA, change, column, schema, spec, table
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.model.entries import Document

BY_NAME = ("name", 3, "identity")
BY_DAY = ("at_day", 2, "day")


def added(*fields: tuple[str, int, str], first_id: int | None = 1000) -> Document:
    return {"action": "add-spec", "spec": spec(*fields, first_id=first_id)}


def use(spec_id: int) -> Document:
    return {"action": "set-default-spec", "spec-id": spec_id}


def ids(metadata: Document) -> list[Any]:
    return [
        (known["spec-id"], [field["field-id"] for field in known["fields"]])
        for known in metadata["partition-specs"]
    ]


def test_an_added_spec_gets_the_next_id() -> None:
    changed = change(table(), added(BY_NAME), use(-1))
    assert ids(changed) == [(0, []), (1, [1000])]
    assert (changed["default-spec-id"], changed["last-partition-id"]) == (1, 1000)


def test_a_spec_that_is_there_already_counts_as_the_last_added() -> None:
    base = change(table(), added(BY_NAME))
    changed = change(base, added(("name", 3, "Identity")), use(-1))
    assert changed["partition-specs"] == base["partition-specs"]
    assert changed["default-spec-id"] == 1
    assert change(changed, added(BY_NAME), use(-1)) is changed


def test_a_field_without_an_id_gets_that_of_its_like_or_the_next() -> None:
    base = change(table(), added(BY_NAME, first_id=1005))
    assert ids(change(base, added(BY_DAY, BY_NAME, first_id=None)))[-1] == (2, [1006, 1005])


def test_ids_of_fields_are_all_there_or_none() -> None:
    update = added(BY_NAME, BY_DAY)
    del update["spec"]["fields"][1]["field-id"]
    with pytest.raises(InvalidMetadata, match="missing field IDs: 1 missing of 2 fields"):
        change(table(), update)


def test_ids_of_v1_have_no_gaps() -> None:
    with pytest.raises(InvalidMetadata, match="Spec does not use sequential IDs that are required in v1"):
        change(table(1), added(BY_NAME, first_id=1001))


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (("x", 9, "identity"), r"Cannot find source column for partition field: 1000: x: identity\(9\)"),
        (("x", 3, "hour"), "Invalid source type string for transform: hour"),
        (("id", 3, "identity"), "sourced from different field in schema: id"),
        (("", 3, "identity"), "Cannot use empty partition name"),
        (("x", 3, "truncate[0]"), r"Invalid truncate width: 0 \(must be > 0\)"),
        (("x", 3, "no transform!"), r"Cannot parse transform: updates\[0\].spec.fields\[0\].transform"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(field: tuple[str, int, str], problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        change(table(), added(field))


def test_names_of_fields_are_unique() -> None:
    with pytest.raises(InvalidMetadata, match="Cannot use partition name more than once: x"):
        change(table(), added(("x", 1, "bucket[2]"), ("x", 2, "day")))


def test_fields_inside_of_lists_cannot_be_partitioned_by() -> None:
    kind = {"type": "list", "element-id": 9, "element": "int", "element-required": True}
    wider = schema(*SCHEMA["fields"], column(8, "l", kind))
    updates = [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}]
    with pytest.raises(InvalidMetadata, match="Invalid partition field parent: list"):
        change(table(), *updates, added(("e", 9, "identity")))
    with pytest.raises(InvalidMetadata, match="Cannot partition by non-primitive source field: list"):
        change(table(), *updates, added(("e", 8, "identity")))


def test_a_void_field_needs_no_column() -> None:
    assert ids(change(table(), added(("gone", 77, "void"))))[-1] == (1, [1000])


def test_a_transform_of_many_columns_stays_as_it_is() -> None:
    field = {"name": "b", "source-ids": [1, 3], "transform": "bucketv2[4]", "field-id": 1000}
    changed = change(table(3), {"action": "add-spec", "spec": {"fields": [field]}})
    assert changed["partition-specs"][1]["fields"] == [field]


def test_the_default_spec_has_to_be_known() -> None:
    with pytest.raises(InvalidMetadata, match="Cannot set last added spec: no spec has been added"):
        change(table(), use(-1))
    with pytest.raises(InvalidMetadata, match="unknown spec: 4"):
        change(table(), use(4))


def test_the_default_spec_stays_and_others_can_be_removed() -> None:
    base = change(table(), added(BY_NAME), use(-1))
    assert ids(change(base, {"action": "remove-partition-specs", "spec-ids": [0, 8]})) == [(1, [1000])]
    with pytest.raises(InvalidMetadata, match="Cannot remove the default partition spec"):
        change(base, {"action": "remove-partition-specs", "spec-ids": [1]})


def test_two_fields_of_the_same_column_have_ids_of_their_own() -> None:
    base = change(table(), added(BY_NAME, first_id=1005))
    changed = change(base, added(BY_NAME, ("again", 3, "identity"), first_id=None))
    assert ids(changed)[-1] == (2, [1005, 1006])
    assert changed["last-partition-id"] == 1006
