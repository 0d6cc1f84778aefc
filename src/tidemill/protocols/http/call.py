"""A request as handlers see it: parsed, with its body and its caller."""

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
"""Finds the caller of a request by its headers; raises Unauthenticated."""


def local_caller(_headers: Headers) -> Caller:
    """For embedded servers: every caller is the owner, and credentials are ignored."""
    return LOCAL_CALLER
