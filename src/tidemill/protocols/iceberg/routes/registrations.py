"""Routes that register existing tables and views under a name, and unregister tables."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.operations.receipts import Need
from tidemill.iceberg.model.entries import Registration
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.iceberg.idempotency import Recorder, recording, run_mutation
from tidemill.protocols.iceberg.identifiers import ident_in, namespace_of, table_of
from tidemill.protocols.iceberg.mapping import registration_mode
from tidemill.protocols.iceberg.responses import (
    ReplayableResponse,
    loaded_table,
    loaded_view,
    unregistered_table,
)
from tidemill.protocols.iceberg.routing import route_pair


def register_table(call: Call) -> Response:
    body = read_object(call.body)
    ident, mode = ident_in(namespace_of(call), body.required_text("name")), registration_mode(body)

    def run(record: Recorder) -> ReplayableResponse:
        location = body.required_text("metadata-location")
        tables = call.operations.iceberg_tables
        return loaded_table(
            tables.register(call.caller, ident, location, mode, recording(record, loaded_table))
        )

    permission = Permission.MANAGE if mode is Registration.OVERWRITE else Permission.WRITE
    return run_mutation(call, "registerTable", (Need(permission, ident),), run)


def unregister_table(call: Call) -> Response:
    ident = table_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        tables = call.operations.iceberg_tables
        return unregistered_table(
            tables.unregister(call.caller, ident, recording(record, unregistered_table))
        )

    return run_mutation(call, "unregisterTable", (Need(Permission.MANAGE, ident),), run)


def register_view(call: Call) -> Response:
    body = read_object(call.body)
    ident = ident_in(namespace_of(call), body.required_text("name"))

    def run(record: Recorder) -> ReplayableResponse:
        location = body.required_text("metadata-location")
        views = call.operations.iceberg_views
        return loaded_view(views.register(call.caller, ident, location, recording(record, loaded_view)))

    return run_mutation(call, "registerView", (Need(Permission.WRITE, ident),), run)


ROUTES: Final = (
    *route_pair("POST", "/namespaces/{namespace}/register", register_table),
    *route_pair("POST", "/namespaces/{namespace}/tables/{table}/unregister", unregister_table),
    *route_pair("POST", "/namespaces/{namespace}/register-view", register_view),
)
