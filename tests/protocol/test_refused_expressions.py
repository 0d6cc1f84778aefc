"""Expressions that mean more than they show or would hurt the server: refused wherever they may stand."""

from __future__ import annotations

import httpx
import pytest

from tests.protocol.wire import TableOnWire, check_refusal

EXPRESSIONS = {
    "a line comment": "id = 1 -- and nothing else",
    "a block comment": "id = 1 /* or 2 */",
    "two statements": "id = 1; DROP TABLE t",
    "a chain of operators": "id > " + "+".join(["1"] * 4000),
    "a chain of negations": "NOT " * 1000 + "true",
    "a chain of comparisons": "id" + "<1" * 4000,
    "a chain of equalities": "true" + "=true" * 1500,
    "a chain of casts": "id" + "::int" * 1500,
    "a chain of shifts": "id" + "<<1" * 2500,
    "a chain of tests": "id IS NULL" + " IS TRUE" * 900,
    "a chain of memberships": "id" + " IN (id)" * 900,
    "too many bytes": "text = '" + "x" * 9000 + "'",
    "deep parentheses": "(" * 1000 + "id = 1" + ")" * 1000,
    "an open parenthesis": "(id = 1",
    "a parenthesis too many": "id = 1)",
    "an open quote": "text = 'open",
    "a hidden comment": "`'` = 1 -- '",
    "a text in dollars": "text = $$'$$ OR 1=1 -- '",
    "a placeholder": "id = $1",
    "a clause": "id = 1 LIMIT 1",
    "two values": "id = 1 2",
    "a way out": "1=1) OR (1=1",
    "nested chains": "(" * 40 + "true" + ("=true" * 20 + ")") * 40,
    "nothing": "   ",
    "a NUL": "id = 1\x00",
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_a_filter_of_a_query_is_refused(unchanged: TableOnWire, expression: str) -> None:
    check_refusal(unchanged.post("query", {"k": 1, "filter": expression}), 400, 13, "filter")


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_a_predicate_of_a_count_is_refused(unchanged: TableOnWire, expression: str) -> None:
    check_refusal(unchanged.post("count_rows", {"predicate": expression}), 400, 13, "predicate")


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_a_computed_column_of_a_query_is_refused(unchanged: TableOnWire, expression: str) -> None:
    body = {"k": 1, "columns": {"column_aliases": {"a": expression}}}
    check_refusal(unchanged.post("query", body), 400, 13, "columns.a")


@pytest.mark.parametrize("expression", ["nowhere = 1", "id = 'x' + ", "id LIKE 5 6", "SELECT 1", "id"])
def test_a_filter_that_makes_no_sense_is_refused(unchanged: TableOnWire, expression: str) -> None:
    check_refusal(unchanged.post("query", {"k": 1, "filter": expression}), 400, 13)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"k": -1}, "k"),
        ({"k": "ten"}, "k"),
        ({"k": 1.5}, "k"),
        ({"k": True}, "k"),
        ({"k": 1, "offset": -1}, "offset"),
        ({"k": 1, "filter": 5}, "filter"),
        ({"k": 1, "filter": ["id = 1"]}, "filter"),
        ({"k": 1, "columns": 5}, "columns"),
        ({"k": 1, "columns": [1]}, "columns"),
        ({"k": 1, "columns": [""]}, "columns"),
        ({"k": 1, "columns": {"column_names": ["id"], "column_aliases": {"a": "id"}}}, "columns"),
        ({"k": 1, "version": -1}, "version"),
        ({"k": 1, "version": "1"}, "version"),
        ({"k": 1, "vector": "near"}, "vector"),
        ({"k": 1, "vector": ["a"]}, "vector"),
        ({"k": 1, "vector": {"other": [1.0]}}, "vector"),
        ({"k": 1, "vector": [1.0]}, "vector"),
        ({"k": 1, "with_row_id": "yes"}, "with_row_id"),
        ({"k": 1, "prefilter": 1}, "prefilter"),
        ({"k": 1, "nprobes": -1}, "nprobes"),
        ({"k": 1, "distance_type": "manhattan"}, "distance_type"),
        ({"k": 1, "full_text_query": "text"}, "full_text_query"),
    ],
)
def test_a_query_with_a_wrong_value_is_refused_by_field(
    unchanged: TableOnWire, body: dict[str, object], field: str
) -> None:
    check_refusal(unchanged.post("query", body), 400, 13, field)


def test_the_server_is_well_after_all_this(http: httpx.Client, still: TableOnWire) -> None:
    assert http.get("/api/v1/health").json()["status"] == "ok"
    assert still.asked("count_rows", {"predicate": "((id + 1) * 2 > 4) AND text LIKE '%;--%'"}) == 0
