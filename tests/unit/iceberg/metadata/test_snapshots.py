"""Snapshots, branches and tags, and statistics."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import (
    CREATED_MS,
    LATER_MS,
    add,
    change,
    log_of,
    point,
    snapshot,
    table,
    written,
)
from tidemill.iceberg.errors import CommitConflict, InvalidMetadata
from tidemill.iceberg.metadata.tables import check_table


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


def test_main_is_the_current_snapshot_since_it_was_made() -> None:
    changed = change(table(), add(7, 1), point("main", 7))
    assert changed["current-snapshot-id"] == 7
    assert changed["refs"] == {"main": {"snapshot-id": 7, "type": "branch"}}
    assert changed["snapshot-log"] == [{"timestamp-ms": CREATED_MS + 7, "snapshot-id": 7}]


def test_going_back_to_a_snapshot_happens_now() -> None:
    changed = change(written(2), point("main", 1))
    assert changed["snapshot-log"][-1] == {"timestamp-ms": LATER_MS, "snapshot-id": 1}
    assert log_of(changed) == [1, 2, 1]


def test_what_was_current_only_inside_a_commit_is_not_in_the_log() -> None:
    updates = [add(1, 1), point("main", 1), add(2, 2, **{"parent-snapshot-id": 1}), point("main", 2)]
    assert log_of(change(table(), *updates)) == [2]


def test_other_branches_do_not_touch_the_log() -> None:
    base = written(2)
    changed = change(base, point("audit", 1), point("v1", 1, "TAG"))
    assert changed["snapshot-log"] == base["snapshot-log"]
    assert changed["refs"]["v1"] == {"snapshot-id": 1, "type": "tag"}


def test_a_reference_has_the_retention_of_its_last_update() -> None:
    base = change(written(2), point("b", 1, more={"min-snapshots-to-keep": 2, "max-ref-age-ms": 5}))
    assert base["refs"]["b"] == {
        "snapshot-id": 1,
        "type": "branch",
        "min-snapshots-to-keep": 2,
        "max-ref-age-ms": 5,
    }
    changed = change(base, point("b", 1, more={"min-snapshots-to-keep": 3, "max-ref-age-ms": None}))
    assert changed["refs"]["b"] == {"snapshot-id": 1, "type": "branch", "min-snapshots-to-keep": 3}


def test_setting_a_reference_to_what_it_is_changes_nothing() -> None:
    base = written(2)
    assert change(base, point("main", 2)) is base


def test_without_main_there_is_no_current_snapshot() -> None:
    base = change(written(2), point("keep", 2))
    changed = change(base, {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert changed["current-snapshot-id"] == -1
    assert set(changed["refs"]) == {"keep"}
    assert log_of(changed) == [1, 2]


@pytest.mark.parametrize(
    ("update", "problem"),
    [
        (point("b", 9), "Cannot set b to unknown snapshot: 9"),
        (point("main", 1, "tag"), "Cannot set main to a tag, it must be a branch"),
        (point("b", 1, "twig"), "Invalid snapshot ref type"),
        (
            point("b", 1, "tag", {"min-snapshots-to-keep": 1}),
            "Tags do not support setting minSnapshotsToKeep",
        ),
        (point("b", 1, "tag", {"max-snapshot-age-ms": 1}), "Tags do not support setting maxSnapshotAgeMs"),
        (point("b", 1, more={"min-snapshots-to-keep": 0}), "Min snapshots to keep must be greater than 0"),
        (point("b", 1, more={"max-snapshot-age-ms": 0}), "Max snapshot age must be greater than 0 ms"),
        (point("b", 1, more={"max-ref-age-ms": 0}), "Max reference age must be greater than 0"),
    ],
)
def test_a_reference_that_cannot_be_is_refused(update: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        change(written(2), update)


def test_a_snapshot_from_the_future_cannot_be_current() -> None:
    late = add(1, 1, **{"timestamp-ms": LATER_MS + 60_001})
    with pytest.raises(InvalidMetadata, match="before last snapshot log entry"):
        change(table(), late, point("main", 1))
    assert change(table(), late)["snapshots"]


def test_the_log_does_not_go_back_in_time() -> None:
    base = change(table(), add(1, 1), point("main", 1))
    early = add(2, 2, **{"timestamp-ms": CREATED_MS - 60_001})
    with pytest.raises(InvalidMetadata, match="Expected sorted snapshot log entries"):
        change(base, early, point("main", 2))


PARTITION_FILE: dict[str, Any] = {"snapshot-id": 1, "statistics-path": "p", "file-size-in-bytes": 1}
BLOB = {"type": "theta", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
FILE: dict[str, Any] = {**PARTITION_FILE, "file-footer-size-in-bytes": 1, "blob-metadata": [BLOB]}


def put(file: dict[str, Any]) -> dict[str, Any]:
    return {"action": "set-statistics", "snapshot-id": 1, "statistics": file}


def test_there_is_one_file_of_statistics_for_a_snapshot() -> None:
    base = change(table(), put(FILE), put({**FILE, "snapshot-id": 2}))
    changed = change(base, put({**FILE, "statistics-path": "q"}))
    assert [(file["snapshot-id"], file["statistics-path"]) for file in changed["statistics"]] == [
        (1, "q"),
        (2, "p"),
    ]


def test_statistics_can_be_removed() -> None:
    base = change(table(), put(FILE))
    assert change(base, {"action": "remove-statistics", "snapshot-id": 1})["statistics"] == []


def test_statistics_of_partitions_are_kept_apart() -> None:
    base = change(
        table(), put(FILE), {"action": "set-partition-statistics", "partition-statistics": PARTITION_FILE}
    )
    assert base["partition-statistics"] == [PARTITION_FILE]
    changed = change(base, {"action": "remove-partition-statistics", "snapshot-id": 1})
    assert changed["partition-statistics"] == []
    assert changed["statistics"] == [FILE]


@pytest.mark.parametrize(
    "missing", ["snapshot-id", "statistics-path", "file-footer-size-in-bytes", "blob-metadata"]
)
def test_a_file_needs_all_its_fields(missing: str) -> None:
    broken = {key: value for key, value in FILE.items() if key != missing}
    with pytest.raises(InvalidMetadata, match=rf"updates\[0\].statistics.{missing}"):
        change(table(), put(broken))


def test_a_blob_needs_all_its_fields() -> None:
    with pytest.raises(InvalidMetadata, match=r"blob-metadata\[0\].fields"):
        change(table(), put({**FILE, "blob-metadata": [{**BLOB, "fields": ["a"]}]}))
