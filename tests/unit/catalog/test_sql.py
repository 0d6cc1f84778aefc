"""SQL that is nested too deeply is refused, in the small stacks of threads as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from tidemill.catalog.model.sql import MAX_NESTING, bounded_nesting
from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.plan import is_plain_scan, plan_sql, sql_sources

SOURCES = [(("t",), pa.schema([("a", pa.int64()), ("s", pa.string())]))]
# More than a request has on its way to the planner.
FRAMES_BELOW = 100
SHAPES: Mapping[str, Callable[[int], str]] = {
    "parentheses": lambda n: f"SELECT {'(' * n}a{')' * n} AS b FROM t",
    "calls": lambda n: f"SELECT {'abs(' * n}a{')' * n} AS b FROM t",
    "conditions": lambda n: f"SELECT a FROM t WHERE {'(' * n}a > 1{')' * n}",
    "casts": lambda n: f"SELECT {'CAST(' * n}a{' AS BIGINT)' * n} AS b FROM t",
    "subqueries": lambda n: f"SELECT a FROM {'(SELECT a FROM ' * n}t{') AS q' * n}",
    "arrays": lambda n: f"SELECT {'array(' * n}a{')' * n} AS b FROM t",
}
CHAINS: Mapping[str, Callable[[int], str]] = {
    "additions": lambda n: f"SELECT a{' + a' * n} AS b FROM t",
    "negations": lambda n: f"SELECT a FROM t WHERE {'NOT ' * n}a > 1",
    "cases": lambda n: f"SELECT {'CASE WHEN a > 1 THEN ' * n}a{' END' * n} AS b FROM t",
    "types": lambda n: f"SELECT CAST(NULL AS {'ARRAY<' * n}INT{'>' * n}) AS b FROM t",
    "negated cases": lambda n: f"SELECT {'-(CASE WHEN a > 1 THEN ' * n}a{' END)' * n} AS b FROM t",
    "fields": lambda n: f"SELECT a{'.x' * n} AS b FROM t",
}


def in_a_thread(work: Callable[[], object]) -> object:
    def deeper(frames: int) -> object:
        return deeper(frames - 1) if frames else work()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(deeper, FRAMES_BELOW).result()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_statement_at_the_limit_is_planned(shape: str) -> None:
    statement = SHAPES[shape](MAX_NESTING)
    in_a_thread(lambda: plan_sql(statement, SOURCES, "query"))


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 50, 5000])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_statement_beyond_the_limit_is_refused(shape: str, levels: int) -> None:
    statement = SHAPES[shape](levels)
    for work in (lambda: plan_sql(statement, SOURCES, "query"), lambda: sql_sources(statement, "query")):
        with pytest.raises(InvalidInput, match="query: is nested too deeply; at most 25 levels"):
            in_a_thread(work)


@pytest.mark.parametrize("length", [20, 60, 400])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_is_planned_or_refused(chain: str, length: int) -> None:
    with suppress(InvalidInput):
        in_a_thread(lambda: plan_sql(CHAINS[chain](length), SOURCES, "query"))


@pytest.mark.parametrize("levels", [10, 50, 500])
@pytest.mark.parametrize("shape", SHAPES)
def test_whether_it_is_a_plain_scan_is_told_of_any_statement(shape: str, levels: int) -> None:
    in_a_thread(lambda: is_plain_scan(SHAPES[shape](levels)))


@pytest.mark.parametrize("quote", ["'", '"', "`"])
def test_brackets_in_quotes_do_not_count(quote: str) -> None:
    with bounded_nesting(f"SELECT {quote}{'(' * 100}{quote}", "query"):
        pass


def test_brackets_side_by_side_do_not_count() -> None:
    with bounded_nesting("SELECT " + "abs(a), " * 100, "query"):
        pass
