"""What someone without a credential can do to a server: send much, send slowly, connect often, guess."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import RunningServer, start_server

ATTACK_CLASS = "requests before authentication"
HEADER_BYTES: Final = 16 * 1024
SECONDS: Final = 1
CONNECTIONS: Final = 500
HEALTH: Final = b"GET /api/v1/health HTTP/1.1\r\nhost: a\r\n"
LIST: Final = "/v1/namespace/$/list"
CLIENTS: Final = {"ada": {"secret": "correct"}, "ben": {"secret": "other"}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start_server(
        tmp_path_factory.mktemp("bounded"),
        "--no-worker",
        TIDEMILL_CLIENTS=json.dumps(CLIENTS),
        TIDEMILL_MAX_HEADER_BYTES=str(HEADER_BYTES),
        TIDEMILL_HEADER_SECONDS=str(SECONDS),
        TIDEMILL_STALL_SECONDS=str(SECONDS),
        TIDEMILL_MAX_CONNECTIONS_PER_ADDRESS="64",
        TIDEMILL_TRUSTED_PROXIES='["127.0.0.3/32"]',
        TIDEMILL_FAILED_LOGINS_PER_ADDRESS="5",
    )
    yield running
    running.stop()


def connection(server: RunningServer, source: str = "127.0.0.1") -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port or 0), 20, (source, 0))


def status_of(opened: socket.socket) -> int:
    """The status of the response; 0 if the connection was closed without one."""
    received = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in received and (data := opened.recv(65536)):
            received += data
    return int(received.split(b" ", 2)[1]) if received else 0


def sent(server: RunningServer, *pieces: bytes, source: str = "127.0.0.1") -> int:
    with connection(server, source) as opened:
        with suppress(ConnectionError):
            for piece in pieces:
                opened.sendall(piece)
        return status_of(opened)


HEADS: Final = {
    "a huge field": [HEALTH, b"x: ", *[b"a" * 65536] * 160],
    "a huge path": [b"GET /", *[b"a" * 65536] * 160],
    "many fields": [HEALTH, b"".join(b"x%d: a\r\n" % number for number in range(500)), b"\r\n"],
    "endless fields": [HEALTH, *[b"x: abcdefghijklmnopqrstuvwxyz\r\n" * 2000] * 100],
    "huge trailers": [
        b"POST /api/v1/nothing HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
        *[b"a" * 65536] * 160,
    ],
    "huge chunk extensions": [
        b"POST /v1/table/a/insert HTTP/1.1\r\nhost: a\r\nx-api-key: ada:correct\r\n"
        b"transfer-encoding: chunked\r\n\r\n1;x=",
        *[b"a" * 65536] * 160,
    ],
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_of_any_size_does_not_occupy_the_server(guarded: RunningServer, name: str) -> None:
    assert sent(guarded, *HEADS[name]) in (431, 404, 0)
    assert sent(guarded, HEALTH, b"\r\n") == 200


def test_a_large_head_is_refused_with_431(guarded: RunningServer) -> None:
    response = httpx.get(
        f"{guarded.url}/api/v1/health", headers={"x": "a" * HEADER_BYTES * 2}, trust_env=False
    )
    assert response.status_code == 431
    assert "16,384 bytes" in response.text


def test_a_head_below_the_bounds_is_served_in_any_number_of_pieces(guarded: RunningServer) -> None:
    head = HEALTH + b"x: " + b"a" * (HEADER_BYTES - 200) + b"\r\n\r\n"
    assert sent(guarded, *[head[at : at + 1000] for at in range(0, len(head), 1000)]) == 200


@pytest.mark.parametrize("begun", [b"", b"\r\n", b"GET /", HEALTH, HEALTH + b"x: "])
def test_a_request_that_never_ends_is_closed(guarded: RunningServer, begun: bytes) -> None:
    started = time.monotonic()
    assert sent(guarded, begun) == 408
    assert time.monotonic() - started < 15


def test_a_head_that_drips_is_closed(guarded: RunningServer) -> None:
    with connection(guarded) as opened, suppress(ConnectionError):
        for _ in range(100):
            opened.sendall(b"\r\n")
            time.sleep(0.1)
    with connection(guarded) as opened:
        opened.sendall(HEALTH + b"\r\n")
        assert status_of(opened) == 200
        opened.sendall(HEALTH)
        assert status_of(opened) == 408


def test_a_body_that_never_arrives_is_refused_in_the_form_of_the_protocol(guarded: RunningServer) -> None:
    with connection(guarded) as opened:
        opened.sendall(
            b"POST /iceberg/v1/oauth/tokens HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\ngrant"
        )
        received = b""
        while data := opened.recv(65536):
            received += data
    assert received.startswith(b"HTTP/1.1 408")
    assert b"RequestTimeoutException" in received


def send_for_ever(opened: socket.socket, request: bytes) -> None:
    while True:
        opened.sendall(request)


def test_a_client_that_does_not_read_is_disconnected(guarded: RunningServer) -> None:
    with connection(guarded) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.settimeout(20)
        request = b"GET /v1/" + b"a" * 10_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n"
        with pytest.raises(ConnectionError):
            send_for_ever(opened, request)


def test_many_connections_of_one_address_leave_room_for_others(guarded: RunningServer) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(connection(guarded, "127.0.0.2")) for _ in range(CONNECTIONS)]
        statuses = [status_of(each) for each in opened[-20:]]
        assert sent(guarded, HEALTH, b"\r\n") == 200
    assert set(statuses) <= {503, 0, 408}
    assert 503 in statuses


def key(client: str, secret: str, forwarded: str = "") -> bytes:
    proxied = f"x-forwarded-for: {forwarded}\r\n" if forwarded else ""
    return f"GET {LIST} HTTP/1.1\r\nhost: a\r\nx-api-key: {client}:{secret}\r\n{proxied}\r\n".encode()


def test_keys_cannot_be_guessed_without_limit(guarded: RunningServer) -> None:
    guesses = [sent(guarded, key("ada", f"guess{number}"), source="127.0.1.1") for number in range(20)]
    assert guesses.count(401) <= 6
    assert set(guesses) == {401, 429}
    assert sent(guarded, key("ada", "correct"), source="127.0.1.1") == 429
    assert sent(guarded, key("ada", "correct"), source="127.0.1.2") == 200


def test_secrets_cannot_be_guessed_at_the_token_endpoint(guarded: RunningServer) -> None:
    form = "grant_type=client_credentials&client_id=ben&client_secret=guess"
    request = (
        f"POST /iceberg/v1/oauth/tokens HTTP/1.1\r\nhost: a\r\ncontent-length: {len(form)}\r\n\r\n{form}"
    ).encode()
    guesses = [sent(guarded, request, source="127.0.2.1") for _ in range(20)]
    assert guesses.count(401) <= 6
    assert set(guesses) == {401, 429}


def test_a_throttled_client_learns_when_to_try_again(guarded: RunningServer) -> None:
    with connection(guarded, "127.0.3.1") as opened:
        for _ in range(8):
            opened.sendall(key("ada", "guess"))
            answer = opened.recv(65536)
    assert b"retry-after: " in answer
    assert b"Too many failed logins" in answer


def test_an_address_cannot_be_forged_without_a_trusted_proxy(guarded: RunningServer) -> None:
    forged = [sent(guarded, key("ada", "guess", f"10.0.0.{n}"), source="127.0.4.1") for n in range(20)]
    assert 429 in forged


def test_clients_behind_a_trusted_proxy_are_told_apart(guarded: RunningServer) -> None:
    for number in range(20):
        sent(guarded, key("ada", "guess", f"8.8.8.8, 10.0.0.{number % 2}"), source="127.0.0.3")
    assert sent(guarded, key("ada", "correct", "10.0.0.1"), source="127.0.0.3") == 429
    assert sent(guarded, key("ada", "correct", "10.0.0.7"), source="127.0.0.3") == 200
