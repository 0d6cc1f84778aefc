"""What a page in the user's browser can do to a server on the same machine, and headers that stop pages."""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from starlette.datastructures import Headers

from tests.conftest import RunningServer
from tidemill.errors import UntrustedOrigin
from tidemill.protocols.http.browsers import TrustedHosts

LIST: Final = "/v1/namespace/$/list"
EXPECTED: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


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
    server: RunningServer, header: str, value: str
) -> None:
    refused = create(server, "planted", **{header: value})
    assert refused.status_code == 403
    assert "TIDEMILL_ALLOWED_HOSTS" in refused.text
    listed = httpx.get(server.url + LIST, trust_env=False)
    assert "planted" not in listed.text


@pytest.mark.parametrize("path", [LIST, "/api/v1/jobs", "/iceberg/v1/config", "/api/v1/health"])
def test_no_protocol_answers_under_a_foreign_name(server: RunningServer, path: str) -> None:
    refused = httpx.get(server.url + path, headers={"host": "evil.example"}, trust_env=False)
    assert refused.status_code == 403


@pytest.mark.parametrize(
    ("number", "header", "value"),
    [
        (1, "host", "localhost:8181"),
        (2, "host", "LOCALHOST."),
        (3, "host", "[::1]:8181"),
        (4, "origin", "http://localhost:3000"),
    ],
)
def test_names_of_this_machine_are_heard(server: RunningServer, number: int, header: str, value: str) -> None:
    assert create(server, f"heard{number}", **{header: value}).status_code == 200


def test_names_in_the_settings_are_heard_in_any_case() -> None:
    trusted = TrustedHosts(["Lake.internal"])
    trusted.check(Headers({"host": "LAKE.internal:8181", "origin": "https://lake.internal"}))
    with pytest.raises(UntrustedOrigin):
        trusted.check(Headers({"host": "lake.internal.evil.example"}))


@pytest.mark.parametrize("path", [LIST, "/api/v1/health", "/iceberg/v1/config", "/nothing", "/%ff"])
def test_every_answer_has_the_headers_and_no_banner(server: RunningServer, path: str) -> None:
    answer = httpx.get(server.url + path, trust_env=False)
    assert {name: answer.headers.get(name) for name in EXPECTED} == EXPECTED
    assert answer.headers["cache-control"] == "no-store"
    assert "server" not in answer.headers
    assert "strict-transport-security" not in answer.headers


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 100_000])
def test_refusals_of_what_is_no_request_have_them_too(server: RunningServer, sent: bytes) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 20) as opened:
        opened.sendall(sent)
        answer = opened.recv(65536).lower()
    for name, value in EXPECTED.items():
        assert f"{name}: {value.lower()}\r\n".encode() in answer
    assert b"server:" not in answer


def test_tables_of_iceberg_can_still_be_asked_for_again(server: RunningServer) -> None:
    catalog = RestCatalog("lake", uri=f"{server.url}/iceberg")
    catalog.create_namespace("cached")
    catalog.create_table("cached.docs", pa.schema([("id", pa.int64())]))
    path = f"{server.url}/iceberg/v1/namespaces/cached/tables/docs"
    loaded = httpx.get(path, trust_env=False)
    assert loaded.headers["cache-control"] == "private, no-cache"
    again = httpx.get(path, headers={"if-none-match": loaded.headers["etag"]}, trust_env=False)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == loaded.headers["etag"]
    assert again.headers["cache-control"] == "private, no-cache"
    assert catalog.load_table("cached.docs").append(pa.table({"id": [1]})) is None
    changed = httpx.get(path, headers={"if-none-match": loaded.headers["etag"]}, trust_env=False)
    assert (changed.status_code, changed.headers["cache-control"]) == (200, "private, no-cache")
