"""The ASGI application: finds the route, reads the body, runs the handler, renders errors.

Handlers are synchronous. A request runs in one of three ways. Quick routes run on the event loop first,
because switching to a thread costs more than a read from a local database; if such a handler would block, it
raises `WouldBlock` and runs again from the start in a thread (see `catalog/nonblocking.py`). Routes that wait
for a job have a thread limit of their own. All others share `limits.threads` threads. If waiting requests
used those too, a few long polls would stop the whole server.

Every error becomes a response here, in the format of the service that the path belongs to. This is one of the
few places that catch all exceptions: an unexpected one is logged with the request id, and the client gets
that id without any details.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, TypeAlias
from uuid import uuid4

import anyio
import anyio.to_thread
import structlog
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.catalog.auditing import AuditedAction, acting
from tidemill.catalog.model.audit import AuditProtocol
from tidemill.catalog.model.callers import ANONYMOUS_CALLER
from tidemill.catalog.nonblocking import WouldBlock, nonblocking
from tidemill.catalog.storage_failures import storage_failure
from tidemill.errors import (
    CommitStateUnknown,
    ErrorCode,
    InvalidInput,
    MethodNotAllowed,
    PayloadTooLarge,
    RequestTimeout,
    Throttled,
    TidemillError,
    Unauthenticated,
    Unavailable,
)
from tidemill.protocols.http.addresses import client_address
from tidemill.protocols.http.auditing import NO_AUDIT, AuditTrail, object_kind, refuse, run_audited
from tidemill.protocols.http.browsers import add_cache_control
from tidemill.protocols.http.call import SLOW_BODY, Call, CallerResolver, Handler, Limits
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.http.routing import BodyKind, Match, Route, Router, path_segments

REQUEST_ID_HEADER: Final = "x-request-id"
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
CLIENT_CLOSED_REQUEST: Final = 499
HTTP_INTERNAL_ERROR: Final = 500
RETRY_AFTER_SECONDS: Final = "1"
RUST_PANIC: Final = "PanicException"

log = structlog.get_logger("tidemill.http")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error to be rendered by a protocol.

    `error` is None for unexpected exceptions. `operation` is the method and the path pattern of the route.
    """

    code: ErrorCode
    message: str
    request_id: str
    headers: Headers
    error: TidemillError | None = None
    operation: str = ""


ErrorRenderer: TypeAlias = Callable[[Refusal], Response]


@dataclass(frozen=True, slots=True)
class Service:
    """One protocol: its name in the audit, the prefix of its paths, its routes, and how it renders errors."""

    protocol: AuditProtocol
    prefix: tuple[str, ...]
    routes: Sequence[Route]
    render_error: ErrorRenderer


@dataclass(slots=True)
class _Trace:
    """Collects what is logged about a request."""

    method: str
    request_id: str
    route: str = ""
    caller: str = ""
    action: AuditedAction | None = None

    @property
    def operation(self) -> str:
        return f"{self.method} {self.route}"


class _Request:
    """An ASGI request with parsed headers."""

    __slots__ = ("headers", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.headers = Headers(raw=scope["headers"])


class HttpApp:
    """Dispatches to the first service whose prefix matches. The last service takes all other paths."""

    def __init__(
        self,
        services: Sequence[Service],
        operations: Operations,
        limits: Limits,
        resolve_caller: CallerResolver,
        audit: AuditTrail = NO_AUDIT,
    ) -> None:
        self._services = [(service, Router(service.routes)) for service in services]
        self._operations = operations
        self._limits = limits
        self._resolve_caller = resolve_caller
        self._audit = audit
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="request")
        self._waiting_threads = anyio.CapacityLimiter(limits.waiting_threads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            raise NotImplementedError(f"{scope['type']} connections are not supported")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request = _Request(scope, receive)
        trace = _Trace(scope["method"], _request_id(request.headers))
        try:
            response = await self._respond(request, trace)
        except ClientDisconnect:
            _log_request(trace, CLIENT_CLOSED_REQUEST, started)
            return
        add_cache_control(response)
        response.raw_headers.append((REQUEST_ID_HEADER.encode(), trace.request_id.encode()))
        await response(scope, receive, send)
        _log_request(trace, response.status_code, started)

    async def _respond(self, request: _Request, trace: _Trace) -> Response:
        raw_path = _raw_path(request.scope)
        # If the path cannot be decoded, the error is rendered by the service it was meant for.
        service, router = self._service_of(tuple(filter(None, raw_path.decode("latin-1").split("/"))))
        try:
            segments = path_segments(raw_path)
            service, router = self._service_of(segments)
            match = router.match(trace.method, segments)
            trace.route = match.route.pattern
            action = trace.action = _action(service, match.route, request, trace, self._limits)
            with acting(action):
                response = await self._call(request, match, trace, action)
            if response.status_code >= 400:
                refuse(self._audit, action, response.status_code)
            return response
        except TidemillError as error:
            response = _error_response(service, error, request, trace)
            if trace.action is not None:
                refuse(self._audit, trace.action, response.status_code, error)
            return response
        except ClientDisconnect:
            raise
        except Exception as error:
            if (failure := storage_failure(error, "the warehouse")) is not None:
                log.warning("storage failed", route=trace.route, request_id=trace.request_id, exc_info=True)
                return _error_response(service, failure, request, trace)
            log.exception(
                "request failed", method=trace.method, route=trace.route, request_id=trace.request_id
            )
            message = f"Internal error; the server's log has the details under request id {trace.request_id}"
            refusal = Refusal(
                ErrorCode.INTERNAL, message, trace.request_id, request.headers, None, trace.operation
            )
            if trace.action is not None:
                refuse(self._audit, trace.action, HTTP_INTERNAL_ERROR, None, ErrorCode.INTERNAL)
            return service.render_error(refusal)

    async def _call(self, request: _Request, match: Match, trace: _Trace, action: AuditedAction) -> Response:
        if self._limits.trusted_hosts is not None:
            self._limits.trusted_hosts.check(request.headers)
        is_public, address = match.route.is_public, action.address
        caller = ANONYMOUS_CALLER if is_public else await self._resolve_caller(request.headers, address)
        action.principal = trace.caller = caller.principal
        call = Call(
            operations=self._operations,
            caller=caller,
            limits=self._limits,
            parameters=match.parameters,
            query=_query(request.scope["query_string"]),
            headers=request.headers,
            body=await self._read_body(request, match.route.body),
            raw_query=request.scope["query_string"],
            address=address,
        )
        if match.route.is_quick and self._limits.runs_quick_on_loop:
            # Switching to a thread and back costs more than a read from the database.
            with suppress(WouldBlock, Unavailable), nonblocking():
                return run_audited(match.route.handler, call, action, self._audit)
        # Neither way into a thread takes context variables along.
        handler = partial(_run_handler, match.route.handler, call, action, self._audit)
        if match.route.is_waiting:
            return await anyio.to_thread.run_sync(handler, limiter=self._waiting_threads)
        return await asyncio.get_running_loop().run_in_executor(self._threads, handler)

    def _service_of(self, segments: tuple[str, ...]) -> tuple[Service, Router]:
        for service, router in self._services:
            if segments[: len(service.prefix)] == service.prefix:
                return service, router
        return self._services[-1]

    async def _read_body(self, request: _Request, kind: BodyKind) -> bytes:
        match kind:
            case BodyKind.JSON:
                return await _read_body(request, self._limits.json_bytes)
            case BodyKind.ENVELOPE:
                return await _read_body(request, self._limits.envelope_bytes)
            case BodyKind.ARROW:
                return await _read_body(request, self._limits.arrow_bytes)
            case BodyKind.IGNORED:
                return await _drain_body(request, self._limits.arrow_bytes)


def _action(
    service: Service, route: Route, request: _Request, trace: _Trace, limits: Limits
) -> AuditedAction:
    return AuditedAction(
        principal="",
        protocol=service.protocol,
        operation=trace.operation,
        address=client_address(_peer(request.scope), request.headers, limits.trusted_proxies),
        request_id=trace.request_id,
        is_mutation=route.is_mutation,
        object_kind=object_kind(route.pattern),
    )


def _run_handler(handler: Handler, call: Call, action: AuditedAction, audit: AuditTrail) -> Response:
    """Turns a panic of a Rust library, which is not an Exception in Python, into an error of this request."""
    try:
        return run_audited(handler, call, action, audit)
    except BaseException as error:
        if type(error).__name__ != RUST_PANIC:
            raise
        raise RuntimeError(f"a library panicked: {error}") from error


async def _read_body(request: _Request, limit_bytes: int) -> bytes:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise InvalidInput("content-encoding", f"{encoding!r:.60} is not supported; send the body unencoded")
    chunks = [chunk async for chunk in _read_chunks(request, limit_bytes)]
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _drain_body(request: _Request, limit_bytes: int) -> bytes:
    """Reads the body to its end: a client that is still sending may never read the response."""
    async for _ in _read_chunks(request, limit_bytes):
        pass
    return b""


async def _read_chunks(request: _Request, limit_bytes: int) -> AsyncIterator[bytes]:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise PayloadTooLarge("The body", limit_bytes)
    received, is_more = 0, True
    while is_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if request.scope.get("state", {}).get(SLOW_BODY):
            raise RequestTimeout("The body arrives too slowly; send it again over a faster connection")
        chunk: bytes = message.get("body", b"")
        received += len(chunk)
        if received > limit_bytes:
            raise PayloadTooLarge("The body", limit_bytes)
        is_more = message.get("more_body", False)
        yield chunk


@lru_cache(maxsize=256)
def _query(raw: bytes) -> QueryParams:
    return QueryParams(raw)


def _error_response(service: Service, error: TidemillError, request: _Request, trace: _Trace) -> Response:
    if error.code is ErrorCode.INTERNAL:
        log.error("request failed", route=trace.route, request_id=trace.request_id, exc_info=error)
    refusal = Refusal(error.code, str(error), trace.request_id, request.headers, error, trace.operation)
    response = service.render_error(refusal)
    match error:
        case MethodNotAllowed():
            response.headers["allow"] = ", ".join(error.allowed)
        case CommitStateUnknown():
            # No Retry-After: repeating the request without an idempotency key could apply it twice.
            pass
        case Throttled():
            response.headers["retry-after"] = str(error.retry_after_seconds)
        case PayloadTooLarge() | RequestTimeout():
            # The rest of the body is not read.
            response.headers["connection"] = "close"
        case Unavailable():
            response.headers["retry-after"] = RETRY_AFTER_SECONDS
        case Unauthenticated():
            response.headers["www-authenticate"] = _challenge(error)
        case _:
            pass
    return response


def _challenge(error: Unauthenticated) -> str:
    """RFC 6750, 3: without a token there is nothing to say about it."""
    if error.token_problem is None:
        return "Bearer"
    return f'Bearer error="invalid_token", error_description="{error.token_problem}"'


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _raw_path(scope: Scope) -> bytes:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0]


def _request_id(headers: Headers) -> str:
    sent_id = headers.get(REQUEST_ID_HEADER, "")
    return sent_id if REQUEST_ID.fullmatch(sent_id) else str(uuid4())


def _log_request(trace: _Trace, status: int, started: float) -> None:
    log.info(
        "request",
        method=trace.method,
        route=trace.route,
        status=status,
        duration_ms=round((time.perf_counter() - started) * 1000, 2),
        request_id=trace.request_id,
        caller=trace.caller,
    )


async def _run_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
