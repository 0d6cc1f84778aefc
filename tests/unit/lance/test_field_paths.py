"""Paths of fields: read, written, resolved."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.errors import InvalidInput
from tidemill.lance.field_paths import canonical_path, parse_path, resolve_path

IDENT = TableIdent(NamespacePath(), "t")
SCHEMA = pa.schema(
    [
        pa.field(
            "a", pa.struct([pa.field("b", pa.int64()), pa.field("c.d", pa.struct([("e`f", pa.string())]))])
        ),
        pa.field("dot.ted", pa.int64()),
        pa.field("lists", pa.list_(pa.struct([("t", pa.string())]))),
    ]
)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a`.b", ("a", "b")),
        ("a.`c.d`", ("a", "c.d")),
        ("a.`c.d`.`e``f`", ("a", "c.d", "e`f")),
        ("with space.é", ("with space", "é")),
    ],
)
def test_a_path_is_read(text: str, segments: tuple[str, ...]) -> None:
    assert parse_path(text, "path") == segments
    assert parse_path(canonical_path(segments), "path") == segments


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "``", "`a", "a.`b", "`a`b", "`a``"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^path: "):
        parse_path(text, "path")


@pytest.mark.parametrize(
    ("text", "path", "data_type"),
    [
        ("a.b", "a.b", pa.int64()),
        ("`a`.`b`", "a.b", pa.int64()),
        ("a.`c.d`.`e``f`", "a.`c.d`.`e``f`", pa.string()),
        ("dot.ted", "`dot.ted`", pa.int64()),
        ("lists.item.t", "lists.item.t", pa.string()),
    ],
)
def test_a_path_leads_to_its_field(text: str, path: str, data_type: pa.DataType) -> None:
    found, field = resolve_path(IDENT, SCHEMA, text, "path")
    assert (found, field.type) == (path, data_type)


@pytest.mark.parametrize("text", ["b", "A", "a.x", "a.b.c", "a.c.d", "lists.t"])
def test_a_path_to_nowhere_is_a_missing_column(text: str) -> None:
    with pytest.raises(TableColumnNotFound):
        resolve_path(IDENT, SCHEMA, text, "path")


def test_a_path_may_pass_through_lists_where_that_is_meant() -> None:
    found, field = resolve_path(IDENT, SCHEMA, "lists.t", "path", is_through_lists=True)
    assert (found, field.type) == ("lists.t", pa.string())
