"""A request as handlers see it: parsed, with its body, its caller and the limits that apply to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response

from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.protocols.http.operations import Operations

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """`waiting_threads` serve long polls, which would otherwise occupy the threads of all other requests.

    `runs_quick_on_loop` is for servers whose database and files are on the same machine: quick requests run
    on the event loop first, before they get a thread.
    """

    json_bytes: int = MIB
    envelope_bytes: int = 64 * MIB
    arrow_bytes: int = GIB
    decoded_arrow_bytes: int = 512 * MIB
    threads: int = 40
    waiting_threads: int = 256
    runs_quick_on_loop: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    operations: Operations
    caller: Caller
    limits: Limits
    parameters: Mapping[str, str]
    query: QueryParams
    headers: Headers
    body: bytes


Handler: TypeAlias = Callable[[Call], Response]
CallerResolver: TypeAlias = Callable[[Headers], Caller]
"""Finds the caller of a request by its headers; raises Unauthenticated."""


def local_caller(_headers: Headers) -> Caller:
    """For embedded servers: every caller is the owner, and credentials are ignored."""
    return LOCAL_CALLER
