"""The proxy that records foreign clients passes on what both sides say, and notes it."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from tests.clients.proxy import Exchange, recording_proxy
from tests.protocol.iceberg.clients import soon


class Notes:
    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.asked_first: list[int] = []

    def asked(self) -> int:
        self.asked_first.append(len(self.exchanges))
        return len(self.asked_first)

    def answering(self) -> None: ...

    def answered(self, what_was_asked: int, exchange: Exchange) -> None:
        self.exchanges.append(exchange)

    def first(self, count: int) -> list[Exchange]:
        """The client may have its answer a moment before it is noted."""
        assert soon(lambda: len(self.exchanges) == count)
        return self.exchanges


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        if self.headers.get("transfer-encoding") == "chunked":
            body = b"".join(self._chunks())
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(body)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"3\r\none\r\n5;x=y\r\n, two\r\n0\r\n\r\n")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(packed := gzip.compress(body))))
        self.end_headers()
        self.wfile.write(packed)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def proxy(notes: Notes) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as echo:
        echo.daemon_threads = True
        thread = Thread(target=echo.serve_forever)
        thread.start()
        with recording_proxy(f"http://127.0.0.1:{echo.server_port}", notes) as url:
            yield url
        echo.shutdown()
        thread.join()


def test_requests_on_one_connection_are_paired_with_their_answers(proxy: str, notes: Notes) -> None:
    with httpx.Client(base_url=proxy) as http:
        assert http.post("/a", content=b"body").content == b"body"
        assert http.head("/b").headers["content-length"] == "1000"
        assert http.get("/c?d=e").content == b"one, two"
    assert [(one.method, one.target, one.answer.body) for one in notes.first(3)] == [
        ("POST", "/a", b"body"),
        ("HEAD", "/b", b""),
        ("GET", "/c?d=e", b"one, two"),
    ]
    assert notes.asked_first == [0, 1, 2]


def test_a_body_in_chunks_is_passed_on_and_noted_whole(proxy: str, notes: Notes) -> None:
    with httpx.Client(base_url=proxy) as http:
        assert http.post("/", content=iter([b"in ", b"chunks"])).content == b"in chunks"
    (noted,) = notes.first(1)
    assert (noted.request.body, noted.answer.status) == (b"in chunks", 200)


def test_a_client_may_wait_for_leave_to_send_its_body(proxy: str, notes: Notes) -> None:
    host, port = proxy.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert b"100 Continue" in connection.recv(1000)
        connection.sendall(b"ok")
        assert b"200 OK" in connection.recv(1000)
    (noted,) = notes.first(1)
    assert (noted.request.headers["host"], noted.request.body, noted.answer.body) == ("x", b"ok", b"ok")
