"""Routes of views."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.operations.receipts import Need
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.idempotency import Recorder, recording, run_mutation
from tidemill.protocols.iceberg.identifiers import ident_in, namespace_of, view_of
from tidemill.protocols.iceberg.mapping import change_of, new_view, source_and_target
from tidemill.protocols.iceberg.paging import page_body, page_of
from tidemill.protocols.iceberg.responses import NO_CONTENT, ReplayableResponse, loaded_view, respond
from tidemill.protocols.iceberg.routing import route_pair


def list_views(call: Call) -> Response:
    namespace = namespace_of(call)
    body = page_body(
        page_of(call),
        "identifiers",
        lambda page: call.operations.iceberg_views.list_in(call.caller, namespace, page),
        lambda name: {"namespace": namespace.levels, "name": name},
    )
    return json_response(body)


def create_view(call: Call) -> Response:
    """The specification defines no key for this mutation, but Java sends one."""
    body = read_object(call.body)
    ident = ident_in(namespace_of(call), body.required_text("name"))

    def run(record: Recorder) -> ReplayableResponse:
        views = call.operations.iceberg_views
        return loaded_view(views.create(call.caller, ident, new_view(body), recording(record, loaded_view)))

    return run_mutation(call, "createView", (Need(Permission.WRITE, ident),), run)


def load_view(call: Call) -> Response:
    return respond(call, loaded_view(call.operations.iceberg_views.load(call.caller, view_of(call))))


def view_exists(call: Call) -> Response:
    call.operations.iceberg_views.check_exists(call.caller, view_of(call))
    return Response(status_code=204)


def replace_view(call: Call) -> Response:
    ident = view_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        change = change_of(ident, read_object(call.body))
        entry = call.operations.iceberg_views.replace(call.caller, change, recording(record, loaded_view))
        return loaded_view(entry)

    return run_mutation(call, "replaceView", (Need(Permission.WRITE, ident),), run)


def drop_view(call: Call) -> Response:
    ident = view_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        call.operations.iceberg_views.drop(call.caller, ident, lambda tx, _: record(tx, NO_CONTENT))
        return NO_CONTENT

    return run_mutation(call, "dropView", (Need(Permission.MANAGE, ident),), run)


def rename_view(call: Call) -> Response:
    source, target = source_and_target(read_object(call.body))

    def run(record: Recorder) -> ReplayableResponse:
        call.operations.iceberg_views.rename(
            call.caller, source, target, lambda tx, _: record(tx, NO_CONTENT)
        )
        return NO_CONTENT

    needs = (Need(Permission.MANAGE, source), Need(Permission.WRITE, target))
    return run_mutation(call, "renameView", needs, run)


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
)
