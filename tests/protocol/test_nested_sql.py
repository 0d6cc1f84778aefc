"""SQL that is nested too deeply, wherever the server reads SQL: refused with the name of the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import uuid4

import httpx
import pytest

from tests.protocol.view_wire import view
from tests.protocol.wire import TableOnWire, check_refusal

LEVELS = [51, 1000]
EXPRESSIONS: Mapping[str, Callable[[int], str]] = {
    "parentheses": lambda levels: f"{'(' * levels}id{')' * levels}",
    "calls": lambda levels: f"{'abs(' * levels}id{')' * levels}",
    "casts": lambda levels: f"{'CAST(' * levels}id{' AS BIGINT)' * levels}",
}


@pytest.fixture(params=LEVELS)
def levels(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(params=EXPRESSIONS)
def expression(request: pytest.FixtureRequest, levels: int) -> str:
    return EXPRESSIONS[request.param](levels)[:8000]


def statements(table: TableOnWire, expression: str) -> dict[str, str]:
    source = ".".join(table.levels)
    return {
        "a grouped view": f"SELECT text, max({expression}) AS b FROM {source} GROUP BY text",
        "a scan": f"SELECT {expression} AS b FROM {source}",
        "a condition": f"SELECT id FROM {source} WHERE {expression} > 1",
        "a join": f"SELECT l.id FROM {source} AS l JOIN {source} AS r ON {expression} = 1",
    }


def test_a_materialized_view_is_not_made_of_it(unchanged: TableOnWire, expression: str) -> None:
    for statement in statements(unchanged, expression).values():
        body = view(statement, output_schema=None)
        name = f"/v1/materialized_view/{unchanged.namespace}$v{uuid4().hex}/create"
        answer = unchanged.http.post(name, json=body)
        check_refusal(answer, 400, 13)
        assert answer.json()["error"].startswith("source_query")


def test_a_stored_query_is_not_made_of_it(unchanged: TableOnWire, expression: str) -> None:
    for kind in ("a scan", "a condition"):
        body = {"query": statements(unchanged, expression)[kind]}
        name = f"/v1/view/{unchanged.namespace}$v{uuid4().hex}/create"
        check_refusal(unchanged.http.post(name, json=body), 400, 13)


def test_rows_are_not_changed_by_it(unchanged: TableOnWire, expression: str) -> None:
    update = {"updates": [["id", expression]]}
    check_refusal(unchanged.post("update", update), 400, 13)
    check_refusal(unchanged.post("update", {**update, "predicate": f"{expression} = 1"}), 400, 13)
    check_refusal(unchanged.post("delete", {"predicate": f"{expression} = 1"}), 400, 13)


def test_a_column_is_not_computed_by_it(unchanged: TableOnWire, expression: str) -> None:
    body = {"new_columns": [{"name": f"c{uuid4().hex}", "expression": expression}]}
    check_refusal(unchanged.post("add_columns", body), 400, 13)


def test_events_are_not_filtered_by_it(http: httpx.Client, table: TableOnWire, levels: int) -> None:
    table.asked("create_scalar_index", {"column": "id", "index_type": "BTREE"})
    job = http.post("/v1/jobs/list", json={}).json()["jobs"][0]["job_id"]
    condition = f"{'(' * levels}state = 'done'{')' * levels}"
    answer = http.post("/v1/jobs/query_events", json={"job_id": job, "filter": condition})
    check_refusal(answer, 400, 13, "filter")
