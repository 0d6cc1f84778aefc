from __future__ import annotations

import pytest

from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.schemas import Column
from tidemill.iceberg.metadata.transforms import (
    can_transform,
    canonical_transform,
    check_transform,
    get_sources,
    with_fresh_sources,
)


@pytest.mark.parametrize("name", ["identity", "bucket[16]", "Truncate[4]", "void", "zorder[2,3]", "later"])
def test_known_and_later_transforms_are_accepted(name: str) -> None:
    check_transform({"transform": name}, "field")


@pytest.mark.parametrize(
    "name", ["", "bucket[", "a b", "bucket[0]", "truncate[99999999999999999999999]", 7, None]
)
def test_what_is_no_transform_is_refused(name: object) -> None:
    with pytest.raises(InvalidMetadata):
        check_transform({"transform": name}, "field")


def test_only_names_that_are_known_lose_their_case() -> None:
    assert [canonical_transform(name) for name in ("Day", "BUCKET[4]", "Later[4]")] == [
        "day",
        "bucket[4]",
        "Later[4]",
    ]


@pytest.mark.parametrize(
    ("transform", "kind", "possible"),
    [
        ("identity", "uuid", True),
        ("identity", "geometry", False),
        ("day", "date", True),
        ("hour", "date", False),
        ("hour", "timestamptz_ns", True),
        ("bucket[4]", "decimal(9, 2)", True),
        ("bucket[4]", "double", False),
        ("truncate[4]", "binary", True),
        ("truncate[4]", "date", False),
        ("later", "boolean", True),
    ],
)
def test_transforms_have_types_that_they_are_for(transform: str, kind: str, possible: bool) -> None:
    assert can_transform(transform, Column(1, "c", kind, is_required=False, parent=None)) is possible


def test_a_field_is_made_from_one_column_or_many() -> None:
    assert get_sources({"source-id": 3}, "field") == [3]
    assert get_sources({"source-ids": [3, 4]}, "field") == [3, 4]
    assert with_fresh_sources({"source-ids": [3, 4], "x": 1}, {3: 1, 4: 2}, "field") == {
        "source-ids": [1, 2],
        "x": 1,
    }
    with pytest.raises(InvalidMetadata, match="must not be empty"):
        get_sources({"source-ids": []}, "field")
