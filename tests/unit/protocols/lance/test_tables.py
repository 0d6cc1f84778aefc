"""Tables, rows and versions over the Lance protocol."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.protocols.stand import Stand, some_rows, stream
from tidemill.catalog.model.tables import TableQuery


@pytest.fixture
def stand() -> Stand:
    stand = Stand()
    stand.post("/v1/table/docs%24pages/create", content=stream(some_rows()))
    return stand


def test_a_table_is_made_from_a_stream() -> None:
    answer = Stand().post(
        '/v1/table/pages/create?mode=exist_ok&properties={"a":"b"}', content=stream(some_rows())
    )
    assert answer.status_code == 200
    assert answer.json()["version"] == 1


def test_bad_properties_are_refused_before_anything_is_written() -> None:
    stand = Stand()
    answer = stand.post("/v1/table/pages/create?properties=[1]", content=stream(some_rows()))
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert stand.tables.rows == {}


def test_a_stream_cut_short_is_refused_and_nothing_is_written() -> None:
    stand = Stand()
    answer = stand.post("/v1/table/pages/create", content=stream(some_rows())[:-20])
    assert (answer.status_code, answer.json()["code"]) == (400, 13)
    assert answer.json()["error"].startswith("body: ")
    assert stand.tables.rows == {}


def test_a_table_that_is_there_already_is_a_conflict_and_400_for_lancedb(stand: Stand) -> None:
    path, body = "/v1/table/docs$pages/create", stream(some_rows())
    assert stand.post(path, content=body).status_code == 409
    answer = stand.post(path + "/", content=body, headers={"x-lancedb-database": "db"})
    assert answer.status_code == 400
    assert "already exists" in answer.json()["error"]


def test_a_description_has_what_every_client_needs(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/describe").json()
    assert answer == {
        "table": "pages",
        "namespace": ["docs"],
        "location": "/warehouse/a b/7",
        "properties": {},
        "managed_versioning": True,
        "version": 1,
        "schema": {
            "fields": [
                {"name": "id", "type": {"type": "int64"}, "nullable": True},
                {"name": "text", "type": {"type": "utf8"}, "nullable": True},
            ]
        },
    }


def test_lancedb_gets_the_schema_in_its_own_words(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/describe/", headers={"x-lancedb-database": "db"})
    assert answer.json()["schema"]["fields"][1]["type"] == {"type": "string"}


@pytest.mark.parametrize(
    "options", [{"params": {"with_table_uri": "true", "check_declared": "1"}}, {"json": None}]
)
def test_extras_of_a_description_are_asked_for_in_query_or_body(
    stand: Stand, options: dict[str, Any]
) -> None:
    if "json" in options:
        options = {"json": {"with_table_uri": True, "check_declared": True}}
    answer = stand.post("/v1/table/docs$pages/describe", **options).json()
    assert answer["table_uri"] == "file:///warehouse/a%20b/7"
    assert answer["is_only_declared"] is False


def test_a_declared_table_has_no_version_and_is_hidden_on_request(stand: Stand) -> None:
    assert stand.post("/v1/table/docs$later/declare").json()["managed_versioning"] is True
    answer = stand.post("/v1/table/docs$later/describe", json={"check_declared": True}).json()
    assert answer["is_only_declared"] is True
    assert "version" not in answer
    assert stand.get("/v1/namespace/docs/table/list").json() == {"tables": ["later", "pages"]}
    assert stand.get("/v1/namespace/docs/table/list?include_declared=false").json() == {"tables": ["pages"]}


def test_tables_of_the_root_are_listed_with_the_dot_delimiter() -> None:
    stand = Stand()
    stand.post("/v1/table/pages/declare")
    assert stand.get("/v1/namespace/table/list?delimiter=.").json() == {"tables": ["pages"]}
    assert stand.get("/v1/namespace/table/list").json()["code"] == 1


def test_all_tables_are_those_of_the_root_for_lancedb_and_unsupported_for_others() -> None:
    stand = Stand()
    stand.post("/v1/table/pages/declare")
    assert stand.get("/v1/table/", headers={"x-lancedb-database": "db"}).json() == {"tables": ["pages"]}
    assert stand.get("/v1/table").status_code == 406


@pytest.mark.parametrize(
    ("operation", "body", "status", "code"),
    [
        ("describe", {"branch": "dev"}, 404, 22),
        ("describe", {"tag": "t"}, 406, 0),
        ("describe", {"tag": "t", "version": 1}, 400, 13),
        ("describe", {"version": "1"}, 400, 13),
        ("query", {"k": 1, "branch": "dev"}, 404, 22),
        ("count_rows", {"branch": "dev"}, 404, 22),
        ("count_rows", {"predicate": "x" * 9000}, 400, 13),
        ("version/create", {"version": 2}, 400, 13),
        ("version/create", {"version": True, "manifest_path": "x"}, 400, 13),
        ("version/create", {"version": 2, "manifest_path": "x", "naming_scheme": "V3"}, 400, 13),
        ("add_columns", {"new_columns": [{"name": "a", "computed": "x*2"}]}, 406, 0),
        ("update", {}, 406, 0),
    ],
)
def test_what_is_not_right_or_not_served_is_refused(
    stand: Stand, operation: str, body: dict[str, Any], status: int, code: int
) -> None:
    answer = stand.post(f"/v1/table/docs$pages/{operation}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_branch_in_the_query_does_not_write_to_main(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/insert?branch=dev", content=stream(some_rows()))
    assert (answer.status_code, answer.json()["code"]) == (404, 22)


def test_an_insert_says_how_many_rows_and_which_version(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/insert?mode=append", content=stream(some_rows()))
    assert answer.json() == {"num_inserted_rows": 3, "version": 2}


def test_a_count_is_a_bare_integer(stand: Stand) -> None:
    assert stand.post("/v1/table/docs$pages/count_rows", content=b"").content == b"42"
    assert stand.get("/v1/table/docs$pages/count_rows").content == b"42"


def test_a_query_answers_with_an_arrow_file(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/query", json={"k": 10, "vector": None})
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.file"
    assert pa.ipc.open_file(answer.content).read_all() == some_rows()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"k": 5, "vector": {"single_vector": [1, 2.5]}}, TableQuery(limit=5, vector=(1.0, 2.5))),
        ({"k": 5, "vector": {"multi_vector": [[1, 2]]}}, TableQuery(limit=5, vector=(1.0, 2.0))),
        ({"k": 5, "vector": [0.5]}, TableQuery(limit=5, vector=(0.5,))),
        ({"k": 5, "vector": []}, TableQuery(limit=5)),
        ({"k": 5, "vector": {}}, TableQuery(limit=5)),
        ({"k": 2**63 - 1}, TableQuery()),
        ({"k": 1, "columns": {"column_names": ["id"]}}, TableQuery(limit=1, columns=("id",))),
        ({"k": 1, "columns": {"column_aliases": {"a": "id"}}}, TableQuery(limit=1, columns={"a": "id"})),
        ({"k": 1, "columns": ["id"]}, TableQuery(limit=1, columns=("id",))),
        ({"k": 1, "columns": {"a": "id + 1"}}, TableQuery(limit=1, columns={"a": "id + 1"})),
        (
            {"k": 1, "full_text_query": {"string_query": {"query": "sea", "columns": ["text"]}}},
            TableQuery(limit=1, full_text="sea", full_text_columns=("text",)),
        ),
        ({"k": 1, "full_text_query": {"query": "sea"}}, TableQuery(limit=1, full_text="sea")),
        (
            {
                "k": 1,
                "offset": 2,
                "filter": "id > 1",
                "version": 3,
                "with_row_id": True,
                "distance_type": "L2",
            },
            TableQuery(limit=1, offset=2, filter="id > 1", version=3, with_row_id=True, distance_type="l2"),
        ),
        ({"k": 1, "prefilter": False, "nprobes": 20}, TableQuery(limit=1, prefilter=False, nprobes=20)),
        ({"k": 1, "nprobes": 20, "minimum_nprobes": 5, "maximum_nprobes": 0}, TableQuery(limit=1, nprobes=5)),
    ],
)
def test_queries_are_read_in_every_shape(stand: Stand, body: dict[str, Any], expected: TableQuery) -> None:
    assert stand.post("/v1/table/docs$pages/query", json=body).status_code == 200
    assert stand.rows.queries == [expected]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"k": -1}, 400),
        ({"k": True}, 400),
        ({"k": 1, "vector": "near"}, 400),
        ({"k": 1, "vector": {"vektor": [1]}}, 400),
        ({"k": 1, "vector": ["a"]}, 400),
        ({"k": 1, "vector": [[1], [2]]}, 406),
        ({"k": 1, "columns": {"column_names": ["a"], "column_aliases": {"a": "a"}}}, 400),
        ({"k": 1, "columns": [1]}, 400),
        ({"k": 1, "full_text_query": {"structured_query": {"match": {}}}}, 406),
        ({"k": 1, "full_text_query": "sea"}, 400),
        ({"k": 1, "filter": "x" * 9000}, 400),
        ({"k": 1, "distance_type": "far"}, 400),
        ({"k": 1, "lower_bound": 0.1}, 406),
    ],
)
def test_queries_of_other_shapes_are_refused(stand: Stand, body: dict[str, Any], status: int) -> None:
    assert stand.post("/v1/table/docs$pages/query", json=body).status_code == status


def test_a_version_is_created_and_given_back_whole(stand: Stand) -> None:
    entry = {
        "version": 2,
        "manifest_path": "warehouse/7/x",
        "manifest_size": 5,
        "e_tag": "e",
        "naming_scheme": "V2",
    }
    answer = stand.post("/v1/table/docs$pages/version/create", json=entry)
    assert answer.json() == {
        "version": {
            "version": 2,
            "manifest_path": "warehouse/7/_versions/2.manifest",
            "manifest_size": 100,
            "timestamp_millis": 1767323045000,
        }
    }


def test_versions_are_listed_in_pages_from_either_end(stand: Stand) -> None:
    for number in (1, 2, 3):
        stand.post("/v1/table/t/version/create", json={"version": number, "manifest_path": "x"})

    def listed(query: str) -> tuple[list[int], str | None]:
        answer = stand.post(f"/v1/table/t/version/list?{query}", content=b"null").json()
        return [version["version"] for version in answer["versions"]], answer.get("page_token")

    assert listed("") == ([1, 2, 3], None)
    assert listed("limit=2&descending=true") == ([3, 2], "2")
    assert listed("limit=2&descending=true&page_token=2") == ([1], None)
    assert stand.post("/v1/table/t/version/list?page_token=x").status_code == 400


def test_no_versions_are_an_empty_list(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/version/list?limit=1&descending=true", content=b"null")
    assert answer.json() == {"versions": []}


def test_a_dropped_table_says_where_it_was(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/drop/", content=b"")
    assert answer.json() == {"id": ["docs", "pages"], "location": "/warehouse/a b/7", "properties": {}}
    assert stand.post("/v1/table/docs$pages/exists", content=json.dumps({})).json()["code"] == 4
