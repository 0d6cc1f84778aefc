"""Tables, rows and versions over the Lance protocol."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.protocols.stand import Stand, some_rows, stream


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


def test_all_tables_are_those_of_the_root_for_lancedb_and_of_all_namespaces_for_others(stand: Stand) -> None:
    stand.post("/v1/table/pages/declare")
    assert stand.get("/v1/table/", headers={"x-lancedb-database": "db"}).json() == {"tables": ["pages"]}
    assert stand.get("/v1/table").json() == {"tables": ["docs$pages", "pages"]}
    assert stand.get("/v1/table?delimiter=.&include_declared=false").json() == {"tables": ["docs.pages"]}
    first = stand.get("/v1/table?limit=1").json()
    assert first == {"tables": ["docs$pages"], "page_token": "docs$pages"}
    assert stand.get("/v1/table?limit=1&page_token=docs$pages").json() == {"tables": ["pages"]}


@pytest.mark.parametrize(
    ("asked", "is_vended"),
    [({}, True), ({"vend_credentials": True}, True), ({"vend_credentials": False}, False)],
)
def test_storage_options_are_vended_unless_refused(
    stand: Stand, asked: dict[str, bool], is_vended: bool
) -> None:
    stand.tables.options = {"aws_access_key_id": "k", "expires_at_millis": "1"}
    expected = stand.tables.options if is_vended else None
    for operation in ("docs$pages/describe", "docs$later/declare"):
        answer = stand.post(f"/v1/table/{operation}", json=asked).json()
        assert answer.get("storage_options") == expected


def test_a_created_table_comes_with_storage_options(stand: Stand) -> None:
    stand.tables.options = {"aws_access_key_id": "k"}
    answer = stand.post("/v1/table/docs$new/create", content=stream(some_rows())).json()
    assert answer["storage_options"] == {"aws_access_key_id": "k"}


def test_a_writer_may_ask_for_the_row_ids_that_tables_have_anyway(stand: Stand) -> None:
    path = "/v1/table/docs$new/create"
    wanted = {"storage_options": '{"new_table_enable_stable_row_ids": "true"}'}
    assert stand.post(path, content=stream(some_rows()), params=wanted).status_code == 200
    for options in ('{"new_table_enable_stable_row_ids": "false"}', '{"new_table_enable_V2": "true"}'):
        answer = stand.post(path, content=stream(some_rows()), params={"storage_options": options})
        assert (answer.status_code, answer.json()["code"]) == (400, 13)


def test_a_detailed_description_has_figures(stand: Stand) -> None:
    answer = stand.post("/v1/table/docs$pages/describe?load_detailed_metadata=true").json()
    assert answer["stats"] == {"num_deleted_rows": 1, "num_fragments": 2}
    stand.post("/v1/table/docs$later/declare")
    assert "stats" not in stand.post("/v1/table/docs$later/describe?load_detailed_metadata=true").json()


@pytest.mark.parametrize(
    ("operation", "body", "status", "code"),
    [
        ("describe", {"branch": "dev"}, 404, 22),
        ("describe", {"tag": "t", "version": 1}, 400, 13),
        ("describe", {"version": "1"}, 400, 13),
        ("count_rows", {"predicate": "x" * 9000}, 400, 13),
        ("version/create", {"version": 2}, 400, 13),
        ("version/create", {"version": True, "manifest_path": "x"}, 400, 13),
        ("version/create", {"version": 2, "manifest_path": "x", "naming_scheme": "V3"}, 400, 13),
        ("update", {}, 400, 13),
        ("delete", {}, 400, 13),
    ],
)
def test_what_is_not_right_or_not_served_is_refused(
    stand: Stand, operation: str, body: dict[str, Any], status: int, code: int
) -> None:
    answer = stand.post(f"/v1/table/docs$pages/{operation}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


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
