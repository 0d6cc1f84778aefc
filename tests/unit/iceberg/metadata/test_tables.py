"""Whole documents of tables: new, changed, and written elsewhere."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from pyiceberg.table.metadata import TableMetadataUtil

from tests.unit.iceberg.metadata.documents import (
    BASE_FILE,
    CREATED_MS,
    LATER_MS,
    SCHEMA,
    TABLE_UUID,
    add,
    change,
    column,
    mutations,
    oldest,
    order,
    point,
    schema,
    snapshot,
    spec,
    table,
    written,
)
from tidemill.errors import TidemillError
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.tables import check_table, expired_metadata_files, new_table, refs_only
from tidemill.iceberg.model.entries import Document, NewTable

SET_OWNER = {"action": "set-properties", "updates": {"owner": "me"}}


def make(described: Any = SCHEMA, **more: Any) -> Document:
    return new_table(NewTable(described, **more), "file:///lake/t", TABLE_UUID, CREATED_MS)


def creation(version: int = 2) -> list[Document]:
    return [
        {"action": "assign-uuid", "uuid": str(TABLE_UUID)},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": spec(("id", 1, "identity"))},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order((3, "identity"))},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": "file:///lake/staged/"},
    ]


def test_a_new_table_has_every_field_that_readers_expect() -> None:
    assert make() == {
        "format-version": 2,
        "table-uuid": str(TABLE_UUID),
        "location": "file:///lake/t",
        "last-sequence-number": 0,
        "last-updated-ms": CREATED_MS,
        "last-column-id": 3,
        "current-schema-id": 0,
        "schemas": [{**SCHEMA, "schema-id": 0}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"write.parquet.compression-codec": "zstd"},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def test_a_new_table_of_v1_has_its_schema_and_spec_for_old_readers() -> None:
    made = make(partition_spec=spec(("id", 1, "identity")), properties={"format-version": "1"})
    assert made["schema"] == made["schemas"][0]
    assert made["partition-spec"] == made["partition-specs"][0]["fields"]
    assert "last-sequence-number" not in made


def test_a_new_table_of_v3_counts_rows() -> None:
    made = make(properties={"format-version": "3"})
    assert made["next-row-id"] == 0
    assert made["current-snapshot-id"] is None


@pytest.mark.parametrize("version", ["0", "4", "-1", "two", "", "9" * 30])
def test_a_version_that_is_not_served_is_refused(version: str) -> None:
    with pytest.raises(InvalidMetadata, match="format"):
        make(properties={"format-version": version})


def test_the_spec_and_order_of_a_new_table_follow_its_fresh_ids() -> None:
    described = schema(column(30, "a", "int"), column(10, "b", "timestamp"))
    made = make(
        described,
        partition_spec=spec(("b_day", 10, "Day"), ("a", 30, "identity"), first_id=7),
        write_order={**order((10, "identity")), "order-id": 8},
    )
    fields = made["partition-specs"][0]["fields"]
    assert [(field["source-id"], field["field-id"], field["transform"]) for field in fields] == [
        (2, 1000, "day"),
        (1, 1001, "identity"),
    ]
    assert made["last-partition-id"] == 1001
    assert made["sort-orders"] == [order((2, "identity"))]
    assert made["default-sort-order-id"] == 1


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"partition_spec": spec(("x", 9, "identity"))}, "Cannot find source column for partition field"),
        ({"partition_spec": spec(("x", 3, "day"))}, "Invalid source type string for transform: day"),
        ({"partition_spec": spec(("x", 1, "bucket[0]"))}, r"Invalid number of buckets: 0 \(must be > 0\)"),
        ({"partition_spec": {"fields": 3}}, "Cannot parse partition-spec.fields from non-array: 3"),
        ({"write_order": order((9, "identity"))}, "Cannot find source column for sort field"),
        ({"write_order": {"fields": [{}]}}, r"write-order.fields\[0\].transform"),
        ({"properties": {"commit.retry.num-retries": "x"}}, "must have integer value"),
        ({"properties": {"encryption.key-id": "k"}}, r"Invalid properties for v2: \[encryption.key-id\]"),
        ({"properties": {"a": 1}}, "properties.a"),
    ],
)
def test_a_table_that_cannot_be_is_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        make(**more)


def test_a_schema_without_end_is_refused() -> None:
    kind: Any = "int"
    for _ in range(400):
        kind = {"type": "list", "element-id": 1, "element": kind, "element-required": True}
    with pytest.raises(InvalidMetadata, match="nested deeper"):
        make(schema(column(1, "a", kind)))


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_written_can_be_read_by_pyiceberg(version: int) -> None:
    made = make(
        partition_spec=spec(("id", 1, "identity")),
        write_order=order((3, "truncate[4]")),
        properties={"format-version": str(version)},
    )
    sequence = 0 if version == 1 else 1
    changed = change(made, SET_OWNER, add(1, sequence), point("main", 1, more={"max-ref-age-ms": 5}))
    read = TableMetadataUtil.parse_obj(changed)
    assert read.current_snapshot_id == 1
    assert read.spec().fields[0].source_id == 1
    assert read.properties["owner"] == "me"
    assert read.metadata_log[0].metadata_file == BASE_FILE


def test_a_commit_logs_the_file_that_it_replaces() -> None:
    changed = change(table(), SET_OWNER)
    assert changed["last-updated-ms"] == LATER_MS
    assert changed["metadata-log"] == [{"timestamp-ms": CREATED_MS, "metadata-file": BASE_FILE}]


def test_the_log_keeps_as_many_files_as_the_table_wants() -> None:
    base = table()
    base["metadata-log"] = [{"timestamp-ms": CREATED_MS, "metadata-file": f"{at}"} for at in range(5)]
    limit = {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "3"}}
    assert [entry["metadata-file"] for entry in change(base, limit)["metadata-log"]] == ["3", "4", BASE_FILE]


def test_a_size_of_the_log_that_is_no_number_is_refused() -> None:
    limit = {"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "many"}}
    with pytest.raises(InvalidMetadata, match="previous-versions-max must have integer value"):
        change(table(), limit)


def test_a_clock_that_goes_back_does_not_take_the_table_with_it() -> None:
    assert change(table(), SET_OWNER, now_ms=CREATED_MS - 10**9)["last-updated-ms"] == CREATED_MS


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "set-properties", "updates": {}}],
        [{"action": "remove-properties", "removals": []}],
        [{"action": "add-schema", "schema": SCHEMA}, {"action": "set-current-schema", "schema-id": -1}],
        [{"action": "add-spec", "spec": spec()}, {"action": "set-default-spec", "spec-id": -1}],
        [
            {"action": "add-sort-order", "sort-order": order()},
            {"action": "set-default-sort-order", "sort-order-id": 0},
        ],
        [{"action": "remove-snapshots", "snapshot-ids": [9]}],
        [{"action": "remove-snapshot-ref", "ref-name": "gone"}],
        [{"action": "remove-statistics", "snapshot-id": 9}],
        [{"action": "remove-partition-statistics", "snapshot-id": 9}],
        [{"action": "remove-partition-specs", "spec-ids": [9]}],
        [{"action": "remove-schemas", "schema-ids": [9]}],
        [{"action": "remove-encryption-key", "key-id": "gone"}],
        [{"action": "set-location", "location": "file:///lake/t/"}],
        [{"action": "assign-uuid", "uuid": str(TABLE_UUID).upper()}],
        [{"action": "upgrade-format-version", "format-version": 2}],
    ],
)
def test_updates_that_change_nothing_give_the_base_itself(updates: list[Document]) -> None:
    base = table()
    assert change(base, *updates) is base


def test_the_base_is_never_written_to() -> None:
    base = written(3)
    before = deepcopy(base)
    change(
        base,
        SET_OWNER,
        add(9, 9, **{"parent-snapshot-id": 3}),
        point("main", 9),
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "upgrade-format-version", "format-version": 3},
    )
    assert base == before


def test_what_is_not_understood_stays() -> None:
    base = {**table(), "x-later": {"a": [1]}}
    later = add(1, 1, **{"x-snapshot": [1]})
    added = {
        "action": "add-schema",
        "schema": schema({**column(9, "z", "int"), "x-field": 1}, **{"x-schema": 2}),
    }
    field = {"name": "z", "source-id": 3, "transform": "zorder[2,3]", "field-id": 1000, "x-partition": 3}
    spec_added = {"action": "add-spec", "spec": {"spec-id": 0, "fields": [field], "x-spec": 4}}
    changed = change(base, later, added, spec_added)
    assert changed["x-later"] == {"a": [1]}
    assert changed["snapshots"][0]["x-snapshot"] == [1]
    assert changed["schemas"][1]["x-schema"] == 2
    assert changed["schemas"][1]["fields"][0]["x-field"] == 1
    assert changed["partition-specs"][1] == {"spec-id": 1, "fields": [field], "x-spec": 4}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_commit_can_make_a_table(version: int) -> None:
    made = change(None, *creation(version))
    assert made["format-version"] == version
    assert made["table-uuid"] == str(TABLE_UUID)
    assert made["location"] == "file:///lake/staged"
    assert made["last-updated-ms"] == LATER_MS
    assert (made["default-spec-id"], made["default-sort-order-id"]) == (0, 1)
    assert made["metadata-log"] == []
    check_table(made)


def test_a_commit_that_makes_a_table_may_leave_its_place_and_uuid_to_us() -> None:
    made = change(None, *creation()[2:-1])
    assert made["location"] == "file:///lake/default"
    assert made["format-version"] == 2
    check_table(made)


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [(slice(2, 9), "Cannot find schema"), (slice(4, 6), "Partition specs"), (slice(6, 8), "Sort orders")],
)
def test_a_table_needs_a_schema_a_spec_and_an_order(left_out: slice, problem: str) -> None:
    updates = creation()
    del updates[left_out]
    with pytest.raises(InvalidMetadata, match=problem):
        change(None, *updates)


def test_a_schema_that_the_default_spec_does_not_fit_is_refused() -> None:
    base = make(partition_spec=spec(("id", 1, "identity")))
    smaller = {"action": "add-schema", "schema": schema(column(3, "name", "string"))}
    with pytest.raises(InvalidMetadata, match=r"Cannot find source column .*: 1000: id: identity\(1\)"):
        change(base, smaller, {"action": "set-current-schema", "schema-id": -1})


def test_files_that_fell_out_of_the_log_are_dropped_if_wanted() -> None:
    base = table(properties={"write.metadata.previous-versions-max": "1"})
    base["metadata-log"] = [{"timestamp-ms": CREATED_MS, "metadata-file": "old"}]
    assert expired_metadata_files(base, change(base, SET_OWNER)) == ()
    wanted = {"action": "set-properties", "updates": {"write.metadata.delete-after-commit.enabled": "TRUE"}}
    assert expired_metadata_files(base, change(base, wanted)) == ["old"]


def test_only_snapshots_that_are_pointed_at_are_served_with_refs() -> None:
    base = change(written(3), point("old", 1, "tag"))
    served = refs_only(base)
    assert [kept["snapshot-id"] for kept in served["snapshots"]] == [1, 3]
    assert {**served, "snapshots": base["snapshots"]} == base


def test_the_current_snapshot_is_main_when_there_are_no_refs() -> None:
    base = written(2)
    del base["refs"]
    assert [kept["snapshot-id"] for kept in refs_only(base)["snapshots"]] == [2]


def test_what_a_commit_does_not_change_is_not_copied() -> None:
    """So that a long history costs nothing."""
    base = {**table(), "snapshots": [snapshot(number, number) for number in range(1000)]}
    changed = change(base, SET_OWNER)
    assert changed["properties"] != base["properties"]
    for now, before in zip(changed["snapshots"], base["snapshots"], strict=True):
        assert now is before


OLD = oldest()
UNREAD = {"last-sequence-number": 0, "next-row-id": 0, "default-spec-id": 0, "last-partition-id": 1000}
FULL = change(written(3), point("v1", 1, "tag"), {"action": "upgrade-format-version", "format-version": 3})


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_we_write_we_can_read(version: int) -> None:
    check_table(table(version))


def test_a_table_with_a_history_is_accepted() -> None:
    check_table(change(written(3), point("v1", 1, "tag")))


def test_what_is_not_understood_is_accepted() -> None:
    check_table({**table(), "x-later": {"deep": [[[]]]}})


@pytest.mark.parametrize(
    "missing",
    [
        "format-version",
        "table-uuid",
        "location",
        "last-sequence-number",
        "last-updated-ms",
        "last-column-id",
        "current-schema-id",
        "schemas",
        "default-spec-id",
        "partition-specs",
        "last-partition-id",
        "default-sort-order-id",
        "sort-orders",
    ],
)
def test_a_field_that_has_to_be_there_is_missed(missing: str) -> None:
    broken = {key: value for key, value in table().items() if key != missing}
    with pytest.raises(InvalidMetadata, match=missing):
        check_table(broken)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ({"format-version": 4}, "Cannot read unsupported version 4"),
        ({"table-uuid": "x"}, "metadata.table-uuid"),
        ({"current-schema-id": 7}, "schema-id=7"),
        ({"default-spec-id": 7}, "spec-id=7"),
        ({"default-sort-order-id": 7}, "order-id=7"),
        ({"schemas": [{}]}, r"metadata.schemas\[0\].fields"),
        ({"properties": {"a": None}}, "metadata.properties.a"),
        ({"refs": {"main": {"snapshot-id": 1}}}, "metadata.refs.main.type"),
        ({"refs": {"b": {"snapshot-id": 9, "type": "tag"}}}, "reference b does not exist"),
        ({"current-snapshot-id": 1}, r"does not match main branch \(1 != 2\)"),
        ({"current-snapshot-id": None}, "Current snapshot is not set, but main branch exists"),
        ({"last-sequence-number": 1}, "sequence number 2 greater than last sequence number 1"),
        ({"snapshot-log": [{"snapshot-id": 1}]}, r"metadata.snapshot-log\[0\].timestamp-ms"),
        ({"metadata-log": [{"timestamp-ms": 1}]}, r"metadata.metadata-log\[0\].metadata-file"),
        ({"last-updated-ms": 5}, "Invalid update timestamp 5"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(broken: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMetadata, match=problem):
        check_table({**written(2), **broken})


def test_ids_are_unique() -> None:
    base = written(2)
    for key in ("schemas", "partition-specs", "sort-orders", "snapshots"):
        with pytest.raises(InvalidMetadata, match="unique"):
            check_table({**base, key: base[key] * 2})


@settings(max_examples=60, deadline=None)
@given(broken=mutations(FULL) | mutations({**OLD, **UNREAD}) | mutations(table(1)))
def test_a_document_with_one_thing_wrong_is_accepted_or_refused(broken: Any) -> None:
    with suppress(TidemillError):
        check_table(broken)
        change(broken, {"action": "upgrade-format-version", "format-version": 3})
        change(broken, {"action": "set-properties", "updates": {"a": "b"}}, add(99, 99), point("main", 99))


@pytest.mark.parametrize("document", [[], None, "table", 3])
def test_what_is_no_object_is_no_table(document: Any) -> None:
    with pytest.raises(InvalidMetadata, match="non-object"):
        check_table(document)
