from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.iceberg.metadata.documents import add, change, mutations, oldest, point, table, written
from tidemill.errors import TidemillError
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.table_documents import check_table

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
