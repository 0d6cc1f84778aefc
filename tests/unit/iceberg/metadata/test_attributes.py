"""UUID, format version, location, encryption keys and properties."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import TABLE_UUID, add, change, oldest, point, spec, table, written
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.attributes import (
    max_previous_versions,
    new_properties,
    without_trailing_slashes,
)
from tidemill.iceberg.metadata.tables import check_table
from tidemill.iceberg.model.entries import Document

KEY = {"key-id": "k", "encrypted-key-metadata": "bQ==", "x-more": 1}


def upgraded(version: int) -> Document:
    return {"action": "upgrade-format-version", "format-version": version}


def test_a_table_keeps_its_uuid() -> None:
    other = "0195e1a6-0000-7cc1-8f7e-2c7d3a1b4c5d"
    with pytest.raises(InvalidMetadata, match="Cannot reassign uuid"):
        change(table(), {"action": "assign-uuid", "uuid": other})


def test_an_old_table_without_a_uuid_can_get_one() -> None:
    base = table(1)
    del base["table-uuid"]
    changed = change(base, {"action": "assign-uuid", "uuid": str(TABLE_UUID)})
    assert changed["table-uuid"] == str(TABLE_UUID)


def test_a_uuid_has_to_be_one() -> None:
    with pytest.raises(InvalidMetadata, match=r"updates\[0\].uuid"):
        change(table(), {"action": "assign-uuid", "uuid": "mine"})


def test_a_table_can_be_moved() -> None:
    changed = change(table(), {"action": "set-location", "location": "file:///lake/other//"})
    assert changed["location"] == "file:///lake/other"


def test_the_slashes_of_a_scheme_stay() -> None:
    assert without_trailing_slashes("s3://") == "s3://"


def test_v1_becomes_v2() -> None:
    base = change(table(1), add(1, 0), point("main", 1))
    changed = change(base, upgraded(2))
    assert (changed["format-version"], changed["last-sequence-number"]) == (2, 0)
    assert "schema" not in changed
    assert "partition-spec" not in changed
    assert changed["snapshots"] == base["snapshots"]
    check_table(changed)


def test_the_oldest_documents_become_v2() -> None:
    old = oldest()
    check_table(old)
    changed = change(old, {"action": "assign-uuid", "uuid": str(TABLE_UUID)}, upgraded(2))
    check_table(changed)
    assert changed["schemas"] == table(1)["schemas"]
    assert changed["partition-specs"] == [spec(("name", 3, "identity"))]
    assert changed["last-partition-id"] == 1000
    assert changed["sort-orders"] == [{"order-id": 0, "fields": []}]


def test_v2_becomes_v3() -> None:
    changed = change(table(), upgraded(3))
    assert (changed["next-row-id"], changed["current-snapshot-id"]) == (0, None)
    check_table(changed)
    full = change(written(2), upgraded(3))
    assert full["current-snapshot-id"] == 2
    assert full["last-sequence-number"] == 2


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (1, "Cannot downgrade v2 table to v1"),
        (0, "Cannot downgrade v2 table to v0"),
        (4, r"Cannot upgrade table to unsupported format version: v4 \(supported: v3\)"),
    ],
)
def test_versions_go_up_to_what_is_served(version: int, problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        change(table(), upgraded(version))


def test_encryption_keys_are_kept_by_their_id() -> None:
    base = change(table(3), {"action": "add-encryption-key", "encryption-key": KEY})
    assert base["encryption-keys"] == [KEY]
    again = {"action": "add-encryption-key", "encryption-key": {**KEY, "encrypted-key-metadata": "bg=="}}
    assert change(base, again) is base
    assert change(base, {"action": "remove-encryption-key", "key-id": "k"})["encryption-keys"] == []


def test_an_encryption_key_needs_its_fields() -> None:
    with pytest.raises(InvalidMetadata, match=r"encryption-key.encrypted-key-metadata"):
        change(table(3), {"action": "add-encryption-key", "encryption-key": {"key-id": "k"}})


def test_a_table_without_a_uuid_gets_the_one_that_later_versions_require() -> None:
    changed = change(oldest(), upgraded(2))
    assert changed["table-uuid"] is not None
    check_table(changed)


PROPERTIES = {"a": "1", "b": "2"}


@pytest.mark.parametrize("key", ["updates", "updated"])
def test_properties_are_set_by_the_new_name_and_the_old(key: str) -> None:
    changed = change(table(properties=PROPERTIES), {"action": "set-properties", key: {"b": "3"}})
    assert (changed["properties"]["a"], changed["properties"]["b"]) == ("1", "3")


@pytest.mark.parametrize("key", ["removals", "removed"])
def test_properties_are_removed_by_the_new_name_and_the_old(key: str) -> None:
    changed = change(table(properties=PROPERTIES), {"action": "remove-properties", key: ["b", "gone"]})
    assert "b" not in changed["properties"]
    assert changed["properties"]["a"] == "1"


def test_the_new_name_wins_over_the_old() -> None:
    both = {"action": "set-properties", "updates": {"a": "new"}, "updated": {"a": "old"}}
    assert change(table(), both)["properties"]["a"] == "new"


def test_setting_a_property_to_what_it_is_is_a_commit() -> None:
    base = table(properties=PROPERTIES)
    assert change(base, {"action": "set-properties", "updates": {"a": "1"}}) is not base


@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-properties"},
        {"action": "set-properties", "updates": {"a": 1}},
        {"action": "set-properties", "updates": None},
        {"action": "remove-properties", "removals": "a"},
        {"action": "remove-properties", "removals": [1]},
    ],
)
def test_properties_are_strings(update: dict[str, Any]) -> None:
    with pytest.raises(InvalidMetadata, match=r"updates\[0\]\.(updates|removals)"):
        change(table(), update)


def test_a_new_table_keeps_no_reserved_property() -> None:
    kept = new_properties({"uuid": "x", "snapshot-count": "9", "owner": "me"}, 2, [])
    assert kept == {"write.parquet.compression-codec": "zstd", "owner": "me"}


def test_metrics_are_of_columns_that_there_are() -> None:
    wanted = {"write.metadata.metrics.column.a.b": "none"}
    assert wanted.items() <= new_properties(wanted, 2, ["a.b"]).items()
    with pytest.raises(InvalidMetadata, match=r"could not find column a\.b"):
        new_properties(wanted, 2, ["a"])


@pytest.mark.parametrize("text", ["2147483647", "+5", "007"])
def test_numbers_are_those_that_java_reads(text: str) -> None:
    assert max_previous_versions({"write.metadata.previous-versions-max": text}) == int(text)


@pytest.mark.parametrize("text", ["2147483648", "5.0", " 5", "5_0", "", "٥", "9" * 5000])
def test_other_numbers_are_none(text: str) -> None:
    with pytest.raises(InvalidMetadata, match="must have integer value"):
        max_previous_versions({"write.metadata.previous-versions-max": text})


def test_retries_are_not_negative() -> None:
    with pytest.raises(InvalidMetadata, match="must have non negative integer value"):
        new_properties({"commit.retry.min-wait-ms": "-1"}, 2, [])


def test_at_least_one_file_stays_in_the_log() -> None:
    assert max_previous_versions({"write.metadata.previous-versions-max": "0"}) == 1
    assert max_previous_versions({}) == 100
