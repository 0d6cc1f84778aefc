from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import change, table
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.properties import max_previous_versions, new_properties

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
