"""New values of fields, as Lance takes them: one expression for each column."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.errors import InvalidInput
from tidemill.lance.edits import column_values

IDENT = TableIdent(NamespacePath(), "t")
META = pa.struct(
    [
        pa.field("x", pa.int64()),
        pa.field("a.b", pa.int64()),
        pa.field("deep", pa.struct([pa.field("y", pa.int64()), pa.field("it's", pa.int64())])),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("a b", pa.int64()),
        pa.field("meta", META),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def test_a_part_of_a_column_is_set_by_building_the_rest_again() -> None:
    values = {"id": "id + 1", "meta.`a.b`": "7", "meta.deep.y": "meta.x"}
    assert column_values(IDENT, SCHEMA, values) == {
        "id": "id + 1",
        "meta": (
            "named_struct('x', meta.x, 'a.b', 7, 'deep', "
            "named_struct('y', meta.x, 'it''s', meta.deep.`it's`))"
        ),
    }


def test_quotes_are_no_part_of_a_column() -> None:
    assert column_values(IDENT, SCHEMA, {"`a b`": "1", "id": "2"}) == {"a b": "1", "id": "2"}


@pytest.mark.parametrize(
    "values", [{"meta": "NULL", "meta.x": "1"}, {"meta.x": "1", "meta": "NULL"}, {"id": "1", "`id`": "2"}]
)
def test_a_column_and_its_part_are_not_set_together(values: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="updates"):
        column_values(IDENT, SCHEMA, values)


@pytest.mark.parametrize("path", ["nope", "meta.nope", "id.x", "x", "meta.a.b"])
def test_an_unknown_field_is_named(path: str) -> None:
    with pytest.raises(TableColumnNotFound, match=path):
        column_values(IDENT, SCHEMA, {path: "1"})


@pytest.mark.parametrize("path", ["tags.item", "`open", "meta.", ""])
def test_what_cannot_be_set_is_refused(path: str) -> None:
    with pytest.raises((InvalidInput, TableColumnNotFound)):
        column_values(IDENT, SCHEMA, {path: "1"})


@pytest.mark.parametrize("expression", ["`a b` + 1", "abs(ID)", "meta.id + id"])
def test_a_column_is_not_made_of_another_that_is_set_too(expression: str) -> None:
    """Whether it would be the old or the new value is not known."""
    with pytest.raises(InvalidInput, match="is updated as well"):
        column_values(IDENT, SCHEMA, {"meta.x": expression, "id": "1", "`a b`": "2"})


def test_a_column_is_made_of_itself_and_of_what_only_looks_like_another() -> None:
    values = {"id": "id + 1 + meta.`a b` + `a b`(1)", "`a b`": "'id'"}
    assert column_values(IDENT, SCHEMA, values) == {"id": values["id"], "a b": "'id'"}
