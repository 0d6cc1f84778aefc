"""Reads that are answered without a thread, and those that turn out to need one."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import httpx
import pytest
from starlette.responses import Response

from tidemill.catalog.model.audit import AuditProtocol
from tidemill.catalog.nonblocking import may_block
from tidemill.errors import Unavailable
from tidemill.protocols.http.app import HttpApp, Service
from tidemill.protocols.http.call import Call, Handler, Limits, json_response, local_caller
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.errors import render_error


def answered_on_the_loop(route: Route, limits: Limits) -> bool:
    service = Service(AuditProtocol.LANCE, (), [route], render_error)
    app = HttpApp([service], cast(Operations, None), limits, local_caller)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get("/where")

    answer = asyncio.run(send())
    assert answer.status_code == 200
    return bool(answer.json())


def is_main_thread(_: Call) -> Response:
    return json_response(threading.current_thread() is threading.main_thread())


def needs_time(call: Call) -> Response:
    may_block()
    return is_main_thread(call)


def finds_the_database_busy(call: Call) -> Response:
    if threading.current_thread() is threading.main_thread():
        raise Unavailable("busy")
    return is_main_thread(call)


def test_a_quick_read_is_answered_at_once() -> None:
    route = Route("GET", "/where", is_main_thread, is_quick=True)
    assert answered_on_the_loop(route, Limits(runs_quick_on_loop=True))


@pytest.mark.parametrize("handler", [needs_time, finds_the_database_busy])
def test_what_would_wait_is_done_again_in_a_thread(handler: Handler) -> None:
    route = Route("GET", "/where", handler, is_quick=True)
    assert not answered_on_the_loop(route, Limits(runs_quick_on_loop=True))


def test_other_routes_have_threads() -> None:
    assert not answered_on_the_loop(Route("GET", "/where", is_main_thread), Limits(runs_quick_on_loop=True))


def test_nothing_is_tried_at_once_where_storage_is_elsewhere() -> None:
    assert not answered_on_the_loop(Route("GET", "/where", is_main_thread, is_quick=True), Limits())
