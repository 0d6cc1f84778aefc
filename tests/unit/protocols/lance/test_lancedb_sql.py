"""The SQL of views: cut into the parts that Lance evaluates, and written again in one spelling."""

from __future__ import annotations

import pytest

from tidemill.errors import InvalidInput, Unsupported
from tidemill.jobs.model.views import SourceQuery
from tidemill.protocols.lance.lancedb_sql import query_text, read_query


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM docs", SourceQuery(("docs",))),
        ("select id from a.b.docs;", SourceQuery(("a", "b", "docs"), {"id": "`id`"})),
        ('SELECT `B c` AS "d""e" FROM "x.y"', SourceQuery(("x.y",), {'d"e': "`B c`"})),
        (
            "SELECT x+1 AS y, upper(name) AS n FROM t WHERE \"x\" > 1.5 AND name <> 'it''s' LIMIT 7",
            SourceQuery(("t",), {"y": "x+1", "n": "upper(name)"}, "`x` > 1.5 AND name <> 'it''s'", limit=7),
        ),
        (
            "SELECT CAST(x AS string) AS s, extract(year FROM at) AS y FROM t",
            SourceQuery(("t",), {"s": "CAST(x AS string)", "y": "extract(year FROM at)"}),
        ),
        (
            "SELECT left(a, 2) AS l FROM t WHERE a IS NOT DISTINCT FROM 'FROM; --'",
            SourceQuery(("t",), {"l": "left(a, 2)"}, "a IS NOT DISTINCT FROM 'FROM; --'"),
        ),
        (
            "SELECT CASE WHEN a THEN b[1] ELSE c.d END AS e FROM t",
            SourceQuery(("t",), {"e": "CASE WHEN a THEN b[1] ELSE c.d END"}),
        ),
    ],
)
def test_a_statement_is_read_and_its_spelling_means_the_same(statement: str, expected: SourceQuery) -> None:
    read = read_query(statement, "query")
    assert read == expected
    assert read_query(query_text(read), "query") == expected


@pytest.mark.parametrize(
    "statement", ["", " ", "SELECT", "FROM t", "SELECT a", "SELECT a FROM", "SELECT , FROM t"]
)
def test_a_torn_statement_is_refused(statement: str) -> None:
    with pytest.raises(InvalidInput, match=r"^query: "):
        read_query(statement, "query")


@pytest.mark.parametrize("clause", ["HAVING a", "OFFSET 2", "UNION SELECT 1", "INTERSECT SELECT 1"])
def test_clauses_that_are_not_served_are_named(clause: str) -> None:
    with pytest.raises(Unsupported, match=clause.split()[0]):
        read_query(f"SELECT a FROM t {clause}", "query")
