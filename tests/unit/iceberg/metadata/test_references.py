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
    table,
    written,
)
from tidemill.iceberg.errors import InvalidMetadata


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
