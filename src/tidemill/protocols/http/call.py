"""A request as handlers see it: parsed, read whole, with its caller known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response

from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.protocols.http.limits import Limits
from tidemill.protocols.http.operations import Operations


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
"""Tells who sends a request, judged by its headers; raises Unauthenticated."""


def local_caller(_headers: Headers) -> Caller:
    """The embedded mode: whoever reaches the server is its owner; credentials are not looked at."""
    return LOCAL_CALLER
