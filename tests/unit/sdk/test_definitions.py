"""Definitions of views, and what is sent for them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tidemill.catalog.model.functions import decode_base64, decode_envelope, decode_schema
from tidemill.sdk.definitions import QueryDefinition, SqlDefinition, bind, quoted
from tidemill.sdk.functions import chunker, udf
from tidemill.sdk.table_functions import udtf

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


class FakeSource:
    """A table whose every expression is an integer."""

    levels = ("library", "docs")

    def projected_schema(self, columns: Mapping[str, str] | None) -> pa.Schema:
        return SCHEMA if columns is None else pa.schema([(name, pa.int64()) for name in columns])


class Passage(NamedTuple):
    start: int
    passage: str


@chunker
def passages(text: str) -> Iterator[Passage]:
    yield Passage(0, text)


@udf
def size(text: str) -> int:
    return len(text)


@udf
class Scaled:
    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def __call__(self, number: float) -> float:
        return number * self.factor


@udtf(inputs=["text"])
def first(source: object) -> Iterator[Passage]:
    yield Passage(0, "")


DOCS = QueryDefinition(FakeSource())


def test_a_query_view_has_the_projected_columns() -> None:
    request = DOCS.select("id", loud="upper(text)").where("id > 1").where("id < 9").request()
    assert json.loads(request["source_query"]) == {
        "format": "tidemill.query/1",
        "source": ["library", "docs"],
        "columns": {"id": "id", "loud": "upper(text)"},
        "filter": "(id > 1) AND (id < 9)",
    }
    output = decode_schema(request["output_schema"], "output_schema")
    assert output.names == ["__source_row_id", "id", "loud"]
    assert output.field("__source_row_id") == pa.field("__source_row_id", pa.int64(), nullable=False)
    assert (request["kind"], request["udtf_spec"]) == ("query", None)


def test_a_view_without_selection_has_all_columns() -> None:
    assert DOCS.where("id > 1").output_schema().names == ["__source_row_id", "id", "text"]


def test_a_chunker_view_has_its_keys_then_kept_then_made_columns() -> None:
    output = DOCS.select("id").chunk(passages).output_schema()
    assert output.names == ["__source_row_id", "__child_index", "id", "start", "passage"]
    assert output.field("__child_index") == pa.field("__child_index", pa.int32(), nullable=False)
    assert DOCS.chunk(passages).output_schema().names == output.names[:2] + output.names[3:]


def test_a_chunker_travels_in_its_envelope() -> None:
    spec = DOCS.chunk(passages, inputs=["body"]).request()["udtf_spec"]
    assert decode_envelope(decode_base64(spec["udtf"], "udtf"), "udtf") == passages.function
    assert spec["udtf_sha"] == hashlib.sha256(spec["udtf"].encode()).hexdigest()
    assert (spec["udtf_version"], spec["input_columns"]) == (passages.function.digest, ["body"])
    assert base64.b64decode(spec["udtf"])


def test_a_column_cannot_be_kept_and_made() -> None:
    with pytest.raises(ValueError, match="passages yields start, which select"):
        DOCS.select("start").chunk(passages).output_schema()


def test_only_a_chunker_makes_rows() -> None:
    @udf
    def words(text: str) -> int:
        return 0

    with pytest.raises(TypeError, match="words makes one value per row"):
        DOCS.chunk(words)


def test_inputs_have_to_fit() -> None:
    with pytest.raises(ValueError, match="passages takes text; inputs= names 2"):
        DOCS.chunk(passages, inputs=["a", "b"])


def test_names_that_are_no_identifiers_are_quoted() -> None:
    assert [quoted(name) for name in ("id", "Title", "a b", "a`b")] == ["id", "`Title`", "`a b`", "`a``b`"]


def test_a_window_of_rows_is_sent_only_where_there_is_one() -> None:
    query = json.loads(DOCS.where("id > 1").limit(10).offset(0).request()["source_query"])
    assert (query["limit"], query["offset"], query["columns"]) == (10, 0, None)


@pytest.mark.parametrize("rows", [-1, 1.5, True, None])
def test_a_window_is_a_number_of_rows(rows: Any) -> None:
    with pytest.raises(ValueError, match="offset is a number of rows"):
        DOCS.offset(rows)


def test_functions_make_columns_at_their_places() -> None:
    definition = DOCS.select("id", size=size, loud="upper(text)", more=bind(Scaled(2.0), "id"))
    query = json.loads(definition.request()["source_query"])
    assert query["columns"] == {"id": "id", "loud": "upper(text)"}
    [sized, scaled] = query["functions"]
    assert (sized["name"], sized["index"], sized["inputs"]) == ("size", 1, ["text"])
    assert (scaled["name"], scaled["index"], scaled["inputs"]) == ("more", 3, ["id"])
    sent = decode_envelope(decode_base64(scaled["envelope"], "envelope"), "envelope")
    assert sent == Scaled(2.0).function  # type: ignore[attr-defined]  # the decorator's
    output = definition.output_schema()
    assert output.names == ["__source_row_id", "id", "size", "loud", "more"]
    assert output.field("more").type == pa.float64()


def test_functions_alone_make_a_view() -> None:
    assert DOCS.select(size=size).output_schema().names == ["__source_row_id", "size"]


def test_a_column_that_nothing_makes_is_refused() -> None:
    with pytest.raises(TypeError, match="size= is an SQL expression or a function: 3 is not a function"):
        DOCS.select(size=3)
    with pytest.raises(TypeError, match=r"use table.chunk\(passages\) for a view"):
        DOCS.select(size=passages)
    with pytest.raises(TypeError, match=r"use first.over\(table\) for a view"):
        DOCS.select(size=first)


def test_functions_of_rows_read_no_columns_that_functions_make() -> None:
    with pytest.raises(ValueError, match="passages reads columns of the table, and size would be made by"):
        DOCS.select("id", size=size).chunk(passages)
    with pytest.raises(ValueError, match="first reads columns of the table"):
        first.over(DOCS.select(size=size))


def test_a_table_function_is_no_chunker() -> None:
    with pytest.raises(TypeError, match=r"first reads rows itself; write first.over\(table\)"):
        DOCS.chunk(first)


def test_a_table_function_travels_with_how_its_rows_are_parted() -> None:
    request = first.over(DOCS.where("id > 1"), partition_by="id").request()
    spec = request["udtf_spec"]
    assert (request["kind"], spec["kind"]) == ("udtf", "udtf")
    assert decode_envelope(decode_base64(spec["udtf"], "udtf"), "udtf") == first.function
    assert (spec["input_columns"], spec["partition_by"]) == (["text"], "id")
    assert spec["partition_by_indexed_column"] is None
    assert decode_schema(request["output_schema"], "output_schema").names == ["start", "passage"]
    assert json.loads(request["source_query"])["filter"] == "id > 1"


def test_rows_may_be_parted_by_an_index() -> None:
    spec = first.over(FakeSource(), partition_by_index="vector").request()["udtf_spec"]
    assert (spec["partition_by"], spec["partition_by_indexed_column"]) == (None, "vector")


def test_sql_is_sent_as_it_is() -> None:
    request = SqlDefinition("SELECT 1").request()
    assert request == {"kind": "query", "source_query": "SELECT 1", "udtf_spec": None}


def test_sql_is_not_empty() -> None:
    with pytest.raises(ValueError, match="the SQL query is empty"):
        SqlDefinition(" ")
