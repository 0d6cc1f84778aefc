"""Indexes over the wire: asked for, built by the worker, listed, measured, dropped, on every branch."""

from __future__ import annotations

import time
from typing import Any

import httpx
import lance
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi, TransactionApi
from lance_namespace_urllib3_client.models import (
    CreateTableIndexRequest,
    DescribeTableIndexStatsRequest,
    DescribeTransactionRequest,
    ListTableIndicesRequest,
)

from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, stream

DIMENSION = 16
ROWS = 300
BRANCH = "dev"


def many_rows(count: int = ROWS) -> pa.Table:
    values = np.random.default_rng(7).random(count * DIMENSION, dtype=np.float32)
    struct = pa.struct([("a", pa.int64()), ("b.c", pa.string())])
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "text": pa.array([f"row {number} of many" for number in range(count)], pa.string()),
            "tags": pa.array([[f"t{number % 3}"] for number in range(count)], pa.list_(pa.string())),
            "s": pa.array([{"a": number, "b.c": str(number)} for number in range(count)], struct),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION),
        }
    )


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


@pytest.fixture
def transactions(generated: ApiClient) -> TransactionApi:
    return TransactionApi(generated)


@pytest.fixture
def table(http: httpx.Client, namespace: str) -> TableOnWire:
    made = TableOnWire(http, namespace, "indexed")
    made.create(many_rows())
    return made


@pytest.fixture
def path(table: TableOnWire) -> str:
    return f"{table.namespace}${table.name}"


@pytest.fixture(scope="module")
def steady(http: httpx.Client) -> TableOnWire:
    """A table for requests that are refused."""
    assert http.post("/v1/namespace/steady/create", json={}).status_code == 200
    made = TableOnWire(http, "steady", "t")
    made.create(many_rows())
    return made


def transaction_of(table: TableOnWire, transaction_id: str) -> dict[str, Any]:
    answer = table.http.post(f"/v1/transaction/{transaction_id}/describe", json={})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ended(table: TableOnWire, transaction_id: str, seconds: float = 90) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = transaction_of(table, transaction_id)
        if found["status"] not in ("QUEUED", "RUNNING"):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{transaction_id} is still {found}")


def built(table: TableOnWire, action: str = "create_index", /, **body: Any) -> dict[str, Any]:
    """The index that a request leads to, as the listing shows it."""
    answer = table.asked(action, body)
    assert answer.keys() == {"transaction_id"}
    done = ended(table, answer["transaction_id"])
    assert done["status"] == "SUCCEEDED", done
    name, branch = done["properties"]["index_name"], {"branch": body.get("branch", "main")}
    listed = {index["index_name"]: index for index in table.asked("index/list", branch)["indexes"]}
    found: dict[str, Any] = listed[name]
    return found


@pytest.mark.parametrize(
    ("index_type", "column", "parameters"),
    [
        ("BTREE", "id", {}),
        ("BITMAP", "id", {}),
        ("ZONEMAP", "id", {}),
        ("BLOOMFILTER", "id", {}),
        ("LABEL_LIST", "tags", {}),
        ("NGRAM", "text", {}),
        (
            "FTS",
            "text",
            {
                "with_position": True,
                "base_tokenizer": "simple",
                "language": "German",
                "max_token_length": 30,
                "lower_case": True,
                "stem": False,
                "remove_stop_words": False,
                "ascii_folding": False,
            },
        ),
    ],
)
@pytest.mark.operation("CreateTableScalarIndex", "ListTableIndices", client="http")
def test_a_scalar_index_is_built(
    table: TableOnWire, index_type: str, column: str, parameters: dict[str, Any]
) -> None:
    found = built(table, "create_scalar_index", column=column, index_type=index_type, **parameters)
    assert (found["index_name"], found["columns"], found["index_type"]) == (
        f"{column}_idx",
        [column],
        index_type,
    )
    assert (found["status"], found["num_indexed_rows"], found["num_unindexed_rows"]) == ("SUCCEEDED", ROWS, 0)


def test_the_parameters_of_a_text_index_reach_it(table: TableOnWire) -> None:
    found = built(table, column="text", index_type="INVERTED", with_position=True, stem=False)
    details = lance.dataset(str(table.directory)).describe_indices()[0].details
    assert (details["with_position"], details["stem"], details["language"]) == (True, False, "English")
    assert '"with_position":true' in found["index_details"]


@pytest.mark.parametrize(
    ("index_type", "parameters", "wanted"),
    [
        ("IVF_FLAT", {"num_partitions": 2, "sample_rate": 10, "max_iterations": 5}, {}),
        ("IVF_PQ", {"num_sub_vectors": 4, "num_bits": 8}, {"num_sub_vectors": 4, "num_bits": 8}),
        ("IVF_PQ", {}, {"num_sub_vectors": 1, "num_bits": 8}),
        ("IVF_SQ", {"target_partition_size": 100}, {"num_bits": 8}),
        ("IVF_RQ", {"num_bits": 1}, {"num_bits": 1}),
        ("IVF_HNSW_FLAT", {"m": 8, "ef_construction": 20}, {}),
        ("IVF_HNSW_SQ", {"m": 8, "ef_construction": 20}, {}),
        ("IVF_HNSW_PQ", {"num_sub_vectors": 2, "m": 8, "ef_construction": 20}, {"num_sub_vectors": 2}),
    ],
)
@pytest.mark.operation("CreateTableIndex", "ListTableIndices", client="http")
def test_a_vector_index_is_built(
    table: TableOnWire, index_type: str, parameters: dict[str, Any], wanted: dict[str, Any]
) -> None:
    found = built(
        table, column="vector", index_type=index_type, distance_type="cosine", name="near", **parameters
    )
    assert (found["index_name"], found["index_type"], found["num_indexed_rows"]) == ("near", index_type, ROWS)
    details = lance.dataset(str(table.directory)).describe_indices()[0].details
    assert details["metric_type"] == "COSINE"
    assert wanted.items() <= details.get("compression", {}).items()
    if "HNSW" in index_type:
        assert (details["hnsw"]["max_connections"], details["hnsw"]["construction_ef"]) == (8, 20)
    stats = table.asked("index/near/stats", {})
    assert stats == {
        "distance_type": "cosine",
        "index_type": index_type,
        "num_indexed_rows": ROWS,
        "num_unindexed_rows": 0,
        "num_indices": 1,
    }


@pytest.mark.operation(
    "CreateTableIndex", "ListTableIndices", "DescribeTableIndexStats", "DropTableIndex", client="urllib3"
)
def test_an_index_lives_and_dies_through_the_generated_client(
    tables: TableApi, transactions: TransactionApi, table: TableOnWire, path: str
) -> None:
    created = tables.create_table_index(path, CreateTableIndexRequest(column="id", index_type="btree"))
    assert created.transaction_id is not None
    assert ended(table, created.transaction_id)["status"] == "SUCCEEDED"
    described = transactions.describe_transaction(created.transaction_id, DescribeTransactionRequest())
    assert described.properties is not None
    assert described.properties["index_name"] == "id_idx"
    (index,) = tables.list_table_indices(path, ListTableIndicesRequest()).indexes
    assert (index.index_name, index.columns, index.index_type) == ("id_idx", ["id"], "BTREE")
    assert index.created_at is not None
    table.insert(many_rows(5))
    stats = tables.describe_table_index_stats(path, "id_idx", DescribeTableIndexStatsRequest())
    assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (ROWS, 5)
    dropped = tables.drop_table_index(path, "id_idx")
    assert dropped.transaction_id is not None
    commit = transactions.describe_transaction(
        f"{path}${dropped.transaction_id}", DescribeTransactionRequest()
    )
    assert (commit.status, (commit.properties or {})["operation"]) == ("SUCCEEDED", "CreateIndex")
    assert tables.list_table_indices(path, ListTableIndicesRequest()).indexes == []
    with pytest.raises(ApiException) as raised:
        tables.drop_table_index(path, "id_idx")
    assert refusal(raised) == (404, 6)


def test_a_nested_field_is_indexed_under_its_canonical_path(table: TableOnWire) -> None:
    found = built(table, column="`s`.`b.c`", index_type="BITMAP", name="inner")
    assert found["columns"] == ["s.`b.c`"]


def test_an_index_is_on_the_branch_it_was_asked_for(table: TableOnWire) -> None:
    table.asked("branches/create", {"name": BRANCH})
    found = built(table, column="id", index_type="BTREE", branch=BRANCH)
    assert found["num_indexed_rows"] == ROWS
    assert table.asked("index/list", {})["indexes"] == []
    check_refusal(table.post("index/id_idx/stats", {}), 404, 6)
    assert table.asked("index/id_idx/stats", {"branch": BRANCH})["num_indexed_rows"] == ROWS
    check_refusal(table.post("index/id_idx/drop"), 404, 6)
    assert table.asked("index/id_idx/drop", params={"branch": BRANCH}) == {}
    assert table.asked("index/list", {"branch": BRANCH})["indexes"] == []
    assert table.numbers() == [1]


def test_an_index_is_not_part_of_versions_before_it(table: TableOnWire) -> None:
    built(table, column="id", index_type="BTREE")
    assert table.asked("index/list", {"version": 1})["indexes"] == []
    assert len(table.asked("index/list", {"version": 2})["indexes"]) == 1
    check_refusal(table.post("index/id_idx/stats", {"version": 1}), 404, 6)
    check_refusal(table.post("index/list", {"version": 9}), 404, 11)


def test_indexes_are_listed_page_by_page(table: TableOnWire) -> None:
    for name in ("a", "b", "c"):
        built(table, column="id", index_type="BTREE", name=name)
    first = table.asked("index/list", {"limit": 2})
    assert [index["index_name"] for index in first["indexes"]] == ["a", "b"]
    rest = table.asked("index/list", {"limit": 2, "page_token": first["page_token"]})
    assert ([index["index_name"] for index in rest["indexes"]], "page_token" in rest) == (["c"], False)


def test_an_index_of_that_name_is_kept_unless_it_may_be_replaced(table: TableOnWire) -> None:
    first = built(table, column="id", index_type="BTREE")
    check_refusal(table.post("create_index", {"column": "id", "index_type": "BITMAP"}), 409, 7)
    second = built(table, column="id", index_type="BITMAP", replace=True)
    assert second["index_type"] == "BITMAP"
    assert second["index_uuid"] != first["index_uuid"]


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"column": "nope", "index_type": "BTREE"}, 404, 12, ""),
        ({"column": "id", "index_type": "ZORK"}, 400, 13, "index_type"),
        ({"index_type": "BTREE"}, 400, 13, "column"),
        ({"column": "id"}, 400, 13, "index_type"),
        ({"column": "vector", "index_type": "BTREE"}, 400, 13, "index_type"),
        ({"column": "id", "index_type": "LABEL_LIST"}, 400, 13, "index_type"),
        ({"column": "id", "index_type": "FTS"}, 400, 13, "index_type"),
        ({"column": "id", "index_type": "NGRAM"}, 400, 13, "index_type"),
        ({"column": "id", "index_type": "RTREE"}, 400, 13, "index_type"),
        ({"column": "id", "index_type": "IVF_FLAT"}, 400, 13, "column"),
        ({"column": "vector", "index_type": "IVF_PQ", "num_sub_vectors": 3}, 400, 13, "num_sub_vectors"),
        ({"column": "vector", "index_type": "IVF_PQ", "num_bits": 5}, 400, 13, "num_bits"),
        ({"column": "vector", "index_type": "IVF_RQ", "num_bits": 10}, 400, 13, "index_type"),
        ({"column": "vector", "index_type": "IVF_FLAT", "distance_type": "zork"}, 400, 13, "distance_type"),
        ({"column": "vector", "index_type": "IVF_FLAT", "distance_type": "hamming"}, 400, 13, "index_type"),
        ({"column": "vector", "index_type": "IVF_HNSW_SQ", "m": 1}, 400, 13, "index_type"),
        ({"column": "vector", "index_type": "IVF_FLAT", "num_partitions": 0}, 400, 13, "num_partitions"),
        ({"column": "text", "index_type": "FTS", "language": "Klingon"}, 400, 13, "index_type"),
        ({"column": "text", "index_type": "FTS", "base_tokenizer": "zork"}, 400, 13, "index_type"),
        ({"column": "id", "index_type": "BTREE", "distance_type": "l2"}, 400, 13, "distance_type"),
        ({"column": "id", "index_type": "BTREE", "zork": 1}, 400, 13, "zork"),
        ({"column": "id", "index_type": "BTREE", "branch": "nope"}, 404, 22, ""),
    ],
)
def test_an_index_that_cannot_be_built_is_refused(
    steady: TableOnWire, body: dict[str, Any], status: int, code: int, field: str
) -> None:
    check_refusal(steady.post("create_index", body), status, code, field)
    assert steady.asked("index/list", {})["indexes"] == []


def test_a_vector_index_is_not_a_scalar_index(steady: TableOnWire) -> None:
    answer = steady.post("create_scalar_index", {"column": "vector", "index_type": "IVF_PQ"})
    check_refusal(answer, 400, 13, "index_type")


@pytest.mark.parametrize(("index_type", "count"), [("IVF_PQ", 255), ("IVF_FLAT", 0)])
def test_too_few_rows_to_train_with_are_said_at_once(
    http: httpx.Client, namespace: str, index_type: str, count: int
) -> None:
    small = TableOnWire(http, namespace, "small")
    small.asked("create", content=stream(many_rows(count)))
    answer = small.post("create_index", {"column": "vector", "index_type": index_type})
    check_refusal(answer, 400, 13, "index_type")
    assert f"has {count}" in answer.json()["error"]


def test_a_scalar_index_can_be_built_on_no_rows(http: httpx.Client, namespace: str) -> None:
    empty = TableOnWire(http, namespace, "empty")
    empty.asked("create", content=stream(many_rows(0)))
    assert built(empty, column="id", index_type="BTREE")["num_indexed_rows"] == 0


def test_vectors_that_are_all_null_fail_the_job_with_words(http: httpx.Client, namespace: str) -> None:
    table = TableOnWire(http, namespace, "nulls")
    vectors = pa.nulls(5, pa.list_(pa.float32(), DIMENSION))
    table.create(pa.table({"id": range(5), "vector": vectors}))
    answer = table.asked("create_index", {"column": "vector", "index_type": "IVF_FLAT"})
    done = ended(table, answer["transaction_id"])
    assert done["status"] == "FAILED"
    assert "needs at least 1 rows with a value in 'vector'" in done["properties"]["error"]


def test_the_same_key_gives_the_same_build(table: TableOnWire) -> None:
    body, headers = {"column": "id", "index_type": "BTREE"}, {"Idempotency-Key": f"key-{table.namespace}"}
    first = table.asked("create_index", body, headers=headers)
    assert ended(table, first["transaction_id"])["status"] == "SUCCEEDED"
    assert table.asked("create_index", body, headers=headers) == first


def test_a_missing_table_has_no_indexes(http: httpx.Client, namespace: str) -> None:
    missing = TableOnWire(http, namespace, "missing")
    for action, body in [
        ("create_index", {"column": "id", "index_type": "BTREE"}),
        ("index/list", {}),
        ("index/x/stats", {}),
        ("index/x/drop", None),
    ]:
        check_refusal(missing.post(action, body), 404, 4)
