"""Places of tables in every way callers write them."""

from __future__ import annotations

import pytest

from tidemill.catalog.locations import is_in_table_directory, normalized_location
from tidemill.errors import InvalidInput


@pytest.mark.parametrize(
    ("raw", "settled"),
    [
        ("a", "/w/a"),
        ("a/b/", "/w/a/b"),
        ("/w/a", "/w/a"),
        ("//w///a/", "/w/a"),
        ("file:///w/a", "/w/a"),
        ("file://localhost/w/a", "/w/a"),
        ("file:/w/a%20b", "/w/a b"),
        ("file://host/w/a", "file://host/w/a"),
        ("/w/a%20b", "/w/a%20b"),
        ("S3://Bucket//a", "s3://Bucket/a"),
        ("a:b", "/w/a:b"),
    ],
)
def test_a_place_has_one_spelling(raw: str, settled: str) -> None:
    assert normalized_location(raw, "/w") == settled


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "/",
        "//",
        ".",
        "..",
        "a/../b",
        "a/./b",
        "file:///a/%2e%2e/b",
        "a\0",
        "a\nb",
        "x" * 2049,
        "/" + "x" * 256,
    ],
)
def test_what_is_no_place_is_refused(raw: str) -> None:
    with pytest.raises(InvalidInput, match=r"^location: "):
        normalized_location(raw, "/w")


@pytest.mark.parametrize(
    ("location", "lies"), [("/w/a.lance", False), ("/w/a.lance/b", True), ("/w/a/b.lance/c/d", True)]
)
def test_a_directory_named_like_a_table_is_one(location: str, lies: bool) -> None:
    assert is_in_table_directory(location, "/w") is lies
