"""What a lake and its tables send, against a server that only notes it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import httpx
import pyarrow as pa
import pytest

from tests.unit.sdk.noting import JOB, NotingServer
from tidemill.catalog.model.functions import decode_envelope
from tidemill.sdk.functions import udf
from tidemill.sdk.http import ServerClient
from tidemill.sdk.lake import Lake


@udf
def words(text: str) -> int:
    return len(text.split())


def test_a_namespace_is_created() -> None:
    server = NotingServer()
    server.lake().create_namespace("a.b", exist_ok=True)
    assert server.last() == ("/v1/namespace/a$b/create", {"mode": "ExistOk", "properties": {}})
    assert server.requests[-1].headers["x-api-key"] == "secret"


def test_a_namespace_is_dropped_with_what_it_holds() -> None:
    server = NotingServer()
    server.lake().drop_namespace("a", cascade=True)
    assert server.last() == ("/v1/namespace/a/drop", {"mode": "Fail", "behavior": "Cascade"})


DROPS: dict[str, Callable[..., None]] = {
    "/v1/table/a$docs/drop": lambda lake, **flags: lake.drop_table("a.docs", **flags),
    "/v1/materialized_view/a$v/drop": lambda lake, **flags: lake.drop_view("a.v", **flags),
    "/v1/table/a$docs/drop_columns": lambda lake, **flags: lake.table("a.docs").drop_columns(["x"], **flags),
}


@pytest.mark.parametrize("path", DROPS)
@pytest.mark.parametrize("flag", ["cascade", "force"])
def test_a_drop_says_what_becomes_of_dependants(path: str, flag: str) -> None:
    server = NotingServer()
    DROPS[path](server.lake(), **{flag: True})
    DROPS[path](server.lake())
    assert server.asked() == [("POST", f"{path}?{flag}=true"), ("POST", path)]


def test_columns_are_dropped_on_a_branch() -> None:
    server = NotingServer()
    server.lake().table("a.docs").drop_columns(["x", "s.a"], branch="dev")
    assert server.last() == ("/v1/table/a$docs/drop_columns", {"columns": ["x", "s.a"], "branch": "dev"})


def test_columns_to_drop_are_a_list() -> None:
    with pytest.raises(TypeError, match=r"columns is a list of names, such as \['text'\]"):
        NotingServer().lake().table("a.docs").drop_columns("text")


def test_a_table_is_sent_as_an_arrow_stream() -> None:
    server = NotingServer()
    table = server.lake().create_table("a.docs", [{"id": 1}], mode="overwrite")
    request = server.requests[-1]
    assert table.name == "a.docs"
    assert request.url.raw_path == b"/v1/table/a$docs/create?mode=Overwrite"
    assert request.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(request.content).read_all().to_pylist() == [{"id": 1}]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="mode is one of create, exist_ok, overwrite"):
        NotingServer().lake().create_table("a", [{"id": 1}], mode="append")  # type: ignore[arg-type]  # the fault


def test_a_column_is_declared_with_its_function() -> None:
    server = NotingServer()
    server.lake().table("a.docs").add_column("words", words, inputs=["body"])
    path, body = server.last()
    [column] = body["new_columns"]
    sent = column["virtual_column"]
    assert (path, column["name"], sent["input_columns"]) == (
        "/v1/table/a$docs/add_columns",
        "words",
        ["body"],
    )
    assert decode_envelope(base64.b64decode(sent["udf"]), "udf") == words.function
    assert sent["outputs"] == [{"column": "words", "struct_field": "", "nullable": True}]
    assert (sent["udf_backend"], sent["udf_version"]) == ("tidemill", words.function.digest)


def test_a_backfill_sends_the_options_that_were_given() -> None:
    server = NotingServer(backfill_column={"job_id": "j1"}, j1=JOB)
    job = server.lake().table("a").backfill("words", where="id > 1", concurrency=None, idempotency_key="k")
    request = server.requests[0]
    assert job.id == "j1"
    assert json.loads(request.content) == {"column": "words", "where": "id > 1"}
    assert request.headers["idempotency-key"] == "k"


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'wher'"):
        NotingServer().lake().table("a").backfill("words", wher="id > 1")  # type: ignore[call-arg]  # the fault


def test_a_refresh_says_full_only_when_asked() -> None:
    server = NotingServer(refresh={"job_id": "j1"}, j1=JOB)
    server.lake().view("a.v").refresh()
    assert json.loads(server.requests[0].content) == {}
    server.lake().view("a.v").refresh(full=True)
    assert json.loads(server.requests[2].content) == {"full": True}


def test_listings_follow_their_pages() -> None:
    pages = [{"tables": ["a"], "page_token": "a"}, {"tables": ["b"]}]
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("page_token"))
        return httpx.Response(200, json=pages[len(asked) - 1])

    lake = Lake(ServerClient("http://lake", transport=httpx.MockTransport(answer)))
    assert lake.list_tables("x") == ["a", "b"]
    assert asked == [None, "a"]


def test_jobs_are_listed_by_table_kind_and_state() -> None:
    server = NotingServer(jobs={"jobs": [JOB]})
    [job] = server.lake().jobs(limit=5, table=["a", "b$c"], kind="backfill", state="DONE")
    assert job.id == "j1"
    asked = dict(server.requests[0].url.params)
    assert asked == {"limit": "5", "table": "a|b$c", "delimiter": "|", "kind": "backfill", "state": "DONE"}


def test_a_dot_in_the_name_of_a_table_stays_one() -> None:
    server = NotingServer(jobs={"jobs": []})
    server.lake().jobs(table=["b.c"])
    asked = server.requests[0].url.params
    assert (asked["table"], asked["delimiter"]) == ("b.c", "$")


def test_a_manifest_is_stored_and_dropped_under_its_name() -> None:
    server = NotingServer()
    server.lake().put_manifest("my env", pip=["numpy"], env={"A": "b"})
    assert server.sent() == {"pip": ["numpy"], "env_vars": {"A": "b"}}
    server.lake().drop_manifest("my env")
    path = "/api/v1/manifests/my%20env"
    assert server.asked() == [("PUT", path), ("DELETE", path)]


def test_manifests_are_listed_with_the_names_of_their_variables() -> None:
    listed = {"manifests": [{"name": "small", "pip": ["numpy"], "env_vars": ["A"]}]}
    [found] = NotingServer(manifests=listed).lake().list_manifests()
    assert (found.name, found.pip, found.env) == ("small", ("numpy",), ("A",))
