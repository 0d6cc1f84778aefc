"""Types of columns; their default values against what Iceberg's own library reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.iceberg.metadata.documents import change, column, schema, table
from tidemill.iceberg.errors import InvalidMetadata
from tidemill.iceberg.metadata.schemas import get_columns
from tidemill.iceberg.metadata.types import (
    Column,
    can_transform,
    canonical_transform,
    check_transform,
    get_sources,
    with_fresh_sources,
)

NESTED = {"type": "list", "element-id": 9, "element": "int", "element-required": True}


def with_default(kind: Any, value: Any, key: str = "initial-default") -> dict[str, Any]:
    return schema({**column(1, "a", kind), key: value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 5.0),
        ("double", 1e300),
        ("string", ""),
        ("binary", "00fF"),
        ("fixed[2]", "00FF"),
        ("decimal(9, 2)", "-14.20"),
        ("decimal(9,0)", "14"),
        ("decimal(9,2)", "1425E-2"),
        ("uuid", "F79C3E09-677c-4bbd-a479-3f349cb785e7"),
        ("date", "2020-02-29"),
        ("time", "10:11"),
        ("time", "10:11:12.123456789"),
        ("timestamp", "2020-01-01T10:11:12.5"),
        ("timestamptz", "2020-01-01T10:11:12+00:00"),
        ("timestamptz_ns", "2020-01-01T10:11:12.123456789Z"),
        (NESTED, None),
    ],
)
def test_a_value_of_the_type_is_a_default(kind: Any, value: Any) -> None:
    assert 1 in get_columns(with_default(kind, value), "schema")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", 1),
        ("int", True),
        ("int", 2**31),
        ("long", 5.0),
        ("float", 5),
        ("double", "1.5"),
        ("string", 5),
        ("binary", "0"),
        ("binary", "zz"),
        ("fixed[2]", "00"),
        ("decimal(9,2)", "14.2"),
        ("decimal(9,2)", 14.25),
        ("decimal(9,2)", "x"),
        ("decimal(9,2)", "NaN"),
        ("decimal(9,2)", "1_0.00"),
        ("decimal(9,2)", " 1.00"),
        ("uuid", "f79c3e09677c4bbda4793f349cb785e7"),
        ("date", "2020-02-30"),
        ("date", "20200101"),
        ("time", "25:00"),
        ("time", "10"),
        ("timestamp", "2020-01-01"),
        ("timestamp", "2020-01-01T10:11:12Z"),
        ("timestamptz", "2020-01-01T10:11:12+01:00"),
        ("timestamptz", "2020-01-01T10:11:12"),
    ],
)
@pytest.mark.parametrize("key", ["initial-default", "write-default"])
def test_another_value_is_none(kind: str, value: Any, key: str) -> None:
    with pytest.raises(InvalidMetadata, match=rf"schema\.fields\[0\]\.{key}"):
        get_columns(with_default(kind, value, key), "schema")


@pytest.mark.parametrize("kind", [NESTED, "variant", "unknown", "geometry"])
def test_there_are_types_without_defaults(kind: Any) -> None:
    with pytest.raises(InvalidMetadata, match="must be null"):
        get_columns(with_default(kind, 5), "schema")


def test_a_default_that_is_null_is_not_kept() -> None:
    """Iceberg's library could not read the table any more."""
    added = schema({**column(1, "a", "int"), "initial-default": None, "write-default": None, "doc": None})
    changed = change(table(3), {"action": "add-schema", "schema": added})
    assert changed["schemas"][-1]["fields"] == [column(1, "a", "int")]


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
