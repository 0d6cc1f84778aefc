"""Requests that are wrong before their meaning matters: paths, methods, JSON, ids, Arrow streams."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest

from tests.conftest import RunningServer
from tests.protocol.wire import TableOnWire, check_refusal, some_rows, stream

# Every route that reads a JSON body about a table.
JSON_ACTIONS = [
    "declare",
    "describe",
    "exists",
    "drop",
    "query",
    "count_rows",
    "version/create",
    "version/list",
    "version/describe",
    "add_columns",
    "backfill_column",
]
WHOLE = stream(some_rows())
SCHEMA_ONLY = stream(some_rows(count=0))
ARROW_FILE = pa.BufferOutputStream()
with pa.ipc.new_file(ARROW_FILE, some_rows().schema) as writer:
    writer.write_table(some_rows())
STREAMS = {
    "zero bytes": b"",
    "garbage": b"\x00\x01garbage" * 50,
    "text": b"hello",
    "JSON": b'{"id": 1}',
    "a huge length": b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    "an Arrow file": ARROW_FILE.getvalue().to_pybytes(),
    "one byte": WHOLE[:1],
    "half a schema": WHOLE[:100],
    "a schema without an end": SCHEMA_ONLY[:-8],
    "a batch cut in its header": WHOLE[: len(SCHEMA_ONLY) + 20],
    "a batch cut in its rows": WHOLE[:-30],
    "an end marker cut off": WHOLE[:-8],
    "half an end marker": WHOLE[:-4],
    "something after the end": WHOLE + b"tail",
    "two streams": WHOLE + WHOLE,
}


@pytest.fixture
def nothing_new(http: httpx.Client, namespace: str) -> Iterator[str]:
    """A namespace in which the test has to leave no table."""
    yield namespace
    assert http.get(f"/v1/namespace/{namespace}/table/list").json() == {"tables": []}


def raw(server: RunningServer, method: str, target: str, body: bytes | None = None) -> tuple[int, Any]:
    """A request whose path no library has tidied up."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize("action", JSON_ACTIONS)
def test_a_body_that_is_not_json_is_refused(unchanged: TableOnWire, action: str) -> None:
    for body in (b"{", b"hello", b"{'id': 1}", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000):
        check_refusal(unchanged.post(action, content=body), 400, 13, "body")


@pytest.mark.parametrize("action", JSON_ACTIONS)
def test_a_body_that_is_no_object_is_refused(unchanged: TableOnWire, action: str) -> None:
    for body in (b"[]", b'["a"]', b'"text"', b"5", b"true"):
        check_refusal(unchanged.post(action, content=body), 400, 13, "body")


@pytest.mark.parametrize("action", JSON_ACTIONS)
def test_a_body_that_is_too_deep_or_holds_what_is_no_text_is_refused(
    unchanged: TableOnWire, action: str
) -> None:
    deep = b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}"
    for body in (deep, b'{"id": ["\\ud800", "t"]}', b'{"a": 1e999}', b'{"a": Infinity}'):
        check_refusal(unchanged.post(action, content=body), 400, 13, "body")


@pytest.mark.parametrize(
    "token", ["%00", "%ff", "%ED%A0%80", "%F0%9F%98%80", "x" * 5000, "' OR 1=1 --", "-1"]
)
@pytest.mark.parametrize(
    "target", ["GET /v1/table", "GET /v1/namespace/still/list", "GET /v1/namespace/still/table/list"]
)
def test_a_page_token_that_nobody_gave_out_is_the_callers_fault(
    server: RunningServer, still: TableOnWire, target: str, token: str
) -> None:
    method, path = target.split()
    status, body = raw(server, method, f"{path}?limit=1&page_token={token.replace(' ', '+')}")
    assert status in (200, 400), body
    assert status == 200 or type(body["code"]) is int


@pytest.mark.parametrize(
    ("levels", "status"), [(["n" * 255], 404), (["n" * 256], 400), (["n"] * 16, 404), (["n"] * 17, 400)]
)
def test_ids_have_sixteen_levels_of_255_bytes(server: RunningServer, levels: list[str], status: int) -> None:
    answered, body = raw(server, "POST", f"/v1/namespace/{'$'.join(levels)}/describe", b"{}")
    assert answered == status, body


@pytest.mark.parametrize("action", JSON_ACTIONS)
def test_an_id_that_is_not_the_paths_is_refused(unchanged: TableOnWire, action: str) -> None:
    for other in (["still", "other"], ["t"], ["still", "t", "t"], "still$t", [1, 2]):
        check_refusal(unchanged.post(action, {"id": other}), 400, 13, "id")


@pytest.mark.parametrize("action", ["create", "describe", "exists", "drop"])
def test_an_id_that_is_not_the_namespaces_is_refused(still: TableOnWire, action: str) -> None:
    answer = still.http.post(f"/v1/namespace/still/{action}", json={"id": ["other"]})
    check_refusal(answer, 400, 13, "id")


@pytest.mark.parametrize("content", STREAMS.values(), ids=STREAMS)
def test_a_damaged_stream_makes_no_table(http: httpx.Client, nothing_new: str, content: bytes) -> None:
    check_refusal(http.post(f"/v1/table/{nothing_new}$t/create", content=content), 400, 13, "body")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("content", STREAMS.values(), ids=STREAMS)
def test_a_damaged_stream_changes_no_table(unchanged: TableOnWire, content: bytes, mode: str) -> None:
    check_refusal(unchanged.post("insert", content=content, params={"mode": mode}), 400, 13, "body")


@pytest.mark.parametrize("part", range(0, len(WHOLE), 37))
def test_a_stream_cut_anywhere_changes_no_table(still: TableOnWire, part: int) -> None:
    check_refusal(still.post("insert", content=WHOLE[:part]), 400, 13, "body")
    assert still.numbers() == [1]


def test_a_stream_may_come_in_chunks(http: httpx.Client, namespace: str) -> None:
    chunks = (WHOLE[start : start + 50] for start in range(0, len(WHOLE), 50))
    table = TableOnWire(http, namespace, "t")
    assert table.asked("create", content=chunks)["version"] == 1
    assert table.asked("count_rows") == 3


def test_rows_of_another_schema_change_no_table(unchanged: TableOnWire) -> None:
    content = stream(pa.table({"id": ["not a number"], "text": ["x"]}))
    check_refusal(unchanged.post("insert", content=content), 400, 20)


def test_a_column_that_is_not_there_changes_no_table(unchanged: TableOnWire) -> None:
    content = stream(some_rows().append_column("surprise", [[1, 2, 3]]))
    check_refusal(unchanged.post("insert", content=content), 400, 20)


def test_a_compressed_body_is_refused_by_name(unchanged: TableOnWire) -> None:
    answer = unchanged.post("insert", content=WHOLE, headers={"content-encoding": "gzip"})
    check_refusal(answer, 400, 13, "content-encoding")


@pytest.mark.parametrize(
    "properties", ["{", "[]", '"text"', '{"key": 1}', '{"key": {"nested": "x"}}', '{"key": null}']
)
def test_properties_that_are_no_texts_make_no_table(
    http: httpx.Client, nothing_new: str, properties: str
) -> None:
    answer = http.post(f"/v1/table/{nothing_new}$t/create", content=WHOLE, params={"properties": properties})
    check_refusal(answer, 400, 13)
    assert answer.json()["error"].startswith("properties")


@pytest.mark.parametrize(
    ("target", "body", "field"),
    [
        ("/v1/namespace/{}/create", {"mode": "Sometimes"}, "mode"),
        ("/v1/namespace/{}/create", {"mode": 5}, "mode"),
        ("/v1/namespace/{}/create", {"mode": ""}, "mode"),
        ("/v1/namespace/{}/create", {"properties": ["a"]}, "properties"),
        ("/v1/namespace/{}/create", {"properties": {"a": 1}}, "properties.a"),
        ("/v1/namespace/{}/drop", {"mode": "Force"}, "mode"),
        ("/v1/namespace/{}/drop", {"behavior": "Everything"}, "behavior"),
        ("/v1/namespace/{}/drop", {"behavior": True}, "behavior"),
        ("/v1/table/{}$t/declare", {"properties": "a"}, "properties"),
        ("/v1/table/{}$t/declare", {"location": 5}, "location"),
    ],
)
def test_a_choice_or_type_that_is_not_known_is_refused_by_field(
    http: httpx.Client, nothing_new: str, target: str, body: dict[str, Any], field: str
) -> None:
    check_refusal(http.post(target.format(nothing_new), json=body), 400, 13, field)


@pytest.mark.parametrize("action", ["create", "insert"])
def test_a_mode_that_is_not_known_is_refused(unchanged: TableOnWire, action: str) -> None:
    check_refusal(unchanged.post(action, content=WHOLE, params={"mode": "maybe"}), 400, 13, "mode")


@pytest.mark.parametrize("name", ["limit", "include_declared"])
def test_a_query_parameter_of_the_wrong_kind_is_refused(http: httpx.Client, name: str) -> None:
    answer = http.get("/v1/namespace/still/table/list", params={name: "many"})
    check_refusal(answer, 400, 13, name)


@pytest.mark.parametrize("action", ["insert", "query", "count_rows", "describe", "version/list"])
def test_an_unknown_branch_is_never_the_main_one(unchanged: TableOnWire, action: str) -> None:
    if action == "insert":
        answer = unchanged.post(action, content=WHOLE, params={"branch": "dev"})
    else:
        answer = unchanged.post(action, {"branch": "dev", "k": 1})
    check_refusal(answer, 404, 22)


@pytest.mark.parametrize(
    "target", ["/", "/v1", "/v2/table/t/describe", "/v1/table/t/explode", "/favicon.ico"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_route_says_so_in_the_protocols_form(http: httpx.Client, method: str, target: str) -> None:
    check_refusal(http.request(method, target), 404, 0)


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("GET", "/v1/table/still$t/describe", "POST"),
        ("DELETE", "/v1/table/still$t/drop", "POST"),
        ("POST", "/v1/namespace/still/list", "GET"),
        ("PUT", "/v1/table/still$t/count_rows", "GET, POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(
    http: httpx.Client, still: TableOnWire, method: str, target: str, allowed: str
) -> None:
    answer = http.request(method, target)
    check_refusal(answer, 405, 13)
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    "target",
    [
        "/v1/table/a$$b/describe",
        "/v1/table/$a/describe",
        "/v1/table/a$/describe",
        "/v1/table/$/describe",
        "/v1/table/a$../describe",
        "/v1/table/a$%2e/describe",
        "/v1/table/a%00b/describe",
        "/v1/table/a%0ab/describe",
        f"/v1/table/{'x' * 300}/describe",
        f"/v1/table/{'$'.join('x' * 20)}/describe",
        "/v1/table/a/describe?delimiter=",
        "/v1/table/%ff/describe",
    ],
)
def test_an_id_that_names_nothing_is_refused(server: RunningServer, target: str) -> None:
    status, body = raw(server, "POST", target, b"{}")
    assert (status, body["code"]) == (400, 13)
    assert body["error"].startswith(("id: ", "delimiter: ", "path: "))


def test_raw_paths_are_decoded_as_clients_encode_them(server: RunningServer, still: TableOnWire) -> None:
    for target in ("//v1/table/still$t/exists", "/v1/table/still%24t/exists/", "/v1//table/still$t/exists"):
        answer = still.http.post(f"{server.url}{target}")
        assert answer.status_code == 200


@pytest.mark.parametrize("body", [b"", b"null", b"  ", b"{}"])
def test_a_body_may_be_left_out(still: TableOnWire, body: bytes) -> None:
    assert still.asked("describe", content=body)["version"] == 1


def test_a_request_id_comes_back(still: TableOnWire) -> None:
    answer = still.post("exists", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
