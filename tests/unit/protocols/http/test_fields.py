"""What bodies and query strings are taken for."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import QueryParams

from tidemill.catalog.model.identifiers import CreateMode
from tidemill.catalog.model.json_values import read_choice
from tidemill.errors import InvalidInput
from tidemill.protocols.http.fields import MAX_JSON_DEPTH, Fields, query_flag, query_integer, read_object


@pytest.mark.parametrize("body", [b"", b"  \n", b"null", b"{}"])
def test_nothing_is_an_empty_object(body: bytes) -> None:
    assert not read_object(body).has("anything")


@pytest.mark.parametrize("body", [b"{", b"\xff", b"{'a': 1}", b"[" * 100_000])
def test_what_is_not_json_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^body: is not JSON"):
        read_object(body)


@pytest.mark.parametrize("body", [b"[]", b"1", b'"text"', b"true"])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="object"):
        read_object(body)


@pytest.mark.parametrize("value", [True, 1.0, "1", 0, -1, 2**63, [1]])
def test_an_integer_has_to_be_one_and_large_enough(value: Any) -> None:
    with pytest.raises(InvalidInput, match="read_version"):
        Fields({"read_version": value}).integer("read_version", 1)


@pytest.mark.parametrize("value", [True, -0.5, "1", float("inf"), float("nan")])
def test_a_number_has_to_be_finite_and_large_enough(value: Any) -> None:
    with pytest.raises(InvalidInput, match="seconds"):
        Fields({"seconds": value}).number("seconds", 0)


def test_null_is_absent() -> None:
    fields = Fields({"a": None})
    assert fields.text("a") is None
    assert fields.integer("a", 0) is None
    assert fields.flag("a") is None
    assert fields.texts("a") is None


@pytest.mark.parametrize("name", ["ExistOk", "exist_ok", "EXISTOK", "EXIST_OK", "existok", '"ExistOk"'])
def test_choices_come_in_any_case_and_in_quotes(name: str) -> None:
    assert read_choice(CreateMode, name, "mode") is CreateMode.EXIST_OK


def test_an_unknown_choice_is_told_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="Create, ExistOk, Overwrite"):
        read_choice(CreateMode, "Upsert", "mode")


def test_a_nested_field_is_named_with_its_path() -> None:
    (entry,) = Fields({"new_columns": [{"name": 1}]}).objects("new_columns")
    with pytest.raises(InvalidInput, match=r"^new_columns\[0\]\.name"):
        entry.required_text("name")


def test_an_expression_has_a_length_limit() -> None:
    with pytest.raises(InvalidInput, match="8,192"):
        Fields({"where": "x" * 8193}).expression("where")


def test_text_with_a_nul_character_is_refused() -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        Fields({"properties": {"a": "b\0"}}).texts_by_name("properties")


@pytest.mark.parametrize("value", ["x", "1_0", " 1", "1.5", "٣", "9" * 30, "--1", "-"])
def test_a_query_integer_is_plain_digits(value: str) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        query_integer(QueryParams({"limit": value}), "limit")


def test_query_flags_are_read_in_any_case() -> None:
    assert query_flag(QueryParams({"a": "True"}), "a") is True
    assert query_flag(QueryParams({"a": "false"}), "a") is False
    assert query_flag(QueryParams({}), "a") is None
    with pytest.raises(InvalidInput):
        query_flag(QueryParams({"a": "maybe"}), "a")


def deep(levels: int) -> bytes:
    """An object with lists in it, that many levels in all."""
    inner = levels - 1
    return b'{"a": ' + b"[" * inner + b"]" * inner + b"}"


def test_json_is_read_up_to_its_depth() -> None:
    assert read_object(deep(MAX_JSON_DEPTH)).has("a")
    wide = b'{"a": [' + b",".join([b"[1]"] * 1000) + b"]}"
    assert read_object(wide).has("a")


@pytest.mark.parametrize("levels", [MAX_JSON_DEPTH + 1, 200, 1000])
def test_deeper_json_is_refused(levels: int) -> None:
    with pytest.raises(InvalidInput, match=r"^body: is nested"):
        read_object(deep(levels))


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}'])
def test_values_that_json_does_not_have_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^body: is not JSON"):
        read_object(body)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\x00"])
def test_text_that_cannot_be_stored_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(InvalidInput, match="a: contains"):
        Fields({"a": text}).text("a")
    with pytest.raises(InvalidInput, match="a: contains"):
        Fields({"a": {text: "x"}}).texts_by_name("a")


def test_an_integer_beyond_64_bits_is_refused() -> None:
    for number in (b"9223372036854775808", b"18446744073709551616", b"-1"):
        with pytest.raises(InvalidInput, match=r"^n: must be an integer"):
            read_object(b'{"n": ' + number + b"}").integer("n", 0)
    assert read_object(b'{"n": 9223372036854775807}').integer("n", 0) == 2**63 - 1
