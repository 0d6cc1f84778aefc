from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import add, change, log_of, point, snapshot, table, written
from tidemill.iceberg.errors import CommitConflict, InvalidMetadata
from tidemill.iceberg.metadata.table_documents import check_table


def removed(*ids: int) -> dict[str, Any]:
    return {"action": "remove-snapshots", "snapshot-ids": list(ids)}


def statistics(snapshot_id: int) -> list[dict[str, Any]]:
    file = {"snapshot-id": snapshot_id, "statistics-path": "p", "file-size-in-bytes": 1}
    puffin = {**file, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    return [
        {"action": "set-statistics", "statistics": puffin},
        {"action": "set-partition-statistics", "partition-statistics": file},
    ]


def test_a_snapshot_alone_is_not_current() -> None:
    changed = change(table(), add(7, 1))
    assert changed["snapshots"] == [snapshot(7, 1)]
    assert (changed["last-sequence-number"], changed["current-snapshot-id"]) == (1, -1)


def test_a_stale_sequence_number_can_be_tried_again() -> None:
    with pytest.raises(CommitConflict) as refusal:
        change(written(2), add(9, 2, **{"parent-snapshot-id": 1}))
    assert str(refusal.value) == (
        "Validation failed, please retry: "
        "Cannot add snapshot with sequence number 2 older than last sequence number 2"
    )


def test_a_snapshot_without_a_parent_may_have_an_old_sequence_number() -> None:
    assert change(written(2), add(9, 1))["last-sequence-number"] == 2


def test_an_id_is_used_once() -> None:
    with pytest.raises(InvalidMetadata, match="Snapshot already exists for id: 2"):
        change(written(2), add(2, 3))


def test_v1_has_no_sequence_numbers() -> None:
    base = table(1)
    assert "last-sequence-number" not in change(base, add(1, 0))
    with pytest.raises(InvalidMetadata, match="Sequence number must be 0 in v1: 1"):
        change(base, add(1, 1))


def test_a_snapshot_needs_a_table_that_is_described() -> None:
    with pytest.raises(InvalidMetadata, match="before a schema is added"):
        change(None, add(1, 1))


def test_v3_counts_the_rows_of_snapshots() -> None:
    first = change(table(3), add(1, 1, **{"first-row-id": 0, "added-rows": 10}))
    assert first["next-row-id"] == 10
    assert change(first, add(2, 2, **{"first-row-id": 15, "added-rows": 5}))["next-row-id"] == 20


def test_a_stale_first_row_can_be_tried_again() -> None:
    base = change(table(3), add(1, 1, **{"first-row-id": 0, "added-rows": 10}))
    with pytest.raises(
        CommitConflict, match=r"^Validation failed, please retry: .* table next-row-id: 9 < 10$"
    ):
        change(base, add(2, 2, **{"first-row-id": 9, "added-rows": 1}))


@pytest.mark.parametrize(
    ("lineage", "problem"),
    [
        ({}, "Cannot add a snapshot: first-row-id is null"),
        ({"first-row-id": 0}, "required when first-row-id is set"),
        ({"first-row-id": -1, "added-rows": 1}, "cannot be negative"),
        ({"first-row-id": 0, "added-rows": -1}, "cannot be negative"),
        ({"first-row-id": 2**63 - 1, "added-rows": 1}, "no row ids are left"),
    ],
)
def test_rows_of_v3_have_to_be_numbered(lineage: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        change(table(3), add(1, 1, **lineage))


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"snapshot-id": "1"}, r"long value: updates\[0\].snapshot.snapshot-id"),
        ({"snapshot-id": 2**63}, r"long value: updates\[0\].snapshot.snapshot-id"),
        ({"timestamp-ms": None}, "snapshot.timestamp-ms"),
        ({"summary": {"operation": 1}}, "snapshot.summary.operation"),
        ({"manifest-list": None}, "snapshot.manifest-list"),
        ({"schema-id": 2**31}, "snapshot.schema-id"),
    ],
)
def test_a_snapshot_that_is_none_is_refused_with_the_path(broken: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        change(table(), add(1, 1, **broken))


def test_what_belongs_to_a_snapshot_goes_with_it() -> None:
    base = change(written(3), point("old", 1, "tag"), *statistics(1), *statistics(2))
    changed = change(base, removed(1, 99))
    assert [kept["snapshot-id"] for kept in changed["snapshots"]] == [2, 3]
    assert set(changed["refs"]) == {"main"}
    assert [file["snapshot-id"] for file in changed["statistics"]] == [2]
    assert [file["snapshot-id"] for file in changed["partition-statistics"]] == [2]


def test_parents_that_are_gone_are_still_named() -> None:
    changed = change(written(2), removed(1))
    assert changed["snapshots"][0]["parent-snapshot-id"] == 1


def test_history_ends_before_a_snapshot_that_is_gone() -> None:
    assert log_of(change(written(4), removed(2))) == [3, 4]


def test_without_its_snapshot_main_is_empty() -> None:
    changed = change(written(2), removed(2))
    assert changed["current-snapshot-id"] == -1
    assert changed["refs"] == {}
    assert log_of(changed) == []


def test_what_is_null_in_a_snapshot_is_not_kept() -> None:
    """Iceberg's library reads null neither as a number nor as nothing."""
    nothing: dict[str, Any] = {"parent-snapshot-id": None, "schema-id": None, "key-id": None}
    changed = change(table(), add(1, 1, **nothing))
    assert changed["snapshots"] == [snapshot(1, 1)]


@pytest.mark.parametrize(("version", "none"), [(1, -1), (2, -1), (3, None)])
def test_without_a_snapshot_it_stays_so_after_a_change(version: int, none: int | None) -> None:
    changed = change(table(version), {"action": "set-properties", "updates": {"a": "b"}})
    assert changed["current-snapshot-id"] == none


def test_of_v3_the_current_snapshot_may_be_absent() -> None:
    base = {key: value for key, value in table(3).items() if key != "current-snapshot-id"}
    check_table(base)
    changed = change(base, {"action": "set-properties", "updates": {"a": "b"}})
    assert changed["current-snapshot-id"] is None
