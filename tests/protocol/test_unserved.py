"""Operations of the specification that are not served: known, refused as unsupported, without effect."""

from __future__ import annotations

import pytest

from tests.protocol.wire import TableOnWire, check_refusal

ACTIONS = [
    "register",
    "deregister",
    "restore",
    "rename",
    "schema_metadata/update",
    "version/delete",
    "alter_columns",
    "update_field_metadata",
    "drop_columns",
    "stats",
    "merge_insert",
    "update",
    "delete",
    "explain_plan",
    "analyze_plan",
    "create_index",
    "create_scalar_index",
    "index/list",
    "index/i/stats",
    "index/i/drop",
    "tags/list",
    "tags/version",
    "tags/create",
    "tags/delete",
    "tags/update",
    "branches/list",
    "branches/create",
    "branches/delete",
]
TARGETS = [
    "/v1/table/version/batch-create",
    "/v1/table/batch-commit",
    "/v1/transaction/x/describe",
    "/v1/transaction/x/alter",
    "/v1/jobs/pause",
    "/v1/jobs/resume",
]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_operation_on_a_table_is_unsupported(unchanged: TableOnWire, action: str) -> None:
    check_refusal(unchanged.post(action, {"version": 1, "tag": "x", "predicate": "true"}), 406, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_an_operation_on_anything_else_is_unsupported(still: TableOnWire, target: str) -> None:
    check_refusal(still.http.post(target, json={}), 406, 0)


def test_the_listing_of_all_tables_is_unsupported(still: TableOnWire) -> None:
    check_refusal(still.http.get("/v1/table"), 406, 0)


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("describe", {"tag": "gold"}, "tag"),
        ("query", {"k": 1, "order_by": [{"column": "id"}]}, "order_by"),
        ("query", {"k": 1, "upper_bound": 1.0}, "upper_bound"),
        ("query", {"k": 1, "vector": [[1.0, 0.0], [2.0, 0.0]]}, "vector"),
        ("query", {"k": 1, "full_text_query": {"structured_query": {}}}, "full_text_query"),
        ("add_columns", {"new_columns": [{"name": "x", "expression": "id"}]}, "new_columns[0].expression"),
        ("add_columns", {"function": {"name": "f"}}, "function"),
    ],
)
def test_an_option_that_is_not_served_is_named(
    unchanged: TableOnWire, action: str, body: object, field: str
) -> None:
    check_refusal(unchanged.post(action, body), 406, 0, field)


def test_the_place_of_a_table_is_not_the_clients_choice(still: TableOnWire) -> None:
    elsewhere = TableOnWire(still.http, still.namespace, "elsewhere")
    check_refusal(elsewhere.post("declare", {"location": "/tmp/x"}), 406, 0, "location")
    check_refusal(elsewhere.post("exists"), 404, 4)
