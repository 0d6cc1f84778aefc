"""Routes of views."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.receipts import Mutation
from tidemill.iceberg.model.entries import Entry
from tidemill.iceberg.operations import needs
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.idempotency import mutation_route
from tidemill.protocols.iceberg.mapping import (
    change_of,
    namespace_of,
    new_ident_of,
    new_view,
    source_and_target,
    view_of,
)
from tidemill.protocols.iceberg.parameters import page_body, page_of, route_pair
from tidemill.protocols.iceberg.responses import loaded_view, no_content, respond


def list_views(call: Call) -> Response:
    namespace = namespace_of(call)
    body = page_body(
        page_of(call),
        "identifiers",
        lambda page: call.operations.iceberg_views.list_in(call.caller, namespace, page),
        lambda name: {"namespace": namespace.levels, "name": name},
    )
    return json_response(body)


@mutation_route("createView", new_ident_of, needs.to_write, loaded_view)
def create_view(call: Call, ident: TableIdent, creation: Mutation[Entry]) -> Entry:
    """The specification defines no key for this mutation, but Java sends one."""
    return call.operations.iceberg_views.create(creation, ident, new_view(read_object(call.body)))


def load_view(call: Call) -> Response:
    return respond(call, loaded_view(call.operations.iceberg_views.load(call.caller, view_of(call))))


def view_exists(call: Call) -> Response:
    call.operations.iceberg_views.check_exists(call.caller, view_of(call))
    return Response(status_code=204)


@mutation_route("replaceView", view_of, needs.to_write, loaded_view)
def replace_view(call: Call, ident: TableIdent, commit: Mutation[Entry]) -> Entry:
    change = change_of(ident, read_object(call.body))
    return call.operations.iceberg_views.replace(commit, change)


@mutation_route("registerView", new_ident_of, needs.to_write, loaded_view)
def register_view(call: Call, ident: TableIdent, registration: Mutation[Entry]) -> Entry:
    location = read_object(call.body).required_text("metadata-location")
    return call.operations.iceberg_views.register(registration, ident, location)


@mutation_route("dropView", view_of, needs.to_remove, no_content)
def drop_view(call: Call, ident: TableIdent, removal: Mutation[Entry]) -> Entry:
    return call.operations.iceberg_views.drop(removal, ident)


@mutation_route("renameView", source_and_target, lambda names: needs.to_rename(*names), no_content)
def rename_view(call: Call, names: tuple[TableIdent, TableIdent], renaming: Mutation[None]) -> None:
    call.operations.iceberg_views.rename(renaming, *names)


VIEWS: Final = "/namespaces/{namespace}/views"
VIEW: Final = f"{VIEWS}/{{view}}"

ROUTES: Final = (
    *route_pair("GET", VIEWS, list_views, is_quick=True),
    *route_pair("POST", VIEWS, create_view, body=BodyKind.ENVELOPE),
    *route_pair("GET", VIEW, load_view, is_quick=True),
    *route_pair("HEAD", VIEW, view_exists, is_quick=True),
    *route_pair("POST", VIEW, replace_view, body=BodyKind.ENVELOPE),
    *route_pair("DELETE", VIEW, drop_view),
    *route_pair("POST", "/views/rename", rename_view),
    *route_pair("POST", "/namespaces/{namespace}/register-view", register_view),
)
