"""Queries, their plans and counts through the client generated from the specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest
from lance.namespace import RestNamespace
from lance_namespace_urllib3_client import ApiClient, ApiException, TableApi
from lance_namespace_urllib3_client.models import (
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    ExplainTableQueryPlanRequest,
    QueryTableRequest,
)

from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

ARROW_FILE = "application/vnd.apache.arrow.file"
pytestmark = pytest.mark.operation("QueryTable", client="urllib3")
SEA = {"query": "sea", "columns": ["text"]}


@dataclass(frozen=True)
class Queried:
    """A branch with two versions of its own: rows 1 to 5, then 1 to 8."""

    table: TableOnWire
    branch: str
    versions: tuple[int, int]

    @property
    def levels(self) -> list[str]:
        return self.table.levels

    def on(self, request: dict[str, Any]) -> dict[str, Any]:
        return request if self.branch == "main" else {"branch": self.branch, **request}


@pytest.fixture(scope="module", params=["main", "dev"])
def queried(request: pytest.FixtureRequest, http: httpx.Client, rest: RestNamespace) -> Queried:
    """Of two branches, which hold different rows at different versions."""
    table = TableOnWire(http, f"queried_{request.param}", "t")
    assert http.post(f"/v1/namespace/{table.namespace}/create", json={}).status_code == 200
    table.create(some_rows(count=5))
    if request.param == "main":
        table.insert(some_rows(6, 3))
        return Queried(table, "main", (1, 2))
    lance.dataset(namespace_client=rest, table_id=table.levels).create_branch("dev")
    table.asked("insert?branch=dev", content=stream(some_rows(6, 3)))
    table.insert(some_rows(100, 1))
    return Queried(table, "dev", (1, 2))


@pytest.fixture
def tables(generated: ApiClient) -> TableApi:
    return TableApi(generated)


def query(tables: TableApi, table: Queried, **request: Any) -> pa.Table:
    asked = QueryTableRequest.model_validate(table.on({"k": 100, "vector": {}, **request}))
    answer = tables.query_table_with_http_info("$".join(table.levels), asked)
    assert answer.status_code == 200
    assert answer.headers is not None
    assert answer.headers["content-type"] == ARROW_FILE
    return pa.ipc.open_file(answer.raw_data).read_all()


def ids(found: pa.Table) -> list[int]:
    numbers: list[int] = found["id"].to_pylist()
    return numbers


def test_all_rows_are_found(tables: TableApi, queried: Queried) -> None:
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
def test_a_filter_chooses_rows(tables: TableApi, queried: Queried, condition: str, found: list[int]) -> None:
    assert ids(query(tables, queried, filter=condition)) == found


def test_columns_are_chosen_by_name(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, columns={"column_names": ["text", "id"]}, k=1)
    assert found.to_pylist() == [{"text": "row 1", "id": 1}]


def test_columns_are_computed_by_alias(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, columns={"column_aliases": {"double": "id * 2"}}, k=2)
    assert found.to_pylist() == [{"double": 2}, {"double": 4}]


def test_the_nearest_rows_come_first(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, vector={"single_vector": [6.1, 0.0]}, k=3)
    assert ids(found) == [6, 7, 5]
    assert found["_distance"].to_pylist() == sorted(found["_distance"].to_pylist())


def test_the_nearest_rows_may_be_filtered(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, vector={"single_vector": [6.1, 0.0]}, k=2, filter="id < 4", prefilter=True)
    assert ids(found) == [3, 2]


def test_the_vector_column_may_be_named(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, vector={"single_vector": [1.0, 0.0]}, vector_column="vector", k=1)
    assert ids(found) == [1]


def test_the_distance_may_be_chosen(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, vector={"single_vector": [1.0, 0.0]}, distance_type="dot", k=1)
    assert ids(found) == [8]


def test_rows_are_limited_and_skipped(tables: TableApi, queried: Queried) -> None:
    assert ids(query(tables, queried, k=2, offset=3)) == [4, 5]


def test_row_ids_come_if_asked_for(tables: TableApi, queried: Queried) -> None:
    assert query(tables, queried, with_row_id=True, k=2)["_rowid"].to_pylist() == [0, 1]


def test_an_older_version_is_queried(tables: TableApi, queried: Queried) -> None:
    assert ids(query(tables, queried, version=1)) == [1, 2, 3, 4, 5]


def test_several_vectors_are_several_searches(tables: TableApi, queried: Queried) -> None:
    found = query(tables, queried, vector={"multi_vector": [[6.1, 0.0], [1.0, 0.0]]}, k=2)
    assert found.column_names[0] == "query_index"
    assert list(zip(found["query_index"].to_pylist(), ids(found), strict=True)) == [
        (0, 6),
        (0, 7),
        (1, 1),
        (1, 2),
    ]


def test_distances_have_bounds(tables: TableApi, queried: Queried) -> None:
    near = {"vector": {"single_vector": [1.0, 0.0]}}
    assert ids(query(tables, queried, **near, lower_bound=1.0, upper_bound=10.0)) == [2, 3, 4]
    assert ids(query(tables, queried, **near, upper_bound=1.0)) == [1]
    assert ids(query(tables, queried, **near, lower_bound=36.0)) == [7, 8]


def test_the_nearest_rows_are_skipped_and_limited(tables: TableApi, queried: Queried) -> None:
    near = {"vector": {"single_vector": [1.0, 0.0]}}
    assert ids(query(tables, queried, **near, k=2, offset=3)) == [4, 5]
    assert ids(query(tables, queried, **near, k=0)) == []
    assert ids(query(tables, queried, **near, k=2**40, refine_factor=2**31 - 1, ef=2**40)) == list(
        range(1, 9)
    )


def test_a_filter_may_come_after_the_search(tables: TableApi, queried: Queried) -> None:
    near = {"vector": {"single_vector": [1.0, 0.0]}, "k": 3, "filter": "id > 2"}
    assert ids(query(tables, queried, **near, prefilter=False)) == [3]
    assert ids(query(tables, queried, **near, prefilter=True)) == [3, 4, 5]


def test_only_indexed_rows_are_searched_if_asked_for(tables: TableApi, queried: Queried) -> None:
    near = {"vector": {"single_vector": [1.0, 0.0]}, "k": 3}
    assert ids(query(tables, queried, **near, fast_search=True)) == []
    assert ids(query(tables, queried, **near, bypass_vector_index=True)) == [1, 2, 3]


def test_options_of_indexes_are_taken(tables: TableApi, queried: Queried) -> None:
    near = {"vector": {"single_vector": [1.0, 0.0]}, "k": 3}
    for options in (
        {"nprobes": 4},
        {"minimum_nprobes": 1, "maximum_nprobes": 4},
        {"ef": 9, "refine_factor": 2},
    ):
        assert ids(query(tables, queried, **near, **options)) == [1, 2, 3]


def match(terms: str, **options: Any) -> dict[str, Any]:
    return {"match": {"terms": terms, "column": "text", **options}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ({"string_query": {"query": "3 5", "columns": ["text"]}}, [3, 5]),
        ({"structured_query": {"query": match("3 5")}}, [3, 5]),
        ({"structured_query": {"query": match("row 5", operator="And")}}, [5]),
        ({"structured_query": {"query": match("rov")}}, []),
        ({"structured_query": {"query": {"phrase": {"terms": "row 4", "column": "text"}}}}, [4]),
        ({"structured_query": {"query": {"phrase": {"terms": "4 row", "column": "text"}}}}, []),
        (
            {"structured_query": {"query": {"boost": {"positive": match("2 7"), "negative": match("2")}}}},
            [2, 7],
        ),
        (
            {
                "structured_query": {
                    "query": {"multi_match": {"match_queries": [{"terms": "8", "column": "text"}]}}
                }
            },
            [8],
        ),
        (
            {
                "structured_query": {
                    "query": {
                        "boolean": {"must": [match("row")], "should": [], "must_not": [match("1 2 3 4 5")]}
                    }
                }
            },
            [6, 7, 8],
        ),
    ],
)
def test_text_is_searched(tables: TableApi, queried: Queried, text: Any, found: list[int]) -> None:
    rows = query(tables, queried, full_text_query=text)
    assert (sorted(ids(rows)), rows.column_names[-1]) == (found, "_score")


def test_an_index_says_where_to_search_and_is_needed_for_fuzziness(
    tables: TableApi, table: TableOnWire, rest: RestNamespace
) -> None:
    whole = Queried(table, "main", (1, 1))
    fuzzy = {"structured_query": {"query": match("rov", fuzziness=1)}}
    with pytest.raises(ApiException) as raised:
        query(tables, whole, full_text_query=fuzzy)
    assert refusal(raised) == (400, 13)
    lance.dataset(namespace_client=rest, table_id=table.levels).create_scalar_index("text", "INVERTED")
    assert sorted(ids(query(tables, whole, full_text_query=fuzzy))) == [1, 2, 3]
    for anywhere in (
        {"string_query": {"query": "3"}},
        {"structured_query": {"query": {"match": {"terms": "3"}}}},
    ):
        assert ids(query(tables, whole, full_text_query=anywhere)) == [3]


@pytest.mark.operation("QueryTable", client="http")
@pytest.mark.parametrize("columns", [["id", "text"], ["text"], {"t": "upper(text)"}])
def test_rows_are_put_in_order(queried: Queried, columns: Any) -> None:
    """Not in the specification; lancedb asks for it."""
    order = [{"column_name": "id", "ascending": False, "nulls_first": False}]
    body = {"k": 3, "offset": 1, "columns": columns, "order_by": order}
    answer = queried.table.post("query", queried.on(body))
    rows = pa.ipc.open_file(answer.content).read_all()
    assert rows.column_names == list(columns)
    assert [text.lower() for text in rows[-1].to_pylist()] == ["row 7", "row 6", "row 5"]


@pytest.mark.operation("QueryTable", client="http")
def test_an_order_by_an_unknown_column_is_refused(queried: Queried) -> None:
    body = queried.on({"k": 3, "order_by": [{"column_name": "nowhere"}]})
    check_refusal(queried.table.post("query", body), 404, 12)


@pytest.mark.operation("ExplainTableQueryPlan", client="urllib3")
def test_a_plan_is_explained(tables: TableApi, queried: Queried) -> None:
    asked = QueryTableRequest.model_validate({"k": 3, "vector": {"single_vector": [1.0, 0.0]}})

    def plan(**options: Any) -> str:
        request = ExplainTableQueryPlanRequest.model_validate(queried.on({"query": asked, **options}))
        return tables.explain_table_query_plan("$".join(queried.levels), request)

    assert "KNNVectorDistance: metric=l2" in plan()
    assert len(plan(verbose=True)) >= len(plan(verbose=False))
    assert ("/tree/dev/" in plan()) == (queried.branch == "dev")


@pytest.mark.operation("AnalyzeTableQueryPlan", client="urllib3")
def test_a_plan_is_analyzed(tables: TableApi, queried: Queried) -> None:
    request = {"k": 3, "vector": {}, "filter": "id > 6"}
    asked = AnalyzeTableQueryPlanRequest.model_validate(queried.on(request))
    plan = tables.analyze_table_query_plan("$".join(queried.levels), asked)
    assert "output_rows=2" in plan
    answer = queried.table.post("analyze_plan", queried.on(request))
    assert (answer.headers["content-type"], type(answer.json())) == ("application/json", str)


@pytest.mark.operation("CountTableRows", client="http")
def test_rows_are_counted_by_older_clients(queried: Queried, http: httpx.Client) -> None:
    url = f"/v1/table/{'$'.join(queried.levels)}/count_rows"
    params = {"predicate": "id > 3", "version": "1", "branch": queried.branch}
    assert (http.get(url, params=params).json(), http.get(url, params=params | {"version": ""}).json()) == (
        2,
        5,
    )


@pytest.mark.operation("CountTableRows", client="urllib3")
@pytest.mark.parametrize(
    ("request_fields", "count"),
    [({}, 8), ({"version": 1}, 5), ({"predicate": "id > 6"}, 2), ({"predicate": "id > 3", "version": 1}, 2)],
)
def test_rows_are_counted(
    tables: TableApi, queried: Queried, request_fields: dict[str, Any], count: int
) -> None:
    answer = tables.count_table_rows_with_http_info(
        "$".join(queried.levels), CountTableRowsRequest(**queried.on(request_fields))
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
        ({"filter": "10 / (id - 1) > 1"}, (400, 13)),
        ({"columns": {"column_names": ["vector.x"]}}, (404, 12)),
        ({"columns": {"column_aliases": {"a": "nowhere"}}}, (404, 12)),
        ({"columns": {"column_aliases": {"a": "10 / (id - 1)"}}}, (400, 13)),
        ({"vector": {"single_vector": [1.0, 0.0]}, "vector_column": "text"}, (400, 13)),
        ({"vector": {"single_vector": [1.0, 0.0]}, "distance_type": "hamming"}, (400, 13)),
        ({"vector": {"multi_vector": [[1.0, 0.0], [2.0, 0.0]]}, "offset": 1}, (400, 13)),
        ({"vector": {"single_vector": [1.0, 0.0]}, "full_text_query": {"string_query": SEA}}, (400, 13)),
        ({"full_text_query": {"string_query": {"query": "row", "columns": ["nowhere"]}}}, (404, 12)),
        ({"full_text_query": {"string_query": {"query": "row", "columns": ["id"]}}}, (400, 13)),
        ({"full_text_query": {"string_query": {"query": "row"}}}, (400, 13)),
        ({"lower_bound": 1.0}, (400, 13)),
        ({"version": 99}, (404, 11)),
        ({"branch": "nowhere"}, (404, 22)),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    tables: TableApi, queried: Queried, request_fields: dict[str, Any], expected: tuple[int, int]
) -> None:
    with pytest.raises(ApiException) as raised:
        query(tables, queried, **request_fields)
    assert refusal(raised) == expected
