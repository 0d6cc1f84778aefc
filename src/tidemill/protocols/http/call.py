"""A request as handlers see it, with its body, its caller and its limits; and simple responses to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response

from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.protocols.http.addresses import NO_NETWORKS, Networks
from tidemill.protocols.http.browsers import TrustedHosts
from tidemill.protocols.http.operations import Operations

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
# Key of the state of a request whose body arrives too slowly; the HTTP server sets it.
SLOW_BODY: Final = "tidemill.slow_body"


@dataclass(frozen=True, slots=True)
class Limits:
    """`waiting_threads` serve long polls, which would otherwise occupy the threads of all other requests.

    `runs_quick_on_loop` is for servers whose database and files are on the same machine: quick requests run
    on the event loop first, before they get a thread. `trusted_hosts` is for servers without authentication.
    """

    json_bytes: int = MIB
    envelope_bytes: int = 64 * MIB
    arrow_bytes: int = GIB
    decoded_arrow_bytes: int = 512 * MIB
    threads: int = 40
    waiting_threads: int = 256
    runs_quick_on_loop: bool = False
    trusted_proxies: Networks = NO_NETWORKS
    trusted_hosts: TrustedHosts | None = None


@dataclass(frozen=True, slots=True)
class Call:
    operations: Operations
    caller: Caller
    limits: Limits
    parameters: Mapping[str, str]
    query: QueryParams
    headers: Headers
    body: bytes
    raw_query: bytes = b""
    address: str = ""


Handler: TypeAlias = Callable[[Call], Response]
CallerResolver: TypeAlias = Callable[[Headers, str], Awaitable[Caller]]
"""Finds the caller of a request by its headers and address; raises Unauthenticated and Throttled."""


async def local_caller(_headers: Headers, _address: str) -> Caller:
    """For embedded servers: every caller is the owner, and credentials are ignored."""
    return LOCAL_CALLER


ARROW_FILE: Final = "application/vnd.apache.arrow.file"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def empty_response() -> Response:
    return Response(b"", 200)


def arrow_stream_response(table: pa.Table) -> Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), 200, media_type=ARROW_STREAM)


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """Removes null entries: strict clients reject null for optional fields."""
    return {key: entry for key, entry in value.items() if entry is not None}
