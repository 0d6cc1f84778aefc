"""What Spark SQL makes of a planned statement: the rows, the types, and only of the keys that are wanted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from pyroaring import BitMap64
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from tidemill.errors import InvalidInput
from tidemill.jobs.model.plans import SqlPlan
from tidemill.jobs.model.views import KEY, RunSql, SqlInput, ViewTarget, WrittenRows
from tidemill.jobs.views.sql import functions
from tidemill.jobs.views.sql.plan import plan_sql, sql_sources
from tidemill.lance.key_hashes import key_array
from tidemill.spark.cluster import PINNED, ClassicCluster
from tidemill.spark.failures import StatementFailed
from tidemill.spark.views.sql import run_sql, whole_keys

Row = dict[str, Any]


@dataclass
class Lake:
    """Tables in a directory, and a session to evaluate statements over them."""

    root: Path
    session: SparkSession
    tables: dict[tuple[str, ...], lance.LanceDataset] = field(default_factory=dict)

    def create(self, name: str, *parts: pa.Table) -> None:
        for number, part in enumerate(parts):
            mode = "append" if number else "create"
            dataset = lance.write_dataset(part, str(self.root / name), mode=mode, enable_stable_row_ids=True)
        self.tables[(name,)] = dataset

    def plan(self, statement: str) -> SqlPlan:
        names = sql_sources(statement, "query")
        return plan_sql(statement, [(levels, self.tables[levels].schema) for levels in names], "query")

    def run(self, plan: SqlPlan, view: str, keys: BitMap64 | None = None) -> list[WrittenRows]:
        inputs = [
            SqlInput(
                name=source.name,
                location=self.tables[source.levels].uri,
                version=self.tables[source.levels].version,
                columns=source.columns,
                key_columns=source.key_columns,
                keys=keys,
            )
            for source in plan.sources
        ]
        location = str(self.root / view)
        if (view,) not in self.tables:
            self.create(view, plan.output.empty_table())
        made = self.tables[(view,)]
        target = ViewTarget(location, made.version, plan.output, KEY, is_empty=made.count_rows() == 0)
        scratch = self.root / "scratch"
        scratch.mkdir(exist_ok=True)
        stage = RunSql("job", plan.statement, tuple(inputs), target)
        return ClassicCluster(self.session).query("job", lambda spark: run_sql(spark, stage, 2, str(scratch)))

    def publish(self, view: str, written: Sequence[WrittenRows]) -> None:
        fragments = [FragmentMetadata.from_json(text) for part in written for text in part.fragments]
        made = self.tables[(view,)]
        if fragments:
            operation = lance.LanceOperation.Append(fragments)
            made = lance.LanceDataset.commit(made.uri, operation, read_version=made.version)
        self.tables[(view,)] = made

    def rows(self, statement: str, keys: BitMap64 | None = None) -> list[Row]:
        plan = self.plan(statement)
        self.publish("made", self.run(plan, "made", keys))
        table = self.tables[("made",)].to_table()
        assert table.schema.types == plan.output.types
        return [{name: row[name] for name in row if name != KEY} for row in table.to_pylist()]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(tmp_path, spark)


def ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def grouped(rows: Sequence[Row], by: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        found[by(row)].append(row)
    return found


def wanted(values: Sequence[Any], kind: pa.DataType) -> BitMap64:
    return BitMap64(key_array([pa.array(values, kind)]).tolist())


def sales(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "shop": pa.array([None if n % 11 == 0 else f"shop-{n % 7}" for n in numbers]),
            "amount": pa.array([n % 100 for n in numbers], pa.int32()),
            "price": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
            "weight": pa.array([n / 8 for n in numbers], pa.float32()),
        }
    )


GROUPED = (
    "SELECT shop, count(*) AS n, sum(amount) AS amount, sum(price) AS price, avg(weight) AS weight, "
    "min(weight) AS least, count(DISTINCT amount) AS kinds FROM sales WHERE id >= 10 GROUP BY shop"
)


def expected_groups(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            "shop": shop,
            "n": len(group),
            "amount": sum(row["amount"] for row in group),
            "price": sum(row["price"] for row in group),
            "weight": sum(row["weight"] for row in group) / len(group),
            "least": min(row["weight"] for row in group),
            "kinds": len({row["amount"] for row in group}),
        }
        for shop, group in grouped([row for row in rows if row["id"] >= 10], lambda row: row["shop"]).items()
    ]


@pytest.mark.spark
def test_groups_are_made_of_all_rows(lake: Lake) -> None:
    lake.create("sales", sales(0, 500), sales(500, 500))
    rows = lake.tables[("sales",)].to_table().to_pylist()
    assert ordered(lake.rows(GROUPED)) == ordered(expected_groups(rows))


@pytest.mark.spark
def test_of_wanted_keys_only_those_groups_are_made(lake: Lake) -> None:
    lake.create("sales", sales(0, 500), sales(500, 500))
    dataset = lake.tables[("sales",)]
    dataset.delete("id % 5 = 0")
    rows = [row for row in dataset.to_table().to_pylist() if row["shop"] in ("shop-1", None)]
    found = lake.rows(GROUPED, wanted(["shop-1", None, "unknown"], pa.string()))
    assert ordered(found) == ordered(expected_groups(rows))


@pytest.mark.spark
def test_few_rows_of_many_are_found_by_their_key(lake: Lake) -> None:
    lake.create("sales", sales(0, 3000))
    statement = "SELECT id, max(shop) AS shop, max(price) AS price FROM sales GROUP BY id"
    found = lake.rows(statement, wanted([7, 2999, 5000], pa.int64()))
    assert sorted((row["id"], row["shop"], row["price"]) for row in found) == [
        (7, "shop-0", Decimal("1.75")),
        (2999, "shop-3", Decimal("749.75")),
    ]


@pytest.mark.spark
def test_no_wanted_keys_make_no_rows(lake: Lake) -> None:
    lake.create("sales", sales(0, 50))
    assert lake.rows(GROUPED, BitMap64()) == []


@pytest.mark.spark
def test_rows_that_a_view_has_already_are_not_written_again(lake: Lake) -> None:
    lake.create("sales", sales(0, 200))
    plan = lake.plan(GROUPED)
    lake.publish("made", lake.run(plan, "made"))
    again = lake.run(plan, "made")
    assert sum(part.rows for part in again) == 0
    assert sum(len(part.kept) for part in again) == lake.tables[("made",)].count_rows()


def people() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 2, None, 5], pa.int32()),
            "name": pa.array(["ann", "bob", "ben", "nil", "eve"], pa.large_string()),
            "vec": pa.array([[float(n), 0.5] for n in range(5)], pa.list_(pa.float32(), 2)),
        }
    )


def visits() -> pa.Table:
    return pa.table(
        {
            "person": pa.array([1, 2, 3, None, 2, 5], pa.int64()),
            "place": pa.array(["a", "b", "c", "d", "e", None]),
        }
    )


JOIN = "SELECT v.person, v.place, p.name, p.vec FROM visits AS v {} JOIN people AS p ON v.person = p.id"


def joined(left: Sequence[Row], right: Sequence[Row], *, keeps_left: bool) -> list[Row]:
    found = []
    for one in left:
        others: Sequence[Row | None] = [
            other for other in right if one["person"] is not None and other["id"] == one["person"]
        ]
        for other in others or ([None] if keeps_left else []):
            parts = {"name": None, "vec": None} if other is None else {n: other[n] for n in ("name", "vec")}
            found.append({**one, **parts})
    return found


@pytest.mark.spark
@pytest.mark.parametrize(("side", "keeps_left"), [("INNER", False), ("LEFT", True)])
def test_joins_match_equal_keys_and_null_with_nothing(lake: Lake, side: str, keeps_left: bool) -> None:
    lake.create("people", people())
    lake.create("visits", visits())
    expected = joined(visits().to_pylist(), people().to_pylist(), keeps_left=keeps_left)
    assert ordered(lake.rows(JOIN.format(side))) == ordered(expected)


@pytest.mark.spark
@pytest.mark.parametrize("keys", [[2], [None], [3, 5], [1, 2, 3, None, 5]])
def test_a_left_join_is_made_of_the_rows_with_the_wanted_keys(lake: Lake, keys: list[int | None]) -> None:
    lake.create("people", people())
    lake.create("visits", visits())
    left = [row for row in visits().to_pylist() if row["person"] in keys]
    found = lake.rows(JOIN.format("LEFT"), wanted(keys, pa.int64()))
    assert ordered(found) == ordered(joined(left, people().to_pylist(), keeps_left=True))


@pytest.mark.spark
def test_three_tables_are_joined_by_one_key(lake: Lake) -> None:
    lake.create("people", people())
    lake.create("visits", visits())
    lake.create("ages", pa.table({"id": pa.array([1, 2, 5], pa.int16()), "age": pa.array([30, 40, 50])}))
    statement = (
        "SELECT a.id, a.age, count(place) AS places FROM ages AS a JOIN people AS p ON a.id = p.id "
        "LEFT JOIN visits AS v ON p.id = v.person GROUP BY a.id, a.age"
    )
    assert lake.plan(statement).full_reason is None
    found = {row["id"]: (row["age"], row["places"]) for row in lake.rows(statement)}
    assert found == {1: (30, 1), 2: (40, 4), 5: (50, 0)}


KINDS = pa.schema(
    [
        ("id", pa.int64()),
        ("u8", pa.uint8()),
        ("u64", pa.uint64()),
        ("half", pa.float16()),
        ("big", pa.large_string()),
        ("word", pa.dictionary(pa.int32(), pa.string())),
        ("raw", pa.large_binary()),
        ("day", pa.date64()),
        ("local", pa.timestamp("ms")),
        ("moment", pa.timestamp("ns", "Europe/Berlin")),
        ("price", pa.decimal128(38, 10)),
        ("vec", pa.list_(pa.float32(), 3)),
        ("info", pa.struct([pa.field("n", pa.uint16()), pa.field("tags", pa.list_(pa.large_string()))])),
    ]
)


def kinds() -> pa.Table:
    local = datetime(2024, 3, 31, 2, 30)  # noqa: DTZ001 (a time without a zone is what is stored)
    row = {
        "id": 1,
        "u8": 255,
        "u64": 2**64 - 1,
        "half": 0.5,
        "big": "text",
        "word": "word",
        "raw": b"\x00\xff",
        "day": datetime(2024, 2, 29, tzinfo=UTC).date(),
        "local": local,
        "moment": datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
        "price": Decimal("12345678901234567890.0123456789"),
        "vec": [1.0, 2.5, -3.0],
        "info": {"n": 65535, "tags": ["a", None]},
    }
    return pa.Table.from_pylist([row, {**dict.fromkeys(row), "id": 2}], KINDS)


@pytest.mark.spark
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM kinds ORDER BY id",
        "SELECT kinds.* FROM kinds JOIN other USING (id)",
        "SELECT id, {} FROM kinds GROUP BY id".format(", ".join(f"max({n}) AS {n}" for n in KINDS.names[1:])),
    ],
)
def test_columns_that_are_handed_on_keep_type_and_value(lake: Lake, statement: str) -> None:
    lake.create("kinds", kinds())
    lake.create("other", pa.table({"id": pa.array([1, 2], pa.int8())}))
    stored = lake.tables[("kinds",)].to_table().to_pylist()
    assert sorted(lake.rows(statement), key=lambda row: row["id"]) == stored


@pytest.mark.spark
@pytest.mark.parametrize("column", ["u8", "u64", "big", "word", "raw", "day", "local", "moment", "id"])
def test_groups_by_any_kind_of_key_are_found_again(lake: Lake, column: str) -> None:
    lake.create("kinds", kinds())
    stored = lake.tables[("kinds",)].to_table()
    keys = BitMap64(key_array([stored[column][:1]]).tolist())
    found = lake.rows(f"SELECT {column}, count(*) AS n FROM kinds GROUP BY {column}", keys)
    assert found == [{column: stored[column][0].as_py(), "n": 1}]


@pytest.mark.spark
def test_results_made_as_a_whole_may_have_rows_twice(lake: Lake) -> None:
    lake.create("sales", sales(0, 20))
    found = lake.rows("SELECT amount % 2 AS odd FROM sales UNION ALL SELECT 7 AS odd FROM sales WHERE id < 2")
    assert sorted(row["odd"] for row in found) == [0] * 10 + [1] * 10 + [7] * 2


@pytest.mark.spark
def test_names_may_hold_anything_and_differ_in_case(lake: Lake) -> None:
    lake.create("odd", pa.table({"a b": [1, 1], "A B": [2, 3], "c-d": ["x", "y"]}))
    found = lake.rows('SELECT "a b", sum("A B") AS "Σ s", max(`c-d`) AS "c""d" FROM odd GROUP BY 1')
    assert found == [{"a b": 1, "Σ s": 5, 'c"d': "y"}]


@pytest.mark.spark
def test_what_spark_cannot_compute_is_told(lake: Lake) -> None:
    lake.create("sales", sales(0, 20))
    with pytest.raises(StatementFailed, match="DIVIDE_BY_ZERO"):
        lake.rows("SELECT shop, sum(10 div (amount - 5)) AS v FROM sales GROUP BY shop")
    with pytest.raises(StatementFailed, match="CAST_INVALID_INPUT"):
        lake.rows("SELECT shop, CAST(concat(shop, 'x') AS INT) AS v FROM sales GROUP BY shop")


@pytest.mark.spark
def test_variables_of_the_driver_stay_text(lake: Lake) -> None:
    lake.create("sales", sales(0, 20))
    lake.session.conf.set("spark.sql.variable.substitute", "true")
    texts = {"a": "${env:PATH}", "b": "${system:user.home}", "c": "${spark.app.name}"}
    columns = ", ".join(f"max('{text}') AS {name}" for name, text in texts.items())
    try:
        assert lake.rows(f"SELECT {columns} FROM sales") == [texts]
    finally:
        lake.session.conf.set("spark.sql.variable.substitute", "false")


@pytest.mark.spark
def test_a_session_substitutes_no_variables(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in PINNED} == PINNED


@pytest.mark.spark
@pytest.mark.parametrize("value", ["CAST(X'ff' AS STRING)", "array(CAST(X'ff' AS STRING))"])
def test_a_text_that_nobody_could_read_is_not_stored(lake: Lake, value: str) -> None:
    lake.create("sales", sales(0, 20))
    with pytest.raises(
        StatementFailed, match="column 'v' has a text that is not valid UTF-8, in the row with id"
    ):
        lake.rows(f"SELECT id, max({value}) AS v FROM sales GROUP BY id")


@pytest.mark.spark
def test_what_the_planner_has_not_checked_does_not_run(lake: Lake) -> None:
    lake.create("sales", sales(0, 20))
    plan = replace(
        lake.plan("SELECT max(id) AS v FROM sales"), statement="SELECT `reflect`('java.lang.Math')"
    )
    with pytest.raises(InvalidInput, match="reflect"):
        lake.run(plan, "made")


@pytest.mark.spark
def test_every_function_of_spark_is_allowed_or_not_on_purpose(spark: SparkSession) -> None:
    listed_by_spark = {row[0] for row in spark.sql("SHOW ALL FUNCTIONS").collect()}
    allowed = (functions.SCALARS, functions.AGGREGATES, functions.WINDOWS, functions.GENERATORS)
    groups = (*allowed, functions.OPERATORS, functions.NOT_ALLOWED.keys())
    assert listed_by_spark == {name for group in groups for name in group}
    assert sum(len(group) for group in groups) == len(listed_by_spark)


@pytest.mark.spark
def test_what_a_task_cannot_read_is_told(lake: Lake) -> None:
    lake.create("times", pa.table({"id": [1], "at": pa.array([1001], pa.timestamp("ns"))}))
    with pytest.raises(StatementFailed, match="would lose data"):
        lake.rows("SELECT id, max(at) AS at FROM times GROUP BY id")


@pytest.mark.spark
def test_nothing_stays_in_the_session(lake: Lake) -> None:
    lake.create("sales", sales(0, 20))
    before = lake.session.conf.get("spark.sql.shuffle.partitions")
    lake.rows(GROUPED)
    assert {table.name for table in lake.session.catalog.listTables()} <= {"sample"}
    assert lake.session.conf.get("spark.sql.shuffle.partitions") == before


def test_batches_are_cut_between_keys() -> None:
    keys = [1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 5]
    table = pa.table({KEY: pa.array(keys, pa.int64()), "place": range(len(keys))})
    for size in range(1, len(keys) + 1):
        found = list(whole_keys(table.to_batches(max_chunksize=size)))
        assert pa.Table.from_batches(found) == table.combine_chunks()
        seen = [set(batch.column(KEY).to_pylist()) for batch in found]
        assert sum(len(part) for part in seen) == len(set(keys))


EXPRESSIONS = """
    i8 + i8; i + 1; i + l; i * i; i / 2; i % 3; i div 2; -i; f + 1; f * f; f / 2; f * 1.5; d + 1.5; i * 1.5
    p + q; p - q; p * q; p / q; p + 1; p * 2; p + i; p * 1.5; p + f; 1; 1.5; 1e3; 3000000000; 'a'; true
    ~i; i & 1; abs(i); abs(p); round(d); round(d, 1); round(i); floor(d); ceil(d); sqrt(i); pow(i, 2)
    ln(d); log10(d); sign(i); greatest(i, l); least(f, d); length(s); upper(s); trim(s); substring(s, 1, 2)
    left(s, 2); concat(s, 'x'); s || 'x'; concat_ws('-', s, s); replace(s, 'a', 'b')
    regexp_replace(s, 'a+', '$0b'); regexp_extract(s, '(a+)', 1); split(s, ','); instr(s, 'a')
    locate('a', s); reverse(s); repeat(s, 2); lpad(s, 9, '0'); initcap(s); md5(s); sha2(s, 256); hex(i)
    base64(b); ascii(s); s LIKE 'a%'; s RLIKE 'a'; i = 1; i IS NULL; i IN (1, 2); NOT bo; i BETWEEN 1 AND 2
    CASE WHEN i > 1 THEN 1 ELSE 0 END; CASE WHEN i > 1 THEN f ELSE 0 END; if(bo, i, l); coalesce(i, 0)
    coalesce(p, 0); nullif(i, 0); nvl(s, 'x'); nvl2(i, 1, 2); year(ts); month(dt); day(dt); hour(ts)
    minute(ts); second(ts); quarter(dt); weekofyear(dt); dayofweek(dt); dayofyear(dt)
    date_trunc('month', ts); date_trunc('month', tn); trunc(dt, 'MM'); to_date(ts); date(ts)
    date_add(dt, 1); date_sub(dt, 1); datediff(dt, dt); add_months(dt, 1); months_between(dt, dt)
    last_day(dt); dt + INTERVAL 1 DAY; ts + INTERVAL 1 HOUR; tn - INTERVAL 1 HOUR; dt + 1
    to_timestamp('2024-01-01'); from_unixtime(l); unix_timestamp(ts); date_format(ts, 'yyyy-MM')
    extract(year FROM ts); timestamp_seconds(l); CAST(i AS STRING); CAST(p AS DECIMAL)
    CAST(a AS ARRAY<DOUBLE>); TRY_CAST(s AS INT); DATE '2020-01-01'; size(a); cardinality(a); a[0]
    element_at(a, 1); array_contains(a, CAST(1 AS FLOAT)); sort_array(a); array_distinct(sa)
    array_join(sa, ','); array(1, 2); array(i, l); array_max(a); slice(a, 1, 1); st.x; m['a']
    named_struct('k', i, 'v', s); to_json(st); get_json_object('{"a": 1}', '$.a'); hash(i); xxhash64(i)
    filter(a, x -> x > 1); exists(a, x -> x > 1); isnan(d); isnull(i); i <=> l; levenshtein(s, 'abc')
    soundex(s); translate(s, 'a', 'b'); split_part(s, ',', 1); startswith(s, 'a'); contains(s, 'a')
    unhex('FF'); encode(s, 'utf-8'); decode(b, 'utf-8'); format_number(d, 2); array_position(sa, 'a')
    factorial(i8)
"""
AGGREGATES = """
    count(*); count(DISTINCT s); count_if(i > 1); sum(i8); sum(l); sum(f); sum(p); sum(p * q); sum(DISTINCT i)
    sum(CASE WHEN i > 1 THEN 1 ELSE 0 END); sum(i) / count(*); avg(i); avg(f); min(i); max(s); max(ts)
    max(f); max(p); max(a); max(f) - min(f); stddev(i); stddev_pop(d); variance(i); var_pop(d); median(d)
    percentile(i, 0.5); percentile_approx(i, 0.5); approx_count_distinct(s); corr(i, i); covar_pop(d, i)
    bool_and(bo); bool_or(bo); every(bo); bit_and(i); bit_or(i); sort_array(collect_list(i))
    array_join(sort_array(collect_set(s)), ','); size(collect_set(s)); sum(i) FILTER (WHERE i > 1)
    round(avg(i), 2); coalesce(sum(i), 0); max(length(s)); min(date_trunc('day', ts)); skewness(i)
    kurtosis(i)
"""
WINDOWS = """
    max(i) OVER (PARTITION BY s); row_number() OVER (ORDER BY i); rank() OVER (ORDER BY i)
    dense_rank() OVER (ORDER BY i); lag(i) OVER (ORDER BY i); ntile(2) OVER (ORDER BY i)
    percent_rank() OVER (ORDER BY i); cume_dist() OVER (ORDER BY i); sum(i) OVER (ORDER BY l, i)
    first_value(s) OVER (ORDER BY i); count(*) OVER (PARTITION BY s)
"""


def listed(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(";") if part.strip()]


@pytest.fixture(scope="session")
def sample(spark: SparkSession) -> pa.Schema:
    """A view `sample` of a few rows of every kind, in types that Spark has."""
    schema = pa.schema(
        [
            *(("i8", pa.int8()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32())),
            *(("d", pa.float64()), ("p", pa.decimal128(10, 2)), ("q", pa.decimal128(5, 1))),
            *(("s", pa.string()), ("b", pa.binary()), ("bo", pa.bool_()), ("dt", pa.date32())),
            *(("ts", pa.timestamp("us", "UTC")), ("tn", pa.timestamp("us"))),
            *(("a", pa.list_(pa.float32())), ("sa", pa.list_(pa.string()))),
            *(("st", pa.struct([("x", pa.int32())])), ("m", pa.map_(pa.string(), pa.int64()))),
        ]
    )
    values = (
        "SELECT 3Y, 7, 11L, 1.5F, 2.25D, 10.25BD, 2.5BD, 'aab,c', X'61', true, DATE'2024-02-29', "
        "TIMESTAMP'2024-02-29 12:34:56.789', TIMESTAMP_NTZ'2024-02-29 12:34:56', array(2F, 1F), "
        "array('a', 'b', 'a'), named_struct('x', 4), map('a', 5L)"
    )
    nothing = "SELECT " + ", ".join(["NULL"] * len(schema))
    others = values.replace("7", "1").replace("aab", "b")
    rows = spark.sql(f"{values} UNION ALL {others} UNION ALL {nothing}").toDF(*schema.names)
    fields = from_arrow_schema(schema, prefer_timestamp_ntz=True).fields
    typed = rows.select(*(rows[field.name].cast(field.dataType).alias(field.name) for field in fields))
    typed.coalesce(1).createTempView("sample")
    return schema


@pytest.mark.spark
@pytest.mark.parametrize("expressions", [EXPRESSIONS, AGGREGATES, WINDOWS], ids=["rows", "groups", "windows"])
def test_expressions_have_the_type_and_the_values_that_spark_gives_them(
    spark: SparkSession, sample: pa.Schema, expressions: str
) -> None:
    every = {f"v{place}": text for place, text in enumerate(listed(expressions))}
    columns = ", ".join(f"{text} AS {name}" for name, text in every.items())
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        own = spark.sql(f"SELECT {columns} FROM sample")
        plan = plan_sql(f"SELECT {columns} FROM t AS x", [(("t",), sample)], "q")
        made = spark.sql(plan.statement.replace("`tm_0`", "sample"))
        own_rows, made_rows = own.collect(), made.collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    own_types, made_types = to_arrow_schema(own.schema), to_arrow_schema(made.schema)
    for name, text in every.items():
        told = without_names(plan.output.field(name).type)
        assert (text, without_names(own_types.field(name).type)) == (text, told)
        assert (text, without_names(made_types.field(name).type)) == (text, told)
        assert (text, shown(own_rows, name)) == (text, shown(made_rows, name))


def shown(rows: Sequence[Any], name: str) -> list[str]:
    return sorted(str(row[name]) for row in rows)


def without_names(kind: pa.DataType) -> pa.DataType:
    """Spark calls the elements of lists otherwise, and knows which of them cannot be null."""
    if pa.types.is_list(kind):
        return pa.list_(without_names(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(part.name, without_names(part.type)) for part in kind])
    return kind


@pytest.mark.spark
def test_a_type_that_is_not_known_for_sure_is_not_told(sample: pa.Schema) -> None:
    for expression in ("dt - dt", "extract(second FROM ts)", "round(p, 1)", "transform(a, x -> x + 1)"):
        with pytest.raises(InvalidInput, match="cannot be told"):
            plan_sql(f"SELECT {expression} AS v FROM t AS x", [(("t",), sample)], "q")
