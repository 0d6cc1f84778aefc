"""Queries and counts through the client generated from the specification."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import CountTableRowsRequest, QueryTableRequest

from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, some_rows

ARROW_FILE = "application/vnd.apache.arrow.file"


@pytest.fixture(scope="module")
def queried(http: Any) -> TableOnWire:
    """Two versions: rows 1 to 5, then 1 to 8."""
    table = TableOnWire(http, "queried", "t")
    assert http.post("/v1/namespace/queried/create", json={}).status_code == 200
    table.create(some_rows(count=5))
    table.insert(some_rows(6, 3))
    return table


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


def query(tables: TableApi, table: TableOnWire, **request: Any) -> pa.Table:
    asked = QueryTableRequest.model_validate({"k": 100, "vector": {}, **request})
    answer = tables.query_table_with_http_info("$".join(table.levels), asked)
    assert answer.status_code == 200
    assert answer.headers is not None
    assert answer.headers["content-type"] == ARROW_FILE
    return pa.ipc.open_file(answer.raw_data).read_all()


def ids(found: pa.Table) -> list[int]:
    numbers: list[int] = found["id"].to_pylist()
    return numbers


def test_all_rows_are_found(tables: TableApi, queried: TableOnWire) -> None:
    assert query(tables, queried) == some_rows(count=8)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("id > 6", [7, 8]),
        ("text = 'row 2' OR id IN (4, 5)", [2, 4, 5]),
        ("id > 100", []),
        ("text LIKE '%3'", [3]),
    ],
)
def test_a_filter_chooses_rows(
    tables: TableApi, queried: TableOnWire, condition: str, found: list[int]
) -> None:
    assert ids(query(tables, queried, filter=condition)) == found


def test_columns_are_chosen_by_name(tables: TableApi, queried: TableOnWire) -> None:
    found = query(tables, queried, columns={"column_names": ["text", "id"]}, k=1)
    assert found.to_pylist() == [{"text": "row 1", "id": 1}]


def test_columns_are_computed_by_alias(tables: TableApi, queried: TableOnWire) -> None:
    found = query(tables, queried, columns={"column_aliases": {"double": "id * 2"}}, k=2)
    assert found.to_pylist() == [{"double": 2}, {"double": 4}]


def test_the_nearest_rows_come_first(tables: TableApi, queried: TableOnWire) -> None:
    found = query(tables, queried, vector={"single_vector": [6.1, 0.0]}, k=3)
    assert ids(found) == [6, 7, 5]
    assert found["_distance"].to_pylist() == sorted(found["_distance"].to_pylist())


def test_the_nearest_rows_may_be_filtered(tables: TableApi, queried: TableOnWire) -> None:
    found = query(tables, queried, vector={"single_vector": [6.1, 0.0]}, k=2, filter="id < 4", prefilter=True)
    assert ids(found) == [3, 2]


def test_the_vector_column_may_be_named(tables: TableApi, queried: TableOnWire) -> None:
    found = query(tables, queried, vector={"single_vector": [1.0, 0.0]}, vector_column="vector", k=1)
    assert ids(found) == [1]


def test_the_distance_may_be_chosen(tables: TableApi, queried: TableOnWire) -> None:
    found = query(tables, queried, vector={"single_vector": [1.0, 0.0]}, distance_type="dot", k=1)
    assert ids(found) == [8]


def test_rows_are_limited_and_skipped(tables: TableApi, queried: TableOnWire) -> None:
    assert ids(query(tables, queried, k=2, offset=3)) == [4, 5]


def test_row_ids_come_if_asked_for(tables: TableApi, queried: TableOnWire) -> None:
    assert query(tables, queried, with_row_id=True, k=2)["_rowid"].to_pylist() == [0, 1]


def test_an_older_version_is_queried(tables: TableApi, queried: TableOnWire) -> None:
    assert ids(query(tables, queried, version=1)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("request_fields", "count"),
    [({}, 8), ({"version": 1}, 5), ({"predicate": "id > 6"}, 2), ({"predicate": "id > 3", "version": 1}, 2)],
)
def test_rows_are_counted(
    tables: TableApi, queried: TableOnWire, request_fields: dict[str, Any], count: int
) -> None:
    answer = tables.count_table_rows_with_http_info(
        "$".join(queried.levels), CountTableRowsRequest(**request_fields)
    )
    assert (answer.status_code, answer.data, answer.raw_data) == (200, count, str(count).encode())


@pytest.mark.parametrize(
    ("request_fields", "expected"),
    [
        ({"columns": {"column_names": ["nowhere"]}}, (404, 12)),
        ({"vector": {"single_vector": [1.0, 0.0]}, "vector_column": "nowhere"}, (404, 12)),
        ({"vector": {"single_vector": [1.0, 0.0, 0.0]}}, (400, 13)),
        ({"distance_type": "manhattan"}, (400, 13)),
        ({"filter": "nowhere = 1"}, (400, 13)),
        ({"filter": "id = "}, (400, 13)),
        ({"branch": "dev"}, (404, 22)),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    tables: TableApi, queried: TableOnWire, request_fields: dict[str, Any], expected: tuple[int, int]
) -> None:
    with pytest.raises(ApiException) as raised:
        query(tables, queried, **request_fields)
    assert refusal(raised) == expected
