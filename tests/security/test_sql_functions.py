"""Functions that views given as SQL may not call, however they are written and wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tests.security.counting import count_attack
from tidemill.errors import InvalidInput
from tidemill.jobs.views.sql.functions import NOT_ALLOWED
from tidemill.jobs.views.sql.plan import plan_sql

SOURCES = [(("t",), pa.schema([("a", pa.int64()), ("s", pa.string()), ("v", pa.list_(pa.int64()))]))]
WRITINGS = (
    "{name}(s)",
    "{upper}(s)",
    "`{name}`(s)",
    "`{upper}`(s)",
    '"{name}"(s)',
    "{name}/**/(s)",
    "{name} -- x\n (s)",
    "system.builtin.{name}(s)",
    "`system`.`builtin`.`{name}`(s)",
    "spark_catalog.default.{name}(s)",
    "session.{name}(s)",
    "{{fn {name}(s)}}",
)
PLACES = (
    "SELECT CAST({call} AS STRING) AS x, count(*) AS n FROM t GROUP BY 1",
    "SELECT a, count(*) AS n FROM t WHERE {call} = 'x' GROUP BY a",
    "SELECT a, count(*) AS n FROM t GROUP BY a HAVING max({call}) = 'x'",
    "SELECT a FROM t ORDER BY {call}",
    "SELECT l.a FROM t AS l JOIN t AS r ON l.a = r.a AND {call} = 'x'",
    "SELECT a, row_number() OVER (PARTITION BY {call} ORDER BY a) AS n FROM t",
    "SELECT a FROM t WHERE a IN (SELECT a FROM t WHERE {call} = 'x')",
    "SELECT a, CAST(transform(v, e -> {call}) AS ARRAY<STRING>) AS x FROM t ORDER BY a",
    "SELECT a, CAST(x AS STRING) AS x FROM t LATERAL VIEW explode(array({call})) y AS x",
    "SELECT a, CAST(x AS STRING) AS x FROM t LATERAL VIEW explode(v) `y, {call}` AS x",
)


def statements() -> Iterator[str]:
    for name in NOT_ALLOWED:
        for writing in WRITINGS:
            call = writing.format(name=name, upper=name.upper())
            yield from (place.format(call=call) for place in PLACES)


def attack() -> tuple[int, list[str], list[str]]:
    """How many statements were tried, those that got through, and those that ended in another error."""
    tried, through, errors = 0, [], []
    for statement in statements():
        tried += 1
        try:
            plan = plan_sql(statement, SOURCES, "query")
        except InvalidInput:
            continue
        except Exception:  # noqa: BLE001 (any other error would be a 500)
            errors.append(statement)
            continue
        if "`y, " not in plan.statement:
            through.append(statement)
    return tried, through, errors


def test_no_function_outside_of_the_allow_list_gets_through() -> None:
    tried, through, errors = attack()
    count_attack("SQL functions that are not allowed", times=tried)
    for _ in through:
        count_attack("SQL functions that are not allowed", got_through=True, times=0)
    for _ in errors:
        count_attack("SQL functions that are not allowed", status=500, times=0)
    assert tried == len(NOT_ALLOWED) * len(WRITINGS) * len(PLACES)
    assert (through[:5], errors[:5]) == ([], [])
