"""Queries and changes of rows over the Lance protocol, in every shape that clients give them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from tests.unit.protocols.stand import Stand, some_rows, stream
from tidemill.lance.model.edits import RowMerge, RowUpdate
from tidemill.lance.model.queries import (
    QueryResult,
    RowOrder,
    TableQuery,
    TextBoolean,
    TextBoost,
    TextMatch,
    TextMultiMatch,
    TextPhrase,
    TextSearch,
    VectorSearch,
)
from tidemill.protocols.lance import row_mapping

TABLE = "/v1/table/docs$pages"
LANCEDB = {"x-lancedb-database": "db"}
PRINTED_MATCH = (
    'Match(MatchQuery { column: Some("text"), terms: "a \\"b\\" \\u{e9}", boost: 1.0, fuzziness: Some(1), '
    "max_expansions: 50, operator: And, prefix_length: 2, document_granularity: None })"
)
PRINTED_PHRASE = 'Phrase(PhraseQuery { column: None, terms: "a b", slop: 1, document_granularity: None })'


@pytest.fixture
def stand() -> Stand:
    stand = Stand()
    stand.post("/v1/namespace/docs/create", json={})
    stand.post(f"{TABLE}/create", content=stream(some_rows()))
    return stand


def near(*vectors: tuple[float, ...], **options: Any) -> VectorSearch:
    return VectorSearch(vectors, **options)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"k": 5, "vector": {"single_vector": [1, 2.5]}}, TableQuery(limit=5, vector=near((1.0, 2.5)))),
        ({"k": 5, "vector": {"multi_vector": [[1, 2]]}}, TableQuery(limit=5, vector=near((1.0, 2.0)))),
        ({"k": 5, "vector": [0.5]}, TableQuery(limit=5, vector=near((0.5,)))),
        ({"k": 5, "vector": [[1], [2]]}, TableQuery(limit=5, vector=near((1.0,), (2.0,)))),
        ({"k": 5, "vector": []}, TableQuery(limit=5)),
        ({"k": 5, "vector": {}}, TableQuery(limit=5)),
        ({"k": 5, "vector": {"single_vector": []}, "bypass_vector_index": True}, TableQuery(limit=5)),
        ({"k": 2**63 - 1}, TableQuery()),
        ({"k": 1, "columns": {"column_names": ["id"]}}, TableQuery(limit=1, columns=("id",))),
        ({"k": 1, "columns": {"column_aliases": {"a": "id"}}}, TableQuery(limit=1, columns={"a": "id"})),
        (
            {"k": 1, "columns": {"column_names": [], "column_aliases": {"a": "id"}}},
            TableQuery(limit=1, columns={"a": "id"}),
        ),
        (
            {"k": 1, "columns": {"column_names": ["id"], "column_aliases": {}}},
            TableQuery(limit=1, columns=("id",)),
        ),
        ({"k": 1, "columns": {"column_names": [], "column_aliases": {}}}, TableQuery(limit=1)),
        ({"k": 1, "columns": ["id"]}, TableQuery(limit=1, columns=("id",))),
        ({"k": 1, "columns": {"a": "id + 1"}}, TableQuery(limit=1, columns={"a": "id + 1"})),
        (
            {"k": 1, "offset": 2, "filter": "id > 1", "version": 3, "with_row_id": True, "branch": "dev"},
            TableQuery(limit=1, offset=2, filter="id > 1", version=3, with_row_id=True, branch="dev"),
        ),
        (
            {"k": 1, "prefilter": False, "fast_search": True},
            TableQuery(1, prefilter=False, only_indexed=True),
        ),
        (
            {"k": 1, "order_by": [{"column_name": "id", "ascending": False, "nulls_first": True}]},
            TableQuery(1, order=(RowOrder("id", is_ascending=False, has_nulls_first=True),)),
        ),
        ({"k": 1, "order_by": [{"column": "id"}]}, TableQuery(1, order=(RowOrder("id"),))),
    ],
)
def test_queries_are_read_in_every_shape(stand: Stand, body: dict[str, Any], expected: TableQuery) -> None:
    answer = stand.post(f"{TABLE}/query", json=body)
    assert answer.status_code == 200, answer.text
    assert stand.rows.queries == [expected]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"nprobes": 20}, {"minimum_probes": 20, "maximum_probes": 20}),
        ({"nprobes": 20, "minimum_nprobes": 5, "maximum_nprobes": 0}, {"minimum_probes": 5}),
        ({"nprobes": 20, "maximum_nprobes": 7}, {"maximum_probes": 7}),
        ({"distance_type": "L2", "vector_column": "v"}, {"distance_type": "l2", "column": "v"}),
        ({"lower_bound": 0, "upper_bound": 2.5}, {"lower_bound": 0.0, "upper_bound": 2.5}),
        ({"ef": 9, "refine_factor": 3}, {"candidates": 9, "refine_factor": 3}),
        (
            {"bypass_vector_index": True, "approx_mode": "Fast"},
            {"uses_index": False, "approximation": "fast"},
        ),
    ],
)
def test_options_of_vector_searches_are_read(
    stand: Stand, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert stand.post(f"{TABLE}/query", json={"k": 1, "vector": [0.5], **options}).status_code == 200
    assert stand.rows.queries == [TableQuery(limit=1, vector=near((0.5,), **expected))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ({"string_query": {"query": "sea", "columns": ["text"]}}, TextSearch("sea", ("text",))),
        ({"query": "sea"}, TextSearch("sea")),
        ({"structured_query": {"query": {"match": {"terms": "sea"}}}}, TextMatch("sea")),
        (
            {
                "query": {
                    "match": {
                        "terms": "sea",
                        "column": "text",
                        "boost": 2,
                        "fuzziness": None,
                        "max_expansions": 9,
                        "operator": "and",
                        "prefix_length": 1,
                    }
                }
            },
            TextMatch("sea", "text", 2.0, None, 9, True, 1),
        ),
        ({"query": {"phrase": {"terms": "a b", "column": None, "slop": 2}}}, TextPhrase("a b", None, 2)),
        (
            {
                "query": {
                    "boost": {
                        "positive": {"match": {"terms": "a"}},
                        "negative": {"match": {"terms": "b"}},
                        "negative_boost": 0.25,
                    }
                }
            },
            TextBoost(TextMatch("a"), TextMatch("b"), 0.25),
        ),
        (
            {"query": {"multi_match": {"match_queries": [{"terms": "a", "column": "t", "boost": 2}]}}},
            TextMultiMatch((TextMatch("a", "t", boost=2.0),)),
        ),
        (
            {"query": {"multi_match": {"query": "a", "columns": ["t", "u"], "boost": [2.0, 1.0]}}},
            TextMultiMatch((TextMatch("a", "t", boost=2.0), TextMatch("a", "u"))),
        ),
        (
            {
                "query": {
                    "boolean": {
                        "must": [{"match": {"terms": "a"}}],
                        "should": [],
                        "must_not": [{"phrase": {"terms": "b c"}}],
                    }
                }
            },
            TextBoolean(must=(TextMatch("a"),), must_not=(TextPhrase("b c"),)),
        ),
        (
            {"string_query": {"query": PRINTED_MATCH, "columns": ["text"]}},
            TextMatch('a "b" é', "text", fuzziness=1, needs_all_terms=True, prefix_length=2),
        ),
        (
            {"string_query": {"query": PRINTED_PHRASE, "columns": ["text"]}},
            TextPhrase("a b", "text", 1),
        ),
        (
            {
                "string_query": {
                    "query": f"Boolean(must=[{PRINTED_PHRASE}, {PRINTED_PHRASE}], should=[], must_not=[])"
                }
            },
            TextBoolean(must=(TextPhrase("a b", None, 1), TextPhrase("a b", None, 1))),
        ),
        ({"query": "Match(me) if you can"}, TextSearch("Match(me) if you can")),
    ],
)
def test_full_text_queries_are_read_in_every_shape(stand: Stand, text: Any, expected: Any) -> None:
    answer = stand.post(f"{TABLE}/query", json={"k": 1, "full_text_query": text})
    assert answer.status_code == 200, answer.text
    assert stand.rows.queries == [TableQuery(limit=1, full_text=expected)]


def nested_boolean(depth: int) -> dict[str, Any]:
    query: dict[str, Any] = {"match": {"terms": "a"}}
    for _ in range(depth):
        query = {"boolean": {"must": [query], "should": [], "must_not": []}}
    return {"query": query}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"k": -1}, "k"),
        ({"k": True}, "k"),
        ({"vector": "near"}, "vector"),
        ({"vector": {"vektor": [1]}}, "vector"),
        ({"vector": ["a"]}, "vector"),
        ({"vector": [[1], "a"]}, "vector"),
        ({"vector": [[1]] * 2000}, "vector"),
        ({"columns": {"column_names": ["a"], "column_aliases": {"a": "a"}}}, "columns"),
        ({"columns": [1]}, "columns"),
        ({"full_text_query": "sea"}, "full_text_query"),
        ({"full_text_query": {"structured_query": {"match": {}}}}, "full_text_query.structured_query.query"),
        ({"full_text_query": {"query": {"match": {"terms": "a"}, "phrase": {"terms": "a"}}}}, "full_text"),
        ({"full_text_query": {"query": {"near": {"terms": "a"}}}}, "full_text_query.query"),
        ({"full_text_query": {"query": {"match": {"terms": "a", "operator": "xor"}}}}, "full_text_query"),
        ({"full_text_query": {"query": {"match": {"terms": "a", "fuzziness": -1}}}}, "full_text_query"),
        ({"full_text_query": {"query": {"boost": {"positive": {}}}}}, "full_text_query"),
        ({"full_text_query": {"query": {"multi_match": {"match_queries": []}}}}, "full_text_query"),
        ({"full_text_query": {"query": "MultiMatch(MultiMatchQuery { x: [] })"}}, "full_text_query.query"),
        ({"full_text_query": {"query": "Boosting(positive=a, negative=b)"}}, "full_text_query.query"),
        ({"full_text_query": nested_boolean(18)}, "full_text_query"),
        ({"filter": "x" * 9000}, "filter"),
        ({"distance_type": "far"}, "distance_type"),
        ({"lower_bound": 0.1}, "lower_bound"),
        ({"vector": [1.0], "upper_bound": "far"}, "upper_bound"),
        ({"vector": [1.0], "minimum_nprobes": 5, "maximum_nprobes": 2}, "minimum_nprobes"),
        ({"order_by": [{"ascending": True}]}, "order_by[0].column_name"),
        ({"order_by": "id"}, "order_by"),
        ({"approx_mode": "wild"}, "approx_mode"),
    ],
)
def test_queries_of_other_shapes_are_refused(stand: Stand, body: dict[str, Any], field: str) -> None:
    answer = stand.post(f"{TABLE}/query", json={"k": 1, **body})
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert answer.json()["error"].startswith(field)
    assert stand.rows.queries == []


def test_plans_are_json_strings(stand: Stand) -> None:
    assert stand.post(f"{TABLE}/explain_plan", json={"query": {"k": 1}}).json() == "plan"
    verbose = {"query": {"k": 2}, "verbose": True, "branch": "dev"}
    assert stand.post(f"{TABLE}/explain_plan", json=verbose).json() == "verbose plan"
    assert stand.post(f"{TABLE}/analyze_plan", json={"k": 3, "branch": "dev"}).json() == "analysis"
    assert stand.rows.queries == [
        TableQuery(limit=1),
        TableQuery(limit=2, branch="dev"),
        TableQuery(limit=3, branch="dev"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": "k"},
        {"query": {"k": 1, "id": ["other"]}},
        {"query": {"k": 1, "branch": "a"}, "branch": "b"},
        {"query": {"k": 1}, "verbose": "yes"},
    ],
)
def test_a_plan_needs_a_query_of_this_table(stand: Stand, body: dict[str, Any]) -> None:
    assert stand.post(f"{TABLE}/explain_plan", json=body).status_code == 400


def test_many_rows_are_answered_from_disk(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"x" * 100)
    with (tmp_path / "rows").open("rb") as file:
        answer = row_mapping.arrow_file_response(QueryResult(1, file))
        assert isinstance(answer, StreamingResponse)
        assert answer.headers["content-length"] == "100"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("on=id&when_matched_update_all=true", RowMerge(("id",), updates_matched=True)),
        (
            "on=id&on=text&when_not_matched_insert_all=True&timeout=1m30s&use_index=true",
            RowMerge(("id", "text"), inserts_new=True, timeout=timedelta(seconds=90), uses_index=True),
        ),
        (
            "on=id&when_matched_update_all_filt=target.id%3E1",
            RowMerge(("id",), updates_matched=True, update_condition="target.id>1"),
        ),
        (
            "on=id&when_not_matched_by_source_delete=true&when_not_matched_by_source_delete_filt=id>1",
            RowMerge(("id",), deletes_missing=True, delete_condition="id>1"),
        ),
    ],
)
def test_merges_are_read_from_the_query(stand: Stand, query: str, expected: RowMerge) -> None:
    answer = stand.post(f"{TABLE}/merge_insert?branch=dev&{query}", content=stream(some_rows()))
    assert answer.json() == {
        "num_updated_rows": 1,
        "num_inserted_rows": 3,
        "num_deleted_rows": 0,
        "version": 2,
    }
    assert (stand.rows.edits, stand.rows.branches) == ([expected], ["dev"])


def test_lancedb_says_its_timeout_in_a_header(stand: Stand) -> None:
    url = f"{TABLE}/merge_insert?on=id&when_not_matched_insert_all=true"
    headers = {**LANCEDB, "x-request-timeout-ms": "1500"}
    stand.post(url, content=stream(some_rows()), headers=headers)
    timeout = timedelta(seconds=1.5)
    assert stand.rows.edits == [RowMerge(("id",), inserts_new=True, timeout=timeout, uses_index=True)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("when_matched_update_all=true", "on"),
        ("on=&when_matched_update_all=true", "on"),
        ("on=id&on=id&when_matched_update_all=true", "on"),
        ("on=id", "when_matched_update_all"),
        ("on=id&when_matched_update_all=perhaps", "when_matched_update_all"),
        (
            "on=id&when_matched_update_all=false&when_matched_update_all_filt=a>1",
            "when_matched_update_all_filt",
        ),
        ("on=id&when_matched_update_all=true&timeout=soon", "timeout"),
        ("on=id&when_matched_update_all=true&timeout=0s", "timeout"),
        ("on=id&when_matched_update_all=true&timeout=30", "timeout"),
        ("on=id&when_matched_update_all=true&timeout=99h", "timeout"),
    ],
)
def test_merges_of_other_shapes_are_refused(stand: Stand, query: str, field: str) -> None:
    answer = stand.post(f"{TABLE}/merge_insert?{query}", content=stream(some_rows()))
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert answer.json()["error"].startswith(f"{field}: ")
    assert stand.rows.edits == []


def test_an_update_is_read_and_answered(stand: Stand) -> None:
    body = {"updates": [["text", "'x'"]], "predicate": "id = 1", "properties": {"a": "b"}, "branch": "dev"}
    answer = stand.post(f"{TABLE}/update", json=body)
    assert answer.json() == {"updated_rows": 3, "version": 2, "properties": {}}
    assert stand.rows.edits == [RowUpdate({"text": "'x'"}, "id = 1", {"a": "b"})]
    assert stand.rows.branches == ["dev"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"updates": []}, "updates"),
        ({"updates": "text"}, "updates"),
        ({"updates": [["text"]]}, "updates[0]"),
        ({"updates": [["text", 1]]}, "updates[0]"),
        ({"updates": [["", "1"]]}, "updates[0]"),
        ({"updates": [["text", " "]]}, "updates[0]"),
        ({"updates": [["text", "1"], ["text", "2"]]}, "updates[1]"),
        ({"updates": [["text", "1"]], "predicate": ""}, "predicate"),
        ({"updates": [["text", "1"]], "properties": {"a": 1}}, "properties.a"),
    ],
)
def test_updates_of_other_shapes_are_refused(stand: Stand, body: dict[str, Any], field: str) -> None:
    answer = stand.post(f"{TABLE}/update", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert answer.json()["error"].startswith(f"{field}: ")
    assert stand.rows.edits == []


@pytest.mark.parametrize("predicate", [None, "", "  ", 1])
def test_a_delete_without_a_predicate_is_refused(stand: Stand, predicate: Any) -> None:
    answer = stand.post(f"{TABLE}/delete", json={"predicate": predicate})
    assert (answer.status_code, stand.rows.edits) == (400, [])


def test_lancedb_is_told_more_in_its_own_words(stand: Stand) -> None:
    def answered(action: str, body: Any) -> Any:
        return stand.post(f"{TABLE}/{action}/", json=body, headers=LANCEDB)

    assert answered("update", {"updates": [["text", "'x'"]]}).json()["rows_updated"] == 3
    assert answered("delete", {"predicate": "id = 1"}).json() == {"version": 2, "num_deleted_rows": 3}
    for answer in (answered("query", {"k": 1}), answered("count_rows", {})):
        assert answer.headers["x-lancedb-version"] == "1"
        assert answer.headers["phalanx-version"] == "0.3.0"
    assert "phalanx-version" not in stand.post(f"{TABLE}/count_rows").headers


def test_an_insert_goes_to_its_branch(stand: Stand) -> None:
    stand.post(f"{TABLE}/insert?branch=dev", content=stream(some_rows()))
    stand.post(f"{TABLE}/insert", content=stream(some_rows()))
    assert stand.rows.branches == ["dev", "main"]
