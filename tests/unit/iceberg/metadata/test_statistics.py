from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import change, table
from tidemill.iceberg.errors import InvalidMetadata

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
