"""Routes that give names to tables and views that exist in storage, and take names away."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.operations.receipts import Need
from tidemill.iceberg.model.entries import Registration
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.iceberg.idempotency import Keep, kept, mutation
from tidemill.protocols.iceberg.identifiers import named_in, namespace_of, table_of
from tidemill.protocols.iceberg.mapping import registration_mode
from tidemill.protocols.iceberg.responses import Answer, loaded_table, loaded_view, unregistered_table
from tidemill.protocols.iceberg.routing import both


def register_table(call: Call) -> Response:
    body = read_object(call.body)
    ident, mode = named_in(namespace_of(call), body.required_text("name")), registration_mode(body)

    def run(keep: Keep) -> Answer:
        location = body.required_text("metadata-location")
        tables = call.operations.iceberg_tables
        return loaded_table(tables.register(call.caller, ident, location, mode, kept(keep, loaded_table)))

    permission = Permission.MANAGE if mode is Registration.OVERWRITE else Permission.WRITE
    return mutation(call, "registerTable", (Need(permission, ident),), run)


def unregister_table(call: Call) -> Response:
    ident = table_of(call)

    def run(keep: Keep) -> Answer:
        tables = call.operations.iceberg_tables
        return unregistered_table(tables.unregister(call.caller, ident, kept(keep, unregistered_table)))

    return mutation(call, "unregisterTable", (Need(Permission.MANAGE, ident),), run)


def register_view(call: Call) -> Response:
    body = read_object(call.body)
    ident = named_in(namespace_of(call), body.required_text("name"))

    def run(keep: Keep) -> Answer:
        location = body.required_text("metadata-location")
        views = call.operations.iceberg_views
        return loaded_view(views.register(call.caller, ident, location, kept(keep, loaded_view)))

    return mutation(call, "registerView", (Need(Permission.WRITE, ident),), run)


ROUTES: Final = (
    *both("POST", "/namespaces/{namespace}/register", register_table),
    *both("POST", "/namespaces/{namespace}/tables/{table}/unregister", unregister_table),
    *both("POST", "/namespaces/{namespace}/register-view", register_view),
)
