"""Transactions over the wire: commits and jobs described, noted on, stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import lance
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, TransactionApi
from lance_namespace_urllib3_client.models import (
    AlterTransactionAction,
    AlterTransactionRequest,
    AlterTransactionSetProperty,
    AlterTransactionUnsetProperty,
    DescribeTransactionRequest,
)

from tests.conftest import RunningServer, start_server
from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, some_rows


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without a worker: its jobs wait."""
    running = start_server(tmp_path_factory.mktemp("idle"), "--no-worker")
    yield running
    running.stop()


@pytest.fixture
def waiting(idle: RunningServer) -> Iterator[TableOnWire]:
    with httpx.Client(base_url=idle.url, timeout=60) as client:
        made = TableOnWire(client, f"n{uuid4().hex[:12]}", "t")
        client.post(f"/v1/namespace/{made.namespace}/create", json={})
        made.create(some_rows())
        yield made


@pytest.fixture
def transactions(generated: ApiClient) -> TransactionApi:
    return TransactionApi(generated)


@pytest.fixture
def commit(table: TableOnWire) -> str:
    table.insert(some_rows(4))
    return f"{table.namespace}${table.name}$2"


def submitted(table: TableOnWire, name: str = "i") -> str:
    body = {"column": "id", "index_type": "BTREE", "name": name}
    transaction_id: str = table.asked("create_index", body)["transaction_id"]
    return transaction_id


def described(table: TableOnWire, transaction: str) -> Any:
    answer = table.http.post(f"/v1/transaction/{transaction}/describe", json={})
    assert answer.status_code == 200, answer.text
    return answer.json()


def altered(table: TableOnWire, transaction: str, *actions: dict[str, Any]) -> httpx.Response:
    return table.http.post(f"/v1/transaction/{transaction}/alter", json={"actions": list(actions)})


def put(key: str, value: str, **more: str) -> dict[str, Any]:
    return {"setPropertyAction": {"key": key, "value": value, **more}}


def remove(key: str, **more: str) -> dict[str, Any]:
    return {"unsetPropertyAction": {"key": key, **more}}


def status(value: str) -> dict[str, Any]:
    return {"setStatusAction": {"status": value}}


@pytest.mark.operation("DescribeTransaction", client="urllib3")
def test_a_commit_tells_what_lance_wrote_about_it(
    transactions: TransactionApi, table: TableOnWire, commit: str
) -> None:
    answer = transactions.describe_transaction(commit, DescribeTransactionRequest())
    wanted = lance.dataset(str(table.directory)).read_transaction(2)
    assert wanted is not None
    assert answer.status == "SUCCEEDED"
    assert answer.properties == {
        "uuid": wanted.uuid,
        "operation": "Append",
        "read_version": "1",
        "version": "2",
        "branch": "main",
    }


def test_a_commit_is_found_by_its_uuid(table: TableOnWire, commit: str) -> None:
    by_version = described(table, commit)
    uuid = by_version["properties"]["uuid"]
    assert described(table, f"{table.namespace}${table.name}${uuid}") == by_version


def test_another_delimiter_is_understood(table: TableOnWire, commit: str) -> None:
    path = f"/v1/transaction/{table.namespace}.{table.name}.2/describe"
    answer = table.http.post(path, json={"id": [*table.levels, "2"]}, params={"delimiter": "."})
    assert answer.json() == described(table, commit)


@pytest.mark.parametrize(
    "transaction",
    [
        "nope",
        "{0}$99",
        "{0}$0",
        "{0}$x",
        "{0}$01900000-0000-7000-8000-000000000000",
        "{1}$none$1",
        "none$t$1",
    ],
)
def test_an_unknown_transaction_is_not_found(still: TableOnWire, transaction: str) -> None:
    path = transaction.format("$".join(still.levels), still.namespace)
    for action, body in (("describe", {}), ("alter", {"actions": [put("a", "1")]})):
        check_refusal(still.http.post(f"/v1/transaction/{path}/{action}", json=body), 404, 10)


@pytest.mark.operation("AlterTransaction", client="urllib3")
def test_properties_are_kept_with_a_commit(transactions: TransactionApi, commit: str) -> None:
    actions = [
        AlterTransactionAction(setPropertyAction=AlterTransactionSetProperty(key="who", value="me")),
        AlterTransactionAction(setPropertyAction=AlterTransactionSetProperty(key="why", value="so")),
        AlterTransactionAction(unsetPropertyAction=AlterTransactionUnsetProperty(key="why")),
    ]
    answer = transactions.alter_transaction(commit, AlterTransactionRequest(actions=actions))
    found = transactions.describe_transaction(commit, DescribeTransactionRequest())
    assert (answer.status, answer.properties) == ("SUCCEEDED", found.properties)
    assert found.properties is not None
    assert (found.properties["who"], "why" in found.properties) == ("me", False)


def test_properties_stay_when_the_table_is_renamed(table: TableOnWire, commit: str) -> None:
    altered(table, commit, put("who", "me"))
    table.asked("rename", {"new_table_name": "renamed"})
    assert described(table, f"{table.namespace}$renamed$2")["properties"]["who"] == "me"


@pytest.mark.operation("AlterTransaction", client="http")
def test_modes_say_what_to_do_with_a_key_that_is_there(table: TableOnWire, commit: str) -> None:
    assert altered(table, commit, put("a", "1")).json()["properties"]["a"] == "1"
    assert altered(table, commit, put("a", "2", mode="skip")).json()["properties"]["a"] == "1"
    assert altered(table, commit, put("a", "3", mode="OVERWRITE")).json()["properties"]["a"] == "3"
    check_refusal(altered(table, commit, put("a", "4", mode="Fail")), 409, 14)
    assert altered(table, commit, put("b", "4", mode="Fail")).json()["properties"]["b"] == "4"


def test_modes_say_what_to_do_with_a_key_that_is_missing(table: TableOnWire, commit: str) -> None:
    assert altered(table, commit, remove("a", mode="Skip")).status_code == 200
    check_refusal(altered(table, commit, remove("a", mode="fail")), 409, 14)


def test_all_actions_happen_or_none(table: TableOnWire, commit: str) -> None:
    before = described(table, commit)
    check_refusal(altered(table, commit, put("a", "1"), remove("b", mode="Fail")), 409, 14)
    check_refusal(altered(table, commit, put("a", "1"), status("Canceled")), 409, 14)
    assert described(table, commit) == before


@pytest.mark.parametrize(
    ("actions", "field"),
    [
        ([], "actions"),
        ([{}], "actions[0]"),
        ([{"setStatusAction": None}], "actions[0]"),
        ([put("a", "1") | remove("a")], "actions[0]"),
        ([put("a", "1"), {"zork": {}}], "actions[1].zork"),
        ([{"setPropertyAction": {"key": "a"}}], "actions[0].setPropertyAction.value"),
        ([{"setPropertyAction": {"value": "a"}}], "actions[0].setPropertyAction.key"),
        ([put("a", "1", mode="zork")], "actions[0].setPropertyAction.mode"),
        ([remove("a", mode="overwrite")], "actions[0].unsetPropertyAction.mode"),
        ([status("zork")], "actions[0].setStatusAction.status"),
        ([put("uuid", "1")], "actions[0].key"),
        ([remove("operation")], "actions[0].key"),
    ],
)
def test_senseless_actions_are_refused(still: TableOnWire, actions: list[Any], field: str) -> None:
    check_refusal(altered(still, f"{'$'.join(still.levels)}$1", *actions), 400, 13, field)


def test_a_status_that_is_already_so_changes_nothing(table: TableOnWire, commit: str) -> None:
    assert altered(table, commit, status("succeeded")).json()["status"] == "SUCCEEDED"


@pytest.mark.operation("AlterTransaction", "DescribeTransaction", "ListTableIndices", client="http")
def test_an_index_build_that_waits_is_seen_and_stopped(waiting: TableOnWire) -> None:
    job = submitted(waiting)
    assert described(waiting, job)["status"] == "QUEUED"
    assert described(waiting, f"{'$'.join(waiting.levels)}${job}") == described(waiting, job)
    (index,) = waiting.asked("index/list", {})["indexes"]
    assert index == {
        "index_name": "i",
        "index_uuid": job,
        "columns": ["id"],
        "status": "PENDING",
        "index_type": "BTREE",
    }
    stats = waiting.asked("index/i/stats", {})
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"], stats["num_indices"]) == (0, 3, 0)
    check_refusal(
        waiting.post("create_index", {"column": "id", "index_type": "BITMAP", "name": "i"}), 409, 14
    )
    stopped = altered(waiting, job, put("who", "me"), status("Canceled"))
    assert (stopped.status_code, stopped.json()["status"]) == (200, "CANCELED")
    assert described(waiting, job)["properties"]["who"] == "me"
    assert waiting.asked("index/list", {})["indexes"] == []
    check_refusal(altered(waiting, job, status("Running")), 409, 14)
    check_refusal(waiting.post("index/i/stats", {}), 404, 6)


def test_an_index_that_is_dropped_before_it_is_there_is_not_built(waiting: TableOnWire) -> None:
    job = submitted(waiting)
    assert waiting.asked("index/i/drop") == {}
    assert described(waiting, job)["status"] == "CANCELED"
    check_refusal(waiting.post("index/i/drop"), 404, 6)


def test_each_name_has_its_own_build(waiting: TableOnWire) -> None:
    assert len({submitted(waiting, name) for name in ("a", "b")}) == 2


def test_a_job_of_another_table_is_not_found_under_this_one(waiting: TableOnWire) -> None:
    job = submitted(waiting, "other")
    answer = waiting.http.post(f"/v1/transaction/elsewhere$t${job}/describe", json={})
    check_refusal(answer, 404, 10)


def test_the_generated_client_reads_the_refusal(transactions: TransactionApi) -> None:
    with pytest.raises(ApiException) as raised:
        transactions.describe_transaction("nope", DescribeTransactionRequest())
    assert refusal(raised) == (404, 10)
