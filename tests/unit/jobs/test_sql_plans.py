"""What becomes of a view's statement: refusals, types, keys, and the statement that Spark gets."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemill.errors import InvalidInput
from tidemill.jobs.model.plans import SqlPlan
from tidemill.jobs.model.views import KEY
from tidemill.jobs.views.sql.plan import plan_sql, sql_sources
from tidemill.jobs.views.sql.types import spark_type

VECTOR = pa.list_(pa.float32(), 4)
DOCS = pa.schema(
    [
        ("id", pa.int64()),
        ("lang", pa.string()),
        ("n", pa.int32()),
        ("score", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("made_at", pa.timestamp("ns", "Europe/Berlin")),
        ("vec", VECTOR),
        ("info", pa.struct([("size", pa.uint16()), ("tags", pa.list_(pa.large_string()))])),
        ("labels", pa.map_(pa.string(), pa.int32())),
        ("alarm", pa.time64("us")),
    ]
)
USERS = pa.schema([("id", pa.int32()), ("name", pa.large_string()), ("x", pa.float64())])
EVENTS = pa.schema([("id", pa.uint8()), ("name", pa.string()), ("at", pa.date32())])
TABLES = {("docs",): DOCS, ("main", "users"): USERS, ("events",): EVENTS}


def plan(statement: str) -> SqlPlan:
    return plan_sql(statement, [(levels, TABLES[levels]) for levels in sql_sources(statement, "q")], "q")


def refusal(statement: str) -> str:
    with pytest.raises(InvalidInput) as refused:
        plan(statement)
    assert refused.value.field == "q"
    return str(refused.value)


def output_type(expression: str, source: str = "docs") -> pa.DataType:
    return plan(f"SELECT {expression} AS v FROM {source}").output.field("v").type


def keys_of(statement: str) -> list[tuple[str, ...]]:
    found = plan(statement)
    assert found.full_reason is None
    return [source.key_columns for source in found.sources]


def reason(statement: str) -> str:
    found = plan(statement)
    assert found.full_reason is not None
    assert all(not source.key_columns for source in found.sources)
    return found.full_reason


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    assert "there is no column 'nope'; there are id, name, x" in refusal("SELECT nope FROM main.users")
    assert "nope" in refusal("SELECT u.nope FROM main.users AS u")
    assert "there is no column 'q.id'" in refusal("SELECT q.id FROM main.users AS u")
    assert "'ID'" in refusal("SELECT ID FROM main.users")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT n FROM docs GROUP BY lang",
        "SELECT lang, n + sum(n) AS s FROM docs GROUP BY lang",
        "SELECT lang, n, count(*) AS c FROM docs GROUP BY lang",
        "SELECT n, count(*) AS c FROM docs",
    ],
)
def test_a_column_that_is_neither_grouped_nor_aggregated_is_refused(statement: str) -> None:
    assert "'n' is neither in GROUP BY nor in an aggregate such as min(n)" in refusal(statement)


def test_lists_are_taken_apart_by_explode_alone() -> None:
    assert "write explode(column) AS name" in refusal("SELECT id FROM docs, UNNEST(vec) AS u")
    assert output_type("explode(vec)") == pa.float32()


def test_a_column_of_two_tables_needs_its_table() -> None:
    assert "'id' is in several tables" in refusal(
        "SELECT id AS v FROM main.users JOIN events ON users.id = events.id"
    )


def test_every_column_needs_a_name_of_its_own() -> None:
    assert "'COUNT(*)' has no name; name it with AS" in refusal("SELECT count(*) FROM docs")
    assert "has no name" in refusal("SELECT * FROM (SELECT count(*) FROM docs) AS q")
    assert "two columns are named 'id'" in refusal("SELECT id, n AS id FROM docs")
    assert "two columns are named 'id'" in refusal(
        "SELECT * FROM main.users AS u JOIN events AS e ON u.id = e.id"
    )
    assert "starts with '__'" in refusal("SELECT id AS __x FROM docs")
    assert "a point or a backtick" in refusal("SELECT id AS `a.b` FROM docs")


def test_a_type_that_cannot_be_told_is_asked_for() -> None:
    assert "the type of 'v' cannot be told; write CAST" in refusal("SELECT bin(id) AS v FROM docs")
    assert output_type("CAST(bin(id) AS INT)") == pa.int32()


def test_a_column_that_spark_has_no_type_for_is_refused_where_it_is_read() -> None:
    assert "'alarm' is of type time64[us]" in refusal("SELECT alarm FROM docs")
    assert "'alarm'" in refusal("SELECT id FROM docs WHERE alarm IS NULL ORDER BY id")
    assert output_type("id") == pa.int64()


def test_a_name_for_a_half_joined_table_must_not_be_a_columns() -> None:
    assert "call the table otherwise" in refusal(
        "SELECT d.id FROM docs AS d LEFT SEMI JOIN events AS n ON d.id = n.id"
    )


@pytest.mark.parametrize("column", ["id", "lang", "score", "price", "made_at", "vec", "info", "labels"])
def test_columns_keep_their_exact_type(column: str) -> None:
    kind = DOCS.field(column).type
    assert output_type(column) == kind
    assert output_type("v", f"(SELECT {column} AS v FROM docs) AS q") == kind
    assert plan(f"SELECT max({column}) AS v FROM docs").output.field("v").type == kind


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("count(*)", pa.int64()),
        ("count(DISTINCT lang)", pa.int64()),
        ("sum(n)", pa.int64()),
        ("sum(score)", pa.float64()),
        ("sum(price)", pa.decimal128(20, 2)),
        ("avg(n)", pa.float64()),
        ("avg(price)", pa.float64()),
        ("min(score)", pa.float32()),
        ("sum(n) FILTER (WHERE n > 1)", pa.int64()),
        ("sort_array(collect_set(lang))", pa.list_(pa.string())),
        ("stddev(n)", pa.float64()),
    ],
)
def test_aggregates_have_the_types_of_spark(expression: str, kind: pa.DataType) -> None:
    assert output_type(expression) == kind


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("n + 1", pa.int32()),
        ("n + id", pa.int64()),
        ("n / 2", pa.float64()),
        ("score + 1", pa.float64()),
        ("score * score", pa.float32()),
        ("price * 2", pa.decimal128(12, 2)),
        ("price * price", pa.decimal128(21, 4)),
        ("price / n", pa.decimal128(21, 13)),
        ("coalesce(price, 0)", pa.decimal128(12, 2)),
        ("3000000000", pa.int64()),
        ("1.25", pa.decimal128(3, 2)),
        ("upper(lang)", pa.string()),
        ("lang || '!'", pa.string()),
        ("length(lang)", pa.int32()),
        ("year(made_at)", pa.int32()),
        ("date_trunc('month', made_at)", pa.timestamp("us", "UTC")),
        ("made_at + INTERVAL 1 HOUR", pa.timestamp("us", "UTC")),
        ("to_date(made_at)", pa.date32()),
        ("n > 1 AND lang IS NULL", pa.bool_()),
        ("CASE WHEN n > 1 THEN n ELSE id END", pa.int64()),
        ("CASE WHEN n > 1 THEN vec END", VECTOR),
        ("vec[0]", pa.float32()),
        ("info.size", pa.uint16()),
        ("docs.info.tags", pa.list_(pa.large_string())),
        ("labels['a']", pa.int32()),
        ("CAST(lang AS DECIMAL(5, 1))", pa.decimal128(5, 1)),
        ("CAST(lang AS TIMESTAMP_NTZ)", pa.timestamp("us")),
        ("CAST(vec AS ARRAY<DOUBLE>)", pa.list_(pa.float64())),
        ("named_struct('a', n, 'b', lang)", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ],
)
def test_expressions_have_the_types_of_spark(expression: str, kind: pa.DataType) -> None:
    assert output_type(expression) == kind


def test_the_key_comes_first() -> None:
    found = plan("SELECT lang, count(*) AS c FROM docs GROUP BY lang").output
    assert found.field(0).equals(pa.field(KEY, pa.int64(), nullable=False))
    assert found.names == [KEY, "lang", "c"]


def test_groups_are_keyed_by_their_columns() -> None:
    found = plan("SELECT lang, count(*) AS c FROM docs WHERE n > 1 GROUP BY lang HAVING count(*) > 2")
    assert found.full_reason is None
    assert found.sources[0].levels == ("docs",)
    assert found.sources[0].columns == ("lang", "n")
    assert found.sources[0].key_columns == ("lang",)
    assert found.statement == (
        "SELECT `__key`, `lang` AS `lang`, CAST(`c` AS BIGINT) AS `c` FROM ("
        "SELECT MIN(`docs`.`__key`) AS `__key`, `docs`.`lang` AS `lang`, COUNT(*) AS `c` "
        "FROM `tm_0` AS `docs` WHERE `docs`.`n` > 1 GROUP BY `docs`.`lang` HAVING COUNT(*) > 2"
        ") AS `tm_result`"
    )


@pytest.mark.parametrize(
    ("statement", "keys"),
    [
        ("SELECT lang, n, sum(id) AS s FROM docs GROUP BY 1, 2", [("lang", "n")]),
        ("SELECT lang AS l, count(*) AS c FROM docs GROUP BY l", [("lang",)]),
        ("SELECT DISTINCT lang, n FROM docs", [("lang", "n")]),
        ("SELECT lang, max(id) AS m FROM docs GROUP BY lang, score, upper(lang)", [("lang",)]),
        ("SELECT d.id, u.name FROM docs AS d JOIN main.users AS u ON d.id = u.id", [("id",), ("id",)]),
        ("SELECT id, name FROM docs JOIN main.users USING (id)", [("id",), ("id",)]),
        ("SELECT d.id FROM docs AS d, main.users AS u WHERE d.id = u.id AND x > 1", [("id",), ("id",)]),
        (
            "SELECT d.id FROM docs AS d LEFT JOIN main.users AS u ON name = lang AND d.n = u.id AND x > d.n",
            [("lang", "n"), ("name", "id")],
        ),
        ("SELECT d.id FROM docs AS d LEFT ANTI JOIN events AS e ON d.id = e.id", [("id",), ("id",)]),
        ("SELECT d.id FROM docs AS d JOIN events AS e ON d.id <=> e.id", [("id",), ("id",)]),
        ("SELECT id, x, at FROM docs JOIN main.users USING (id) JOIN events USING (id)", [("id",)] * 3),
        (
            "SELECT d.id FROM docs AS d LEFT JOIN main.users AS u ON d.id = u.id AND d.lang = u.name "
            "JOIN events AS e ON u.name = e.name",
            [("lang",), ("name",), ("name",)],
        ),
        (
            "SELECT d.id, count(*) AS c FROM docs AS d LEFT JOIN events AS e ON d.id = e.id GROUP BY 1, lang",
            [("id",), ("id",)],
        ),
        (
            "SELECT u.id, sum(n) AS s FROM docs AS d JOIN main.users AS u ON d.id = u.id GROUP BY u.id",
            [("id",)] * 2,
        ),
        ("SELECT id, sum(n) AS s FROM docs JOIN main.users USING (id) GROUP BY id", [("id",)] * 2),
    ],
)
def test_groups_and_joins_by_equal_columns_have_keys(statement: str, keys: list[tuple[str, ...]]) -> None:
    assert keys_of(statement) == keys


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT count(*) AS c FROM docs", "an aggregate without GROUP BY is made of all rows"),
        (
            "SELECT lang, count(*) AS c FROM docs GROUP BY lang ORDER BY c DESC LIMIT 3",
            "an ORDER BY with LIMIT needs all rows",
        ),
        ("SELECT lang, count(*) AS c FROM docs GROUP BY lang ORDER BY c", "a view keeps no order"),
        (
            "SELECT date_trunc('month', made_at) AS m, count(*) AS c FROM docs GROUP BY 1",
            "the grouping key `DATE_TRUNC('MONTH', made_at)` is an expression",
        ),
        ("SELECT score, count(*) AS c FROM docs GROUP BY score", "`score` is of type float"),
        ("SELECT a.id FROM docs AS a JOIN docs AS b ON a.id = b.id", "`docs` is read twice"),
        ("SELECT id FROM docs UNION ALL SELECT id FROM events", "UNION puts whole results together"),
        ("WITH c AS (SELECT id FROM docs) SELECT id FROM c", "WITH"),
        ("SELECT id FROM docs WHERE id IN (SELECT id FROM events)", "a query inside the query"),
        ("SELECT id, rank() OVER (PARTITION BY lang ORDER BY id) AS r FROM docs", "a window function"),
        ("SELECT lang, n, count(*) AS c FROM docs GROUP BY ROLLUP (lang, n)", "ROLLUP"),
        ("SELECT lang, count(*) AS c FROM docs GROUP BY ALL", "GROUP BY ALL"),
        ("SELECT DISTINCT count(*) AS c FROM docs GROUP BY lang", "DISTINCT compares all groups"),
        (
            "SELECT d.id FROM docs AS d JOIN events AS e ON d.lang = e.id",
            "`events` is not joined by equal columns",
        ),
        (
            "SELECT d.id FROM docs AS d JOIN events AS e ON d.id > e.id",
            "`events` is not joined by equal columns",
        ),
        (
            "SELECT d.id FROM docs AS d JOIN events AS e ON d.id = e.id OR n = 1",
            "not joined by equal columns",
        ),
        (
            "SELECT d.id FROM docs AS d LEFT JOIN events AS e ON n = 1 WHERE d.id = e.id",
            "not joined by equal",
        ),
        ("SELECT d.id FROM docs AS d CROSS JOIN events AS e", "not joined by equal columns"),
        ("SELECT d.id FROM docs AS d RIGHT JOIN events AS e ON d.id = e.id", "write it as a LEFT JOIN"),
        ("SELECT d.id FROM docs AS d FULL JOIN events AS e ON d.id = e.id", "FULL JOIN"),
        (
            "SELECT n FROM docs AS d JOIN main.users AS u ON d.id = u.id JOIN events AS e ON e.name = u.name",
            "joined by different keys",
        ),
        (
            "SELECT lang, count(*) AS c FROM docs AS d JOIN events AS e ON d.id = e.id GROUP BY lang",
            "group by `id` as well",
        ),
        (
            "SELECT e.id, count(*) AS c FROM docs AS d LEFT JOIN events AS e ON d.id = e.id GROUP BY e.id",
            "group by `id` as well",
        ),
        (
            "SELECT sum(n) AS s FROM docs AS d JOIN events AS e ON d.id = e.id",
            "an aggregate without GROUP BY",
        ),
        (
            "SELECT CAST(bin(n) AS INT) AS s FROM docs AS d JOIN events AS e ON d.id = e.id",
            "bin() may be made of all",
        ),
        ("SELECT id AS v FROM docs AS d", "neither groups nor joins"),
    ],
)
def test_everything_else_is_made_as_a_whole_for_a_reason(statement: str, text: str) -> None:
    assert text in reason(statement)


def test_results_made_as_a_whole_are_keyed_by_their_content() -> None:
    found = plan("SELECT id, labels FROM docs UNION ALL SELECT id, labels FROM docs")
    assert found.statement.startswith(
        "SELECT xxhash64(CAST(`id` AS BIGINT), to_json(CAST(`labels` AS MAP<STRING, INT>))) AS `__key`, "
    )
    assert [(source.name, source.columns) for source in found.sources] == [("tm_0", ("id", "labels"))]


def test_only_columns_that_are_needed_are_read() -> None:
    found = plan(
        "SELECT lang, x FROM docs AS d JOIN main.users AS u ON d.id = u.id AND info.size > 3 WHERE n = 1"
    )
    assert [source.columns for source in found.sources] == [("id", "lang", "n", "info"), ("id", "x")]
    assert plan("SELECT count(*) AS c FROM docs").sources[0].columns == ("id",)
    assert plan("SELECT lang, count(*) AS c FROM docs GROUP BY lang").sources[0].columns == ("lang",)


def test_names_are_kept_apart_from_those_of_the_plan() -> None:
    found = plan(
        'SELECT main.users.name AS "a ""b""", tm_1.at FROM main.users JOIN events AS tm_1 USING (id)'
    )
    assert found.output.names == [KEY, 'a "b"', "at"]
    assert "FROM `tm_0` AS `users` JOIN `tm_1` AS `tm_1`" in found.statement


def test_the_columns_of_using_are_those_of_the_left_table() -> None:
    found = plan("SELECT * FROM main.users LEFT JOIN events AS e USING (id, name)")
    assert found.output.field("id").type == pa.int32()
    assert found.output.field("name").type == pa.large_string()
    assert "COALESCE" not in found.statement


def test_a_coalesce_of_the_user_stays() -> None:
    turned = plan("SELECT coalesce(e.id, d.id) AS v FROM docs AS d LEFT JOIN events AS e ON d.id = e.id")
    assert "COALESCE(`e`.`id`, `d`.`id`)" in turned.statement
    other = plan(
        "SELECT coalesce(lang, name) AS v FROM docs AS d JOIN events AS e ON d.id = e.id OR lang = name"
    )
    assert "COALESCE" in other.statement


def test_the_bookkeeping_of_another_view_is_not_seen() -> None:
    view = pa.schema([pa.field(KEY, pa.int64(), nullable=False), ("lang", pa.string()), ("c", pa.int64())])
    found = plan_sql("SELECT DISTINCT * FROM v", [(("v",), view)], "q")
    assert found.output.names == [KEY, "lang", "c"]
    assert found.sources[0].columns == ("lang", "c")


def test_what_spark_reads_values_as_holds_all_of_them() -> None:
    assert spark_type(pa.uint64()) == pa.decimal128(20, 0)
    assert spark_type(pa.timestamp("s", "Asia/Tokyo")) == pa.timestamp("us", "UTC")
    assert spark_type(pa.timestamp("ms")) == pa.timestamp("us")
    assert spark_type(pa.dictionary(pa.int8(), pa.large_string())) == pa.string()
    assert spark_type(pa.struct([("v", VECTOR)])) == pa.struct([("v", pa.list_(pa.float32()))])
    assert [spark_type(kind) for kind in (pa.duration("s"), pa.null(), pa.decimal256(50, 2))] == [None] * 3
