"""SQL views on every executor: DuckDB in this process stands in for Spark SQL only while both agree here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.engine import Engine, succeeded
from tests.sealing import CipherInMemory
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.service.views import ViewDefinition
from tidemill.spark.cluster import ClassicCluster
from tidemill.spark.executor import SparkStageExecutor
from tidemill.spark.startup import SparkStart


@pytest.fixture(params=["inline", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    executor = None
    if request.param == "spark":
        session: SparkSession = request.getfixturevalue("spark")
        host = FunctionHost(Isolation.TASK)
        spark, scratch = SparkStart.of(ClassicCluster(session)), str(tmp_path / "stages")
        executor = SparkStageExecutor(spark, scratch, host, CipherInMemory())
    running = Engine(tmp_path / "lake", executor)
    yield running
    running.close()


@pytest.fixture
def orders(engine: Engine) -> TableIdent:
    rows = {"id": range(6), "shop": ["a", "b", None, "a", "b", "c"], "price": [1, 2, 3, 4, 5, 6]}
    return engine.create_table("orders", pa.table(rows))


@pytest.fixture
def shops(engine: Engine) -> TableIdent:
    return engine.create_table("shops", pa.table({"shop": ["a", "b"], "town": ["Aa", "Bb"]}))


def view_of(engine: Engine, statement: str) -> TableIdent:
    definition = ViewDefinition(ViewKind.QUERY, SourceQuery(()), statement, None, statement=statement)
    return engine.define_view("v", definition)


def shown(engine: Engine, view: TableIdent) -> list[tuple[Any, ...]]:
    rows = engine.rows(view).to_pylist()
    found = [tuple(value for name, value in row.items() if not name.startswith("__")) for row in rows]
    return sorted(found, key=repr)


TOTALS = "SELECT shop, count(*) AS n, sum(price) AS total, avg(price) AS mean FROM orders GROUP BY shop"


def test_groups_of_changed_rows_are_made_anew(engine: Engine, orders: TableIdent) -> None:
    view = view_of(engine, TOTALS)
    assert succeeded(engine.refresh(view))["mode"] == "full"
    assert shown(engine, view) == [("a", 2, 5, 2.5), ("b", 2, 7, 3.5), ("c", 1, 6, 6.0), (None, 1, 3, 3.0)]
    engine.open(orders).update({"shop": "'a'"}, where="id = 5")
    engine.open(orders).update({"price": "30"}, where="id = 2")
    result = succeeded(engine.refresh(view))
    assert (result["mode"], result["keys"]) == ("incremental", 3)
    assert shown(engine, view) == [("a", 3, 11, 11 / 3), ("b", 2, 7, 3.5), (None, 1, 30, 30.0)]
    assert result["rows_written"] == 2
    assert engine.verify(view)["is_same"]


def test_a_group_keeps_what_others_wrote_beside_it(engine: Engine, orders: TableIdent) -> None:
    view = view_of(engine, TOTALS)
    succeeded(engine.refresh(view))
    engine.open(view).add_columns({"label": "concat('shop ', shop)"})
    engine.open(orders).update({"price": "price + 1"}, where="shop = 'a'")
    succeeded(engine.refresh(view))
    labels = {row["shop"]: (row["total"], row["label"]) for row in engine.rows(view).to_pylist()}
    assert labels["a"] == (7, "shop a")


def test_a_left_join_follows_both_sides(engine: Engine, orders: TableIdent, shops: TableIdent) -> None:
    view = view_of(engine, "SELECT o.id, s.town FROM orders AS o LEFT JOIN shops AS s ON o.shop = s.shop")
    succeeded(engine.refresh(view))
    assert shown(engine, view) == [(0, "Aa"), (1, "Bb"), (2, None), (3, "Aa"), (4, "Bb"), (5, None)]
    engine.append(shops, pa.table({"shop": ["c"], "town": ["Cc"]}))
    engine.open(shops).delete("shop = 'b'")
    engine.open(orders).delete("id = 0")
    result = succeeded(engine.refresh(view))
    assert result["mode"] == "incremental"
    assert shown(engine, view) == [(1, None), (2, None), (3, "Aa"), (4, None), (5, "Cc")]
    assert [change["inserted"] for change in result["sources"]] == [0, 1]


def test_what_needs_all_rows_is_made_as_a_whole_and_unchanged_rows_stay(
    engine: Engine, orders: TableIdent
) -> None:
    view = view_of(engine, "SELECT id, price FROM orders ORDER BY price DESC LIMIT 3")
    succeeded(engine.refresh(view))
    assert shown(engine, view) == [(3, 4), (4, 5), (5, 6)]
    engine.open(orders).update({"price": "100"}, where="id = 0")
    result = succeeded(engine.refresh(view))
    assert (result["mode"], result["rows_kept"], result["rows_written"]) == ("full", 2, 1)
    assert "ORDER BY" in result["reason"]
    assert shown(engine, view) == [(0, 100), (4, 5), (5, 6)]


def test_a_column_added_to_a_source_is_no_part_of_a_star(engine: Engine, orders: TableIdent) -> None:
    view = view_of(engine, "SELECT DISTINCT * FROM orders")
    succeeded(engine.refresh(view))
    engine.open(orders).add_columns({"more": "id + 1"})
    engine.open(orders).update({"price": "9"}, where="id = 0")
    succeeded(engine.refresh(view))
    assert (0, "a", 9) in shown(engine, view)


def test_going_back_to_an_older_version(engine: Engine, orders: TableIdent) -> None:
    view = view_of(engine, TOTALS)
    succeeded(engine.refresh(view))
    old, before = engine.open(orders).version, shown(engine, view)
    engine.open(orders).delete("shop = 'a'")
    succeeded(engine.refresh(view))
    assert "a" not in {row[0] for row in shown(engine, view)}
    succeeded(engine.refresh(view, source_version=old))
    assert shown(engine, view) == before
