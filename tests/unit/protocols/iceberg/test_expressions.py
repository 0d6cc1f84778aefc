"""Filters in the forms of old and new clients."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression

from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.iceberg.expressions import filter_json, read_filter

EQUAL = {"type": "eq", "term": "a", "value": 3}
BUCKET = {"type": "transform", "transform": "bucket[16]", "term": "a"}
IN_BUCKET = {"type": "eq", "term": BUCKET, "value": 3}


def named(name: str) -> dict[str, str]:
    return {"type": "reference", "name": name}


VALUES = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text())
NAMES = st.sampled_from(["a", "b.c", "d e"])
PREDICATES = st.one_of(
    st.builds(
        lambda kind, term: {"type": kind, "term": term}, st.sampled_from(["is-null", "not-nan"]), NAMES
    ),
    st.builds(
        lambda kind, term, value: {"type": kind, "term": term, "value": value},
        st.sampled_from(["lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq"]),
        NAMES,
        VALUES,
    ),
    st.builds(
        lambda kind, term, values: {"type": kind, "term": term, "values": values},
        st.sampled_from(["in", "not-in"]),
        NAMES,
        st.lists(st.integers(), min_size=2, max_size=4, unique=True).map(sorted),
    ),
    st.builds(
        lambda kind, value: {"type": kind, "term": "a", "value": value}, st.just("starts-with"), st.text()
    ),
)
FILTERS: st.SearchStrategy[Any] = st.recursive(
    PREDICATES,
    lambda inner: st.one_of(
        st.builds(lambda child: {"type": "not", "child": child}, inner),
        st.builds(
            lambda kind, left, right: {"type": kind, "left": left, "right": right},
            st.sampled_from(["and", "or"]),
            inner,
            inner,
        ),
    ),
    max_leaves=5,
)


@given(FILTERS)
def test_what_old_clients_send_is_what_they_are_told(raw: dict[str, Any]) -> None:
    found = read_filter(raw)
    assert (found.json, found.is_exact) == (raw, True)
    if "not" not in str(raw):
        assert filter_json(found.expression) == raw


@given(FILTERS)
def test_pyiceberg_reads_what_we_tell(raw: dict[str, Any]) -> None:
    expression = read_filter(raw).expression
    model: TypeAdapter[BooleanExpression] = TypeAdapter(BooleanExpression)
    assert model.validate_python(filter_json(expression)) == expression


@pytest.mark.parametrize(
    ("raw", "old"),
    [
        ({"type": "eq", "left": named("a"), "right": 3}, EQUAL),
        ({"type": "eq", "left": 3, "right": named("a")}, EQUAL),
        ({"type": "lt", "left": 3, "right": named("a")}, {"type": "gt", "term": "a", "value": 3}),
        ({"type": "EQ", "term": {"type": "reference", "term": "a"}, "value": 3}, EQUAL),
        ({"type": "eq", "left": named("a"), "right": {"type": "literal", "value": 3}}, EQUAL),
        (
            {"type": "eq", "left": named("a"), "right": {"type": "literal", "value": 3, "data-type": "int"}},
            EQUAL,
        ),
        ({"type": "is-null", "child": named("a")}, {"type": "is-null", "term": "a"}),
        (
            {"type": "in", "child": named("a"), "values": [1, 2]},
            {"type": "in", "term": "a", "values": [1, 2]},
        ),
        (
            {
                "type": "in",
                "child": named("a"),
                "values": {"type": "literals", "values": ["0A", "0B"], "data-type": "binary"},
            },
            {"type": "in", "term": "a", "values": ["0A", "0B"]},
        ),
        ({"type": "not", "child": {"type": "true"}}, {"type": "not", "child": True}),
        ({"type": "literal", "value": False}, False),
        (
            {
                "type": "eq",
                "left": {"type": "apply", "function": "bucket", "arguments": [16, named("a")]},
                "right": 3,
            },
            IN_BUCKET,
        ),
        (
            {
                "type": "eq",
                "left": {
                    "type": "apply",
                    "function": {"catalog": "iceberg_functions", "identifier": ["identity"]},
                    "arguments": [named("a")],
                },
                "right": 3,
            },
            EQUAL,
        ),
    ],
)
def test_new_forms_mean_the_same_as_old_ones(raw: Any, old: Any) -> None:
    assert read_filter(raw).json == old


def test_bytes_are_compared_as_bytes() -> None:
    value = {"type": "literal", "value": "0aFF", "data-type": "fixed[2]"}
    assert filter_json(read_filter({"type": "eq", "term": "a", "value": value}).expression) == {
        "type": "eq",
        "term": "a",
        "value": "0AFF",
    }


@pytest.mark.parametrize(
    ("raw", "planned"),
    [
        (IN_BUCKET, True),
        ({"type": "not", "child": IN_BUCKET}, True),
        ({"type": "and", "left": IN_BUCKET, "right": EQUAL}, EQUAL),
        ({"type": "or", "left": IN_BUCKET, "right": EQUAL}, True),
        ({"type": "not", "child": {"type": "and", "left": IN_BUCKET, "right": EQUAL}}, True),
        ({"type": "and", "left": EQUAL, "right": {"type": "not", "child": IN_BUCKET}}, EQUAL),
    ],
)
def test_transformed_fields_decide_nothing_and_stay_in_what_clients_are_told(raw: Any, planned: Any) -> None:
    found = read_filter(raw)
    assert (filter_json(found.expression), found.json, found.is_exact) == (planned, raw, False)


def test_constants_are_bare() -> None:
    assert (read_filter(True).expression, read_filter(False).expression) == (AlwaysTrue(), AlwaysFalse())


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (None, "filter: must be true, false or an object with a type"),
        ([], "filter: must be true, false or an object with a type"),
        ({"type": 3}, "filter: must be true, false or an object with a type"),
        ({"type": "like", "term": "a", "value": "x"}, "filter.type: 'like' is not an Iceberg predicate"),
        ({"type": "eq", "term": "a"}, "filter: must have either 'right' or 'value'"),
        ({"type": "eq", "term": "a", "value": None}, "filter: must have either 'right' or 'value'"),
        ({"type": "eq", "term": "a", "left": named("a"), "value": 1}, "filter: must have either 'left' or"),
        ({"type": "eq", "term": "a", "value": {"b": 1}}, "filter: {'b': 1} is not a value"),
        ({"type": "eq", "term": "", "value": 1}, "filter: '' is not the name of a field"),
        ({"type": "eq", "term": 7, "value": 1}, "filter: 7 is not a field"),
        ({"type": "in", "term": "a", "values": 3}, "filter.values: must be a list"),
        ({"type": "in", "term": "a", "values": [None]}, "filter: None is not a value"),
        ({"type": "starts-with", "term": "a", "value": 1}, "filter.value: must be a string"),
        ({"type": "starts-with", "left": "x", "right": named("a")}, "filter.left: must be a field"),
        ({"type": "and", "left": True}, "filter.right: must be true, false or"),
        ({"type": "literal", "value": 1}, "filter.value: must be true or false"),
        (
            {"type": "eq", "term": "a", "value": {"type": "literal", "value": "x", "data-type": "binary"}},
            "filter: 'x' is not hexadecimal",
        ),
    ],
)
def test_what_is_no_filter_is_refused(raw: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_filter(raw)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "eq", "left": named("a"), "right": named("b")},
        {"type": "eq", "left": {"type": "reference", "id": 3}, "right": 3},
        {"type": "eq", "term": {"type": "transform", "transform": "hash", "term": "a"}, "value": 3},
        {"type": "eq", "term": {"type": "transform", "transform": "year", "term": BUCKET}, "value": 3},
        {
            "type": "eq",
            "left": {"type": "apply", "function": "lower", "arguments": [named("a")]},
            "right": "x",
        },
        {"type": "eq", "left": {"type": "apply", "function": ["a", "b"], "arguments": []}, "right": "x"},
    ],
)
def test_what_old_clients_have_no_words_for_is_not_supported(raw: Any) -> None:
    with pytest.raises(Unsupported, match=r"^filter: "):
        read_filter(raw)
