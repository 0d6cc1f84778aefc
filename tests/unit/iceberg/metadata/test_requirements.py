from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import TABLE_UUID, change, point, table, written
from tidemill.iceberg.errors import InvalidMetadata, RequirementFailed
from tidemill.iceberg.metadata.requirements import (
    check_table_requirements,
    check_view_requirements,
    is_create,
)

CREATE = {"type": "assert-create"}


def at(ref: str, snapshot_id: int | None) -> dict[str, Any]:
    return {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_id}


def test_everything_that_holds_is_accepted() -> None:
    check_table_requirements(
        written(2),
        [
            {"type": "assert-table-uuid", "uuid": str(TABLE_UUID).upper()},
            at("main", 2),
            at("other", None),
            {"type": "assert-ref-snapshot-id", "ref": "other"},
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
            {"type": "assert-current-schema-id", "current-schema-id": 0},
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
            {"type": "assert-default-spec-id", "default-spec-id": 0},
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
        ],
    )


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        (CREATE, "table already exists"),
        ({"type": "assert-table-uuid", "uuid": "x"}, f"UUID does not match: expected {TABLE_UUID} != x"),
        (at("main", None), "branch main was created concurrently"),
        (at("v1", None), "tag v1 was created concurrently"),
        (at("main", 1), "branch main has changed: expected id 1 != 2"),
        (at("gone", 1), "branch or tag gone is missing, expected 1"),
        (
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9},
            "last assigned field id changed: expected id 9 != 3",
        ),
        (
            {"type": "assert-current-schema-id", "current-schema-id": 9},
            "current schema changed: expected id 9 != 0",
        ),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 9},
            "last assigned partition id changed: expected id 9 != 999",
        ),
        (
            {"type": "assert-default-spec-id", "default-spec-id": 9},
            "default partition spec changed: expected id 9 != 0",
        ),
        (
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 9},
            "default sort order changed: expected id 9 != 0",
        ),
    ],
)
def test_what_does_not_hold_is_a_conflict(requirement: dict[str, Any], problem: str) -> None:
    with pytest.raises(RequirementFailed) as refusal:
        check_table_requirements(change(written(2), point("v1", 1, "tag")), [requirement])
    assert str(refusal.value) == f"Requirement failed: {problem}"


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ({}, r"Missing field: requirements\[0\].type"),
        ("assert-create", r"requirements\[0\] from a non-object"),
        ({"type": "assert-luck"}, "Unrecognized update requirement. Cannot convert to json: .*assert-luck"),
        ({"type": "assert-table-uuid"}, r"missing string: requirements\[0\].uuid"),
        ({"type": "assert-ref-snapshot-id", "snapshot-id": 1}, r"requirements\[0\].ref"),
        ({"type": "assert-current-schema-id", "current-schema-id": True}, "current-schema-id: true"),
        ({"type": "assert-view-uuid", "uuid": "x"}, "Cannot validate AssertViewUUID against a table"),
    ],
)
def test_what_is_no_requirement_is_refused(requirement: Any, problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        check_table_requirements(table(), [requirement])


def test_a_table_that_is_not_there_can_only_be_made() -> None:
    check_table_requirements(None, [CREATE])
    with pytest.raises(RequirementFailed, match="table does not exist"):
        check_table_requirements(None, [at("main", None)])


def test_a_creation_requires_nothing_else() -> None:
    assert is_create([CREATE])
    assert not is_create([at("main", 1)])
    assert not is_create([])
    with pytest.raises(InvalidMetadata, match="Invalid create requirements"):
        is_create([CREATE, at("main", 1)])


def test_the_main_of_old_documents_is_their_current_snapshot() -> None:
    base = written(1)
    del base["refs"]
    check_table_requirements(base, [at("main", 1)])


def test_views_are_required_by_uuid_alone() -> None:
    view = {"view-uuid": str(TABLE_UUID)}
    check_view_requirements(view, [{"type": "assert-view-uuid", "uuid": str(TABLE_UUID).upper()}])
    with pytest.raises(RequirementFailed, match=f"view UUID does not match: expected {TABLE_UUID} != x"):
        check_view_requirements(view, [{"type": "assert-view-uuid", "uuid": "x"}])
    with pytest.raises(InvalidMetadata, match="against a view"):
        check_view_requirements(view, [CREATE])
