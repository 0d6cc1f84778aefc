"""What a page in the user's browser can do to a server on the same machine, and headers that stop pages."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.conftest import RunningServer, start_server

LIST: Final = "/v1/namespace/$/list"
EXPECTED: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("open")
    running = start_server(folder, "--no-worker", TIDEMILL_ALLOWED_HOSTS='["Lake.internal"]')
    yield running
    running.stop()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("guarded"),
        "--no-worker",
        TIDEMILL_CLIENTS=json.dumps({"owner": {"secret": "all-of-it"}}),
    )
    yield running
    running.stop()


def create(server: RunningServer, name: str, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/namespace/{name}/create", content=b"{}", headers=headers, trust_env=False
    )


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("origin", "https://evil.example"),
        ("origin", "http://localhost.evil.example"),
        ("origin", "http://127.0.0.1.evil.example:8181"),
        ("origin", "null"),
        ("origin", "http://[::1"),
        ("host", "evil.example"),
        ("host", "evil.example:8181"),
        ("host", "127.0.0.1@evil.example"),
        ("host", ""),
    ],
)
def test_a_foreign_page_cannot_write_through_the_users_browser(
    open_server: RunningServer, header: str, value: str
) -> None:
    refused = create(open_server, "planted", **{header: value})
    assert refused.status_code == 403
    assert "TIDEMILL_ALLOWED_HOSTS" in refused.text
    listed = httpx.get(open_server.url + LIST, trust_env=False)
    assert "planted" not in listed.text


@pytest.mark.parametrize("path", [LIST, "/api/v1/jobs", "/iceberg/v1/config", "/api/v1/health"])
def test_no_protocol_answers_under_a_foreign_name(open_server: RunningServer, path: str) -> None:
    refused = httpx.get(open_server.url + path, headers={"host": "evil.example"}, trust_env=False)
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("number", "header", "value"),
    [
        (1, "host", "localhost:8181"),
        (2, "host", "LOCALHOST."),
        (3, "host", "[::1]:8181"),
        (4, "host", "lake.internal"),
        (5, "origin", "http://localhost:3000"),
        (6, "origin", "https://lake.internal"),
    ],
)
def test_names_of_this_machine_and_configured_ones_are_heard(
    open_server: RunningServer, number: int, header: str, value: str
) -> None:
    assert create(open_server, f"n{number}", **{header: value}).status_code == 200


def test_with_authentication_any_name_is_heard(guarded: RunningServer) -> None:
    headers = {"x-api-key": "owner:all-of-it", "host": "lake.example.org"}
    assert httpx.get(guarded.url + LIST, headers=headers, trust_env=False).status_code == 200


@pytest.mark.parametrize("path", [LIST, "/api/v1/health", "/iceberg/v1/config", "/nothing", "/%ff"])
@pytest.mark.parametrize("key", ["owner:all-of-it", "owner:wrong"])
def test_every_answer_has_the_headers_and_no_banner(guarded: RunningServer, path: str, key: str) -> None:
    answer = httpx.get(guarded.url + path, headers={"x-api-key": key}, trust_env=False)
    assert {name: answer.headers.get(name) for name in EXPECTED} == EXPECTED
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    assert "strict-transport-security" not in answer.headers


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 100_000])
def test_refusals_of_what_is_no_request_have_them_too(guarded: RunningServer, sent: bytes) -> None:
    address = urlsplit(guarded.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 20) as opened:
        opened.sendall(sent)
        answer = opened.recv(65536).lower()
    for name, value in EXPECTED.items():
        assert f"{name}: {value.lower()}\r\n".encode() in answer
    assert b"server:" not in answer


def test_tables_of_iceberg_can_still_be_asked_for_again(guarded: RunningServer) -> None:
    headers = {"x-api-key": "owner:all-of-it"}
    catalog = RestCatalog("lake", uri=f"{guarded.url}/iceberg", **{"header.x-api-key": "owner:all-of-it"})
    catalog.create_namespace("cached")
    catalog.create_table("cached.docs", pa.schema([("id", pa.int64())]))
    path = f"{guarded.url}/iceberg/v1/namespaces/cached/tables/docs"
    loaded = httpx.get(path, headers=headers, trust_env=False)
    assert loaded.headers["cache-control"] == "private, no-cache"
    again = {**headers, "if-none-match": loaded.headers["etag"]}
    assert httpx.get(path, headers=again, trust_env=False).status_code == 304
