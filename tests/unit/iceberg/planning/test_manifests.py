"""Delete files apply by sequence number, partition and path."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from tests.unit.iceberg.planning.lakes import BY_DAY, UNPARTITIONED, data_file, entry
from tidemill.iceberg.planning.manifests import PATH_FIELD_ID, DeleteFiles

ONE_DAY, OTHER_DAY = Record(19000), Record(19001)


def positions(path: str, **fields: Any) -> DataFile:
    return data_file(path, content=DataFileContent.POSITION_DELETES, **fields)


def equality(path: str, **fields: Any) -> DataFile:
    return data_file(path, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1], **fields)


def bounds(lower: str, upper: str) -> dict[str, dict[int, bytes]]:
    return {
        "lower_bounds": {PATH_FIELD_ID: lower.encode()},
        "upper_bounds": {PATH_FIELD_ID: upper.encode()},
    }


def applied(*deletes: tuple[DataFile, int], to: DataFile, at: int) -> list[str]:
    found = DeleteFiles({0: BY_DAY, 1: UNPARTITIONED})
    for file, number in deletes:
        found.add(entry(file, number))
    return [file.file_path for file in found.applicable_to(entry(to, at))]


@pytest.mark.parametrize(("number", "expected"), [(4, []), (5, ["d"]), (6, ["d"])])
def test_position_deletes_apply_to_what_is_as_old_or_older(number: int, expected: list[str]) -> None:
    assert applied((positions("d"), number), to=data_file("a"), at=5) == expected


@pytest.mark.parametrize(("number", "expected"), [(4, []), (5, []), (6, ["d"])])
def test_equality_deletes_apply_to_what_is_older(number: int, expected: list[str]) -> None:
    assert applied((equality("d"), number), to=data_file("a"), at=5) == expected


@pytest.mark.parametrize("make", [positions, equality])
def test_deletes_of_a_partition_apply_in_it_alone(make: Any) -> None:
    delete = make("d", partition=ONE_DAY)
    assert applied((delete, 2), to=data_file("a", partition=ONE_DAY), at=1) == ["d"]
    assert applied((delete, 2), to=data_file("a", partition=OTHER_DAY), at=1) == []


def test_equality_deletes_without_partitions_apply_everywhere() -> None:
    delete = equality("d")
    delete.spec_id = 1
    assert applied((delete, 2), to=data_file("a", partition=ONE_DAY), at=1) == ["d"]


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        (bounds("a", "a"), True),
        (bounds("b", "b"), False),
        (bounds("A", "z"), True),
        (bounds("b", "z"), False),
        ({"referenced_data_file": "a"}, True),
        ({"referenced_data_file": "b"}, False),
        ({}, True),
    ],
)
def test_position_deletes_apply_to_the_paths_they_may_name(fields: dict[str, Any], applies: bool) -> None:
    assert (applied((positions("d", **fields), 2), to=data_file("a"), at=1) == ["d"]) is applies


def test_a_deletion_vector_stands_for_all_position_deletes() -> None:
    vector = positions("v", file_format=FileFormat.PUFFIN, referenced_data_file="a", content_offset=4)
    found = applied((positions("p"), 2), (vector, 3), (equality("e"), 3), to=data_file("a"), at=1)
    assert found == ["e", "v"]


def test_vectors_in_one_file_are_told_apart() -> None:
    vectors = [
        positions("v", file_format=FileFormat.PUFFIN, referenced_data_file=path, content_offset=offset)
        for path, offset in (("a", 4), ("b", 50))
    ]
    found = DeleteFiles({0: UNPARTITIONED})
    for vector in vectors:
        found.add(entry(vector, 2))
    assert [file is vectors[1] for file in found.applicable_to(entry(data_file("b")))] == [True]
