"""Answers of served operations against the specification's schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from lance_namespace_urllib3_client import models
from pydantic import BaseModel

import tidemill
from tests.protocol.wire import TableOnWire, commit_body, some_rows, stream
from tests.specification.answers import LANCE_PROTOCOL

INDEX = {"column": "id", "index_type": "BTREE"}

Ask = Callable[[TableOnWire], httpx.Response]


@tidemill.udf
def double(id: int) -> int:
    return id * 2


def namespace_call(action: str, body: Any = None) -> Ask:
    return lambda table: table.http.post(f"/v1/namespace/{table.namespace}/{action}", json=body or {})


def listing(what: str) -> Ask:
    return lambda table: table.http.get(f"/v1/namespace/{table.namespace}/{what}", params={"limit": 1})


def call(action: str, body: Any = None, **options: Any) -> Ask:
    return lambda table: table.post(action, body, **options)


def on_another(action: str, **options: Any) -> Ask:
    return lambda table: TableOnWire(table.http, table.namespace, "another").post(action, **options)


def after_index(action: str) -> Ask:
    """Built or not yet: the answer has the same form."""

    def ask(table: TableOnWire) -> httpx.Response:
        table.asked("create_index", INDEX)
        return table.post(action)

    return ask


def transaction_call(action: str, body: Any) -> Ask:
    return lambda table: table.http.post(
        f"/v1/transaction/{table.namespace}${table.name}$1/{action}", json=body
    )


def commit(table: TableOnWire) -> httpx.Response:
    return table.post("version/create", commit_body(2, table.stage(2)))


def registered(table: TableOnWire) -> httpx.Response:
    location = table.asked("deregister")["location"]
    return table.post("register", {"location": location})


def backfill(table: TableOnWire) -> httpx.Response:
    with tidemill.connect(str(table.http.base_url).rstrip("/")) as lake:
        lake.table(table.levels).add_column("double", double)
    return table.post("backfill_column", {"column": "double"})


CALLS: dict[str, tuple[Ask, int]] = {
    "CreateNamespaceResponse": (namespace_call("create", {"mode": "ExistOk"}), 200),
    "ListNamespacesResponse": (listing("list"), 200),
    "DescribeNamespaceResponse": (namespace_call("describe"), 200),
    "DropNamespaceResponse": (namespace_call("drop", {"behavior": "Cascade"}), 200),
    "ListTablesResponse": (listing("table/list"), 200),
    "DeclareTableResponse": (on_another("declare"), 200),
    "DescribeTableResponse": (
        call("describe", params={"with_table_uri": "true", "load_detailed_metadata": "true"}),
        200,
    ),
    "CreateTableResponse": (on_another("create", content=stream(some_rows())), 200),
    "InsertIntoTableResponse": (call("insert", content=stream(some_rows(4))), 200),
    "MergeInsertIntoTableResponse": (
        call(
            "merge_insert",
            params={"on": "id", "when_not_matched_insert_all": "true"},
            content=stream(some_rows(3)),
        ),
        200,
    ),
    "UpdateTableResponse": (call("update", {"updates": [["text", "'x'"]], "predicate": "id = 1"}), 200),
    "DeleteFromTableResponse": (call("delete", {"predicate": "id = 1"}), 200),
    "DropTableResponse": (call("drop"), 200),
    "ListTableVersionsResponse": (call("version/list"), 200),
    "CreateTableVersionResponse": (commit, 200),
    "DescribeTableVersionResponse": (call("version/describe"), 200),
    "AlterTableBackfillColumnsResponse": (backfill, 202),
    "DeregisterTableResponse": (call("deregister"), 200),
    "RegisterTableResponse": (registered, 200),
    "RenameTableResponse": (call("rename", {"new_table_name": "u"}), 200),
    "RestoreTableResponse": (call("restore", {"version": 1}), 200),
    "GetTableStatsResponse": (call("stats"), 200),
    "AlterTableAddColumnsResponse": (
        call("add_columns", {"new_columns": [{"name": "x", "expression": "id"}]}),
        200,
    ),
    "AlterTableAlterColumnsResponse": (
        call("alter_columns", {"alterations": [{"path": "id", "rename": "x"}]}),
        200,
    ),
    "AlterTableDropColumnsResponse": (call("drop_columns", {"columns": ["id"]}), 200),
    "UpdateFieldMetadataResponse": (
        call("update_field_metadata", {"updates": [{"path": "id", "metadata": {"a": "b"}}]}),
        200,
    ),
    "CreateTableIndexResponse": (call("create_index", INDEX), 200),
    "CreateTableScalarIndexResponse": (call("create_scalar_index", INDEX), 200),
    "ListTableIndicesResponse": (after_index("index/list"), 200),
    "DescribeTableIndexStatsResponse": (after_index("index/id_idx/stats"), 200),
    "DropTableIndexResponse": (after_index("index/id_idx/drop"), 200),
    "DescribeTransactionResponse": (transaction_call("describe", {}), 200),
    "AlterTransactionResponse": (
        transaction_call("alter", {"actions": [{"setPropertyAction": {"key": "a", "value": "b"}}]}),
        200,
    ),
    "ErrorResponse": (call("describe", {"version": 99}), 404),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_has_the_specified_form(table: TableOnWire, name: str) -> None:
    ask, status = CALLS[name]
    answer = ask(table)
    assert answer.status_code == status, answer.text
    LANCE_PROTOCOL.check_schema(answer.json(), name)
    assert None not in answer.json().values()


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_is_read_by_the_strict_model(table: TableOnWire, name: str) -> None:
    ask, _ = CALLS[name]
    model: type[BaseModel] = getattr(models, name)
    answer = ask(table)
    read = model.model_validate_json(answer.content, strict=True)
    assert read.model_dump(by_alias=True, exclude_none=True).keys() >= answer.json().keys()
