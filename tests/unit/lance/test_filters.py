"""Filters are looked at before Lance's parser is, and what passes can never take the process along."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tidemill.errors import InvalidInput
from tidemill.lance.filters import MAX_FILTER_BYTES, MAX_NESTING, MAX_OPERATORS, check_filter

# Everything here is SQL that Lance takes and people write; the last test hands it to Lance.
LEGAL = [
    "id > 1",
    "id = 1 OR id = 2 AND NOT flag",
    "text = 'a;b -- c' AND (id IN (1, 2, 3))",
    "text = 'it''s' AND text != '/* no comment */'",
    'text = "double -- quoted"',
    "text = 'back\\slash\\'",
    "id IS NULL OR NOT flag",
    "flag IS TRUE AND flag IS NOT FALSE",
    "text IS NOT NULL",
    "`odd name` LIKE '%(%'",
    "`odd name` = 'x' AND `it's; -- odd` = 1",
    "text LIKE '1%' AND text NOT LIKE '%\\_x' AND text ILIKE 'A%'",
    "text LIKE '1' ESCAPE 'x'",
    "id BETWEEN 1 AND 5 AND flag",
    "id NOT BETWEEN 1 AND 5 OR id BETWEEN -3 AND 2",
    "id IN (" + ", ".join(str(number) for number in range(1500)) + ")",
    "id NOT IN (" + ",".join(f"-{number}" for number in range(1500)) + ")",
    "text IN ('a', 'b''c', \"d\")",
    "CAST(id AS double) > 1.5 AND CAST(text AS string) = '1'",
    "id::int > 1",
    "regexp_like(text, '^1.*')",
    "regexp_match(text, '^1.*') IS NOT NULL",
    "starts_with(text, '1') OR contains(text, '2')",
    "array_has(tags, 'x')",
    "array_has_any(tags, ['x', 'y'])",
    "array_contains(tags, 'x')",
    "cardinality(tags) > 1 AND tags[1] = 'x'",
    "born = date '2024-02-29'",
    "seen > timestamp '2024-02-29 00:00:00'",
    "inner.a > 1 AND inner.b = 'x'",
    "inner['a'] > 1",
    "`inner`.`a` > 1",
    "_rowid > 5 AND _rowaddr IS NOT NULL",
    "id == 1",
    "id <> 1 AND id != 2 AND id <= 3 AND id >= 1",
    "id % 2 = 1 AND (id + 1) * 2 - -3 > 5 / 2",
    "-id < - 1",
    "score > -1.5e-3 AND score < .5",
    "lower(text) || upper(text) = '1A'",
    "coalesce(id, 0) = 0 AND nullif(id, 1) IS NULL",
    "date_part('year', born) = 2024",
    "flag",
    "true",
    "NOT (id = 1)",
    "(" * 20 + "id = 1" + ")" * 20,
    " AND ".join(f"id != {number}" for number in range(400)),
    " OR ".join(f"(id > {number} AND text != '{number}')" for number in range(200)),
    "text = 'é – 雪' AND id\n=\t1",
    "xx = 1 AND n = 2 AND e = 3",
]
# SQL that Lance refuses itself, with a better message than ours would be.
LANCES_OWN = [
    "seen > TIMESTAMP '2024-02-29 00:00:00' - INTERVAL '1' day",
    "CASE WHEN id > 1 THEN flag ELSE false END",
    "id IN (SELECT 1)",
    "EXISTS (SELECT 1)",
    "extract(year FROM born) = 2024",
    "seen AT TIME ZONE 'utc' IS NULL",
    "id::double precision > 1",
]
REFUSED = [
    ("", "empty"),
    ("  ", "empty"),
    ("1=1; DROP TABLE t", "';'"),
    ("1=1 -- all", "comments"),
    ("1=1) --", "comments"),
    ("1=1 /* all */", "comments"),
    ("1=1)", "nothing opens"),
    ("1=1) OR (1=1", "nothing opens"),
    ("(id > 1", "nothing closes"),
    ("(id > 1]", "nothing opens"),
    ("`'` = 1 -- '", "comments"),
    ("text = $$'$$ OR 1=1 -- '", "cannot read"),
    ("text = E'\\' -- '", "cannot read"),
    ("text = N'x'", "cannot read"),
    ("text = r'\\' -- '", "cannot read"),
    ("text = u&'x'", "cannot read"),
    ("id = $1", "cannot read"),
    ("id = ?", "cannot read"),
    ("id = :name", "cannot read"),
    ("id = @name", "cannot read"),
    ("id = 1 # all", "cannot read"),
    ("id = 1 \\ 2", "cannot read"),
    ("id = 1\x00", "cannot read"),
    ("{'a': 1} IS NULL", "cannot read"),
    ("id = '\ud800'", "half of a character"),
    ("id = 1 2", "nothing joins"),
    ("text = 'a' 'b'", "nothing joins"),
    ("id = 1 garbage", "nothing joins"),
    ("id = 1 LIMIT 1", "nothing joins"),
    ("id = 1 GROUP BY id", "nothing joins"),
    ("id = 1 UNION SELECT 1", "nothing joins"),
    ("(id = 1) ORDER BY id", "nothing joins"),
    ("flag IS TRUE LIMIT 1", "nothing joins"),
    ("(id = 1) (flag)", "nothing joins"),
    ("(" * (MAX_NESTING + 1) + "id" + ")" * (MAX_NESTING + 1), "nested"),
    ("1" + "+1" * 3600, "operators"),
    ("text = " + " || ".join(["'a'"] * 900), "operators"),
    ("flag" + " IS TRUE" * 349, "operators"),
    ("NOT " * 1000 + "flag", "operators"),
    ("id > " + "interval " * 386 + "'1'", "nothing joins"),
    ("id" + "::int" * 571, "operators"),
    ("flag" + " BETWEEN flag AND flag" * 300, "operators"),
    ("flag" + " IN (flag)" * 571, "operators"),
    ("id > 1" + "+(1)" * 848, "operators"),
    ("(" * 40 + "flag" + (" = flag" * 20 + ")") * 40, "operators"),
    ("(" * 40 + "flag" + (" = flag" * 20 + ", flag)") * 40, "operators"),
    ("text = '" + "a" * 9000 + "'", "longer than"),
    ("text = 'never closed", "never closed"),
    ('text = "never closed', "never closed"),
    ("`never closed", "never closed"),
]


@pytest.mark.parametrize("text", [*LEGAL, *LANCES_OWN])
def test_ordinary_filters_pass(text: str) -> None:
    check_filter(text, "where")


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_dangerous_filters_are_refused_with_the_field_named(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match="where") as refused:
        check_filter(text, "where")
    assert problem in str(refused.value)


def chained(start: str, link: str, end: str = "") -> Callable[[int], str]:
    return lambda count: start + link * count + end


CHAINS: dict[str, Callable[[int], str]] = {
    "sums": chained("id > 1", "+1"),
    "sums of columns": chained("id > id", "+id"),
    "concatenations": chained("text = text", "||text"),
    "equalities": chained("flag", "=flag"),
    "casts": chained("id", "::int", " > 1"),
    "tests": chained("flag", " IS TRUE"),
    "null tests": chained("flag", " IS NULL"),
    "short null tests": chained("flag", " ISNULL"),
    "memberships": chained("flag", " IN (flag)"),
    "ranges": chained("flag", " BETWEEN flag AND flag"),
    "patterns": chained("text", " NOT LIKE text"),
    "intervals": chained("id > ", "interval ", "'1'"),
    "negations": chained("", "NOT ", "flag"),
    "signs": chained("id > ", "- ", "1"),
    "subscripts": chained("tags", "[1]", " = 'x'"),
    "conjunctions": chained("flag", " AND flag"),
    "disjunctions": chained("id<1", " OR id<2 OR text>'3'"),
    "alternations": chained("flag", " OR id<2 AND text>'3'"),
    "grouped": chained("flag", " AND (id<3 OR text<'3')"),
    "sums side by side": chained("flag", " OR id+3<id"),
    "compared groups": chained("flag = (flag", " OR id<2 OR text>'3'", ")"),
    "elements": chained("id IN (1", ",1", ")"),
    "negative elements": chained("id IN (1", ",-1", ")"),
    "parentheses": lambda count: "(" * count + "flag" + ")" * count,
    "calls": lambda count: "abs(" * count + "id" + ")" * count + " > 1",
    "lists": lambda count: "[" * count + "1" + "]" * count + " IS NULL",
    "sums in parentheses": lambda count: "id > " + "(1+1+" * count + "1" + ")" * count,
    "equalities after parentheses": lambda count: "(" * count + "flag" + "=flag=flag)" * count,
}


def largest(chain: Callable[[int], str]) -> str:
    """The longest that is accepted; each is one in which more is never accepted again."""
    low, high = 0, MAX_FILTER_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        try:
            check_filter(chain(middle), "where")
        except InvalidInput:
            high = middle - 1
        else:
            low = middle
    return chain(low)


def test_the_bounds_are_where_they_are_said_to_be() -> None:
    check_filter("id > 1" + "+1" * (MAX_OPERATORS - 1), "where")
    check_filter("(" * MAX_NESTING + "id" + ")" * MAX_NESTING, "where")
    check_filter("text = '" + "a" * (MAX_FILTER_BYTES - 9) + "'", "where")
    for text in (
        "id > 1" + "+1" * MAX_OPERATORS,
        "text = '" + "a" * (MAX_FILTER_BYTES - 8) + "'",
    ):
        with pytest.raises(InvalidInput):
            check_filter(text, "where")


CHILD = """
import json, sys, lance
dataset = lance.dataset(sys.argv[1])
for kind, text in json.load(sys.stdin):
    try:
        if kind == "filter":
            answer = dataset.scanner(filter=text, columns=["id"]).to_table().num_rows
        elif kind == "count":
            answer = dataset.count_rows(text)
        else:
            answer = dataset.scanner(columns={"computed": text}).to_table().num_rows
    except Exception as error:
        answer = str(error)[:300]
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filters") / "t"
    rows = pa.table(
        {
            "id": pa.array([1, 2, None]),
            "text": ["1", "2", None],
            "flag": [True, False, None],
            "tags": [["x"], [], None],
            "odd name": ["x", "y", "z"],
            "it's; -- odd": [1, 2, 3],
            "born": pa.array([0, 1, None], pa.date32()),
            "seen": pa.array([0, 1, None], pa.timestamp("us")),
            "inner": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, None],
            "score": [0.5, 1.5, None],
            "xx": [1, 2, 3],
            "n": [1, 2, 3],
            "e": [1, 2, 3],
        }
    )
    lance.write_dataset(rows, path)
    return path


def answers(table: Path, asked: list[tuple[str, str]]) -> list[int | str]:
    """Lance in a process of its own: one that dies is seen and takes nobody along."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(table)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    given: list[int | str] = [json.loads(line) for line in child.stdout.splitlines()]
    assert child.returncode == 0, f"{child.returncode} on {asked[len(given)][1][:80]}"
    return given


def test_lance_takes_what_passes_as_legal(table: Path) -> None:
    refused = [
        (text[:80], answer)
        for text, answer in zip(LEGAL, answers(table, [("filter", text) for text in LEGAL]), strict=True)
        if isinstance(answer, str)
    ]
    assert refused == []


def test_lance_survives_the_largest_of_everything_that_passes(table: Path) -> None:
    texts = [largest(chain) for chain in CHAINS.values()]
    asked = [(kind, text) for text in texts for kind in ("filter", "count", "column")]
    assert len(answers(table, asked)) == len(asked)


def test_the_harness_sees_a_process_that_dies(table: Path) -> None:
    with pytest.raises(AssertionError, match="-11 on flag IS TRUE"):
        answers(table, [("filter", "flag" + " IS TRUE" * 900)])
