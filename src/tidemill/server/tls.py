"""TLS of the HTTP server: certificates that are read again when their files change, and bounded handshakes.

asyncio tells a protocol about a TLS connection only after its handshake. Until then nobody would count it,
and it could take a minute. So connections are accepted in plain and counted before the handshake, which has
as much time as the head of a request. A client that speaks plain HTTP is disconnected at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import structlog

from tidemill.errors import InvalidInput
from tidemill.protocols.http.addresses import address_key
from tidemill.server.connections import ConnectionBounds, OpenConnections

CHECK_SECONDS: Final = 1.0
STRICT_TRANSPORT: Final = ("Strict-Transport-Security", "max-age=31536000")

log = structlog.get_logger("tidemill.server")


class Certificates:
    """The certificate for new connections. Files that do not fit together are ignored until they do."""

    def __init__(self, certificate: Path, key: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = (certificate, key)
        self._clock = clock
        self._checked_at = clock()
        try:
            self._seen = self._state()
            self._context = self._load()
        except (OSError, ValueError) as error:
            raise InvalidInput("tls_certificate", f"and tls_key cannot be used: {error}") from error

    def context(self) -> ssl.SSLContext:
        if self._clock() - self._checked_at >= CHECK_SECONDS:
            self._checked_at = self._clock()
            self._reload()
        return self._context

    def _reload(self) -> None:
        try:
            state = self._state()
            if state == self._seen:
                return
            self._seen = state
            self._context = self._load()
        except (OSError, ValueError) as error:
            log.warning("the new certificate cannot be used; the last one stays", error=str(error))
            return
        log.info("the certificate was read again", certificate=str(self._files[0]))

    def _state(self) -> list[tuple[int, int, int]]:
        found = [file.stat() for file in self._files]
        return [(status.st_mtime_ns, status.st_size, status.st_ino) for status in found]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        # An empty password: OpenSSL would ask for that of an encrypted key at the terminal.
        context.load_cert_chain(*self._files, password="")
        return context


class TlsHandshake(asyncio.Protocol):
    """A connection until its handshake is done; `make_http` then makes the protocol that takes it over."""

    def __init__(
        self,
        certificates: Certificates,
        bounds: ConnectionBounds,
        open_connections: OpenConnections,
        make_http: Callable[..., asyncio.Protocol],
        **uvicorn: Any,
    ) -> None:
        self._certificates = certificates
        self._bounds = bounds
        self._open = open_connections
        self._make_http = make_http
        self._uvicorn = uvicorn
        self._upgrade: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        host = peer[0] if isinstance(peer, tuple) else ""
        address = None if self._bounds.trusted_proxies.contains(host) else address_key(host)
        if address is not None and self._open.add(address) is not None:
            # There is no way to say why before the handshake.
            self._open.remove(address)
            plain.abort()
            return
        try:
            connection = _detached(plain)
        except OSError:
            # There are too many open files.
            if address is not None:
                self._open.remove(address)
            plain.abort()
            return
        self._upgrade = asyncio.get_running_loop().create_task(self._shake_hands(connection, address))

    async def _shake_hands(self, connection: socket.socket, address: str | None) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_connection,
                connection,
                ssl=self._certificates.context(),
                ssl_handshake_timeout=self._bounds.header_seconds,
            )
        except OSError:
            connection.close()
        finally:
            # From here on the HTTP protocol counts the connection.
            if address is not None:
                self._open.remove(address)

    def _make_connection(self) -> asyncio.Protocol:
        return self._make_http(**self._uvicorn)


def _detached(plain: asyncio.Transport) -> socket.socket:
    """Its socket without the transport, which would read the first bytes of the handshake."""
    found = plain.get_extra_info("socket")
    connection = socket.socket(found.family, found.type, found.proto, os.dup(found.fileno()))
    connection.settimeout(0)
    plain.abort()
    return connection
