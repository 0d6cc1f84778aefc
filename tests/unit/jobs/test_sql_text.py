"""Which statements can be views at all, which tables they name, and which of them are plain scans."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.plan import is_plain_scan, sql_sources


@pytest.mark.parametrize(
    ("statement", "sources"),
    [
        ("SELECT a FROM t", [("t",)]),
        ("SELECT a FROM one.two.three.four.five", [("one", "two", "three", "four", "five")]),
        ('SELECT a FROM "my ns".`a.b` AS x', [("my ns", "a.b")]),
        ("SELECT a FROM t JOIN n.u USING (a) JOIN t AS again USING (a)", [("t",), ("n", "u")]),
        ("WITH c AS (SELECT a FROM t) SELECT c.a FROM c JOIN u ON c.a = u.a", [("t",), ("u",)]),
        ("WITH t AS (SELECT a FROM t) SELECT a FROM t", [("t",)]),
        ("WITH c AS (SELECT a FROM d), d AS (SELECT a FROM c) SELECT a FROM d", [("d",)]),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", [("t",), ("u",)]),
        ("SELECT a FROM t WHERE b IN (SELECT c FROM u)", [("t",), ("u",)]),
        ("SELECT a -- a note\nFROM t /* another */;", [("t",)]),
    ],
)
def test_the_tables_that_a_statement_names_are_found(
    statement: str, sources: Sequence[tuple[str, ...]]
) -> None:
    assert list(sql_sources(statement, "q")) == sources


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT FROM WHERE", "cannot be read"),
        ("SELECT 'a FROM t", "cannot be read"),
        ("DROP TABLE t", "one query"),
        ("INSERT INTO t SELECT 1", "one query"),
        ("SELECT a FROM t; SELECT b FROM t", "one query"),
        ("", "one query"),
        ("SELECT rand() AS r FROM t", r"rand\(\) does not always have the same answer"),
        ("SELECT random() AS r FROM t", "same answer"),
        ("SELECT uuid() AS r FROM t", r"xxhash64\(id\)"),
        ("SELECT now() AS r FROM t", r"now\(\).*fixed time"),
        ("SELECT a FROM t WHERE at > current_timestamp", r"current_timestamp\(\)"),
        ("SELECT a FROM t WHERE at > current_date()", r"current_date\(\)"),
        ("SELECT localtimestamp() AS r FROM t", "localtimestamp"),
        ("SELECT unix_timestamp() AS r FROM t", r"unix_timestamp\(\)"),
        ("SELECT shuffle(a) AS r FROM t", "shuffle"),
        ("SELECT monotonically_increasing_id() AS r FROM t", "monotonically_increasing_id"),
        ("SELECT spark_partition_id() AS r FROM t", "spark_partition_id"),
        ("SELECT input_file_name() AS r FROM t", "input_file_name"),
        ("SELECT current_user() AS r FROM t", "current_user"),
        ("SELECT reflect('java.lang.System', 'exit', 1) AS r FROM t", "reflect"),
        ("SELECT java_method('java.lang.System', 'exit', 1) AS r FROM t", "java_method"),
        ("SELECT first(a) AS r FROM t GROUP BY b", r"first\(\) depends on the order.*min or max"),
        ("SELECT any_value(a) AS r FROM t GROUP BY b", "any_value"),
        ("SELECT collect_list(a) AS r FROM t GROUP BY b", r"sort_array\(collect_list\(x\)\)"),
        ("SELECT collect_set(a) AS r FROM t GROUP BY b", r"collect_set\(\) depends on the order"),
        ("SELECT max_by(a, b) AS r FROM t GROUP BY c", r"max_by\(\).*struct"),
        ("SELECT a FROM t TABLESAMPLE (5 PERCENT)", "TABLESAMPLE takes rows by chance"),
        ("SELECT a FROM t LIMIT 3", "which rows it takes would be chance"),
        ("SELECT a FROM (SELECT a FROM t LIMIT 3) AS q", "would be chance"),
        ("SELECT a FROM t ORDER BY a LIMIT 3 UNION ALL SELECT a FROM u LIMIT 3", "cannot be read|chance"),
        ("SELECT a FROM range(10)", "has to name tables"),
        ("SELECT a FROM t NATURAL JOIN u", "say by which columns"),
        ("SELECT TRANSFORM (a) USING 'cat' AS (b) FROM t", "runs a script"),
        ("SELECT a FROM t WHERE b = :limit", "has a parameter"),
        ("SELECT a FROM t VERSION AS OF 3", "names a version"),
        ("WITH RECURSIVE c AS (SELECT a FROM t UNION ALL SELECT a FROM c) SELECT a FROM c", "RECURSIVE"),
        ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))", "PIVOT is not supported"),
    ],
)
def test_what_is_no_query_or_has_another_answer_each_time_is_refused(statement: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sql_sources(statement, "q")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT b, sort_array(collect_list(a)) AS l FROM t GROUP BY b",
        "SELECT b, size(collect_set(a)) AS l FROM t GROUP BY b",
        "SELECT first_value(a) OVER (PARTITION BY b ORDER BY a) AS f FROM t",
        "SELECT unix_timestamp(at) AS u FROM t",
        "SELECT a FROM t ORDER BY a LIMIT 3",
    ],
)
def test_what_only_looks_like_chance_is_taken(statement: str) -> None:
    assert sql_sources(statement, "q") == (("t",),)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM t",
        "SELECT a, b + 1 AS c FROM n.t WHERE a > 1 LIMIT 5",
        'SELECT "a" FROM `t`',
        "SELECT s.f AS f FROM t",
        "SELECT CASE WHEN a > 1 THEN upper(b) END AS c FROM t",
    ],
)
def test_scans_of_one_table_are_plain(statement: str) -> None:
    assert is_plain_scan(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT DISTINCT a FROM t",
        "SELECT count(*) AS n FROM t",
        "SELECT a FROM t GROUP BY a",
        "SELECT a FROM t HAVING a > 1",
        "SELECT t.a FROM t JOIN u ON t.a = u.a",
        "SELECT a FROM t, u",
        "SELECT a FROM (SELECT a FROM t) AS q",
        "SELECT a FROM t WHERE a IN (SELECT b FROM u)",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)",
        "SELECT row_number() OVER (ORDER BY a) AS r FROM t",
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT a FROM t ORDER BY a",
        "WITH c AS (SELECT a FROM t) SELECT a FROM c",
        "SELECT explode(a) AS e FROM t",
        "SELECT x.a FROM t AS x",
        "SELECT *, a + 1 AS b FROM t",
        "SELECT a FROM t GROUP BY",
    ],
)
def test_everything_else_is_not(statement: str) -> None:
    assert not is_plain_scan(statement)
