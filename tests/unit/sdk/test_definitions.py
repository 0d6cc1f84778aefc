"""Definitions of views, and what is sent for them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pytest

from tidemill.catalog.model.functions import decode_base64, decode_envelope, decode_schema
from tidemill.sdk.definitions import QueryDefinition, quoted
from tidemill.sdk.functions import chunker, udf

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
