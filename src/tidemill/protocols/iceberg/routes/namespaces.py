"""Routes of namespaces."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.model.identifiers import NamespacePath, namespace_path
from tidemill.catalog.model.namespaces import CreateMode, DropBehavior, DropMode, Namespace, PropertyChanges
from tidemill.catalog.operations.receipts import Need
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, read_object
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.iceberg.idempotency import Recorder, recording, run_mutation
from tidemill.protocols.iceberg.identifiers import namespace_of, split_levels
from tidemill.protocols.iceberg.paging import page_body, page_of
from tidemill.protocols.iceberg.responses import NO_CONTENT, ReplayableResponse, replayable_json
from tidemill.protocols.iceberg.routing import route_pair


def list_namespaces(call: Call) -> Response:
    """Direct children of the parent; without a parent or with an empty one, of the root."""
    raw = call.query.get("parent")
    parent = namespace_path(split_levels(raw), "parent") if raw else NamespacePath()
    body = page_body(
        page_of(call),
        "namespaces",
        lambda page: call.operations.namespaces.list_children(call.caller, parent, page),
        lambda name: parent.child(name).levels,
    )
    return json_response(body)


def create_namespace(call: Call) -> Response:
    body = read_object(call.body)
    path = _namespace_in(body)

    def run(record: Recorder) -> ReplayableResponse:
        properties = body.texts_by_name("properties") or {}
        response = replayable_json({"namespace": path.levels, "properties": properties})
        call.operations.namespaces.create(
            call.caller, path, CreateMode.CREATE, properties, lambda tx: record(tx, response)
        )
        return response

    return run_mutation(call, "createNamespace", _manage_permission(path), run)


def load_namespace_metadata(call: Call) -> Response:
    found = call.operations.namespaces.describe(call.caller, namespace_of(call))
    return json_response(_namespace_json(found))


def namespace_exists(call: Call) -> Response:
    call.operations.namespaces.describe(call.caller, namespace_of(call))
    return Response(status_code=204)


def drop_namespace(call: Call) -> Response:
    path = namespace_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        call.operations.namespaces.drop(
            call.caller, path, DropMode.FAIL, DropBehavior.RESTRICT, lambda tx: record(tx, NO_CONTENT)
        )
        return NO_CONTENT

    return run_mutation(call, "dropNamespace", _manage_permission(path), run)


def update_properties(call: Call) -> Response:
    path = namespace_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        body = read_object(call.body)
        changes = call.operations.namespaces.update_properties(
            call.caller,
            path,
            body.texts("removals") or (),
            body.texts_by_name("updates") or {},
            recording(record, _changes_response),
        )
        return _changes_response(changes)

    return run_mutation(call, "updateProperties", _manage_permission(path), run)


def _namespace_in(body: Fields) -> NamespacePath:
    levels = body.texts("namespace")
    if not levels:
        raise InvalidInput("namespace", "is missing; it must be a list with at least one name")
    return namespace_path(levels, "namespace")


def _manage_permission(path: NamespacePath) -> tuple[Need]:
    return (Need(Permission.MANAGE, path),)


def _changes_response(changes: PropertyChanges) -> ReplayableResponse:
    return replayable_json(
        {"updated": changes.updated, "removed": changes.removed, "missing": changes.missing}
    )


def _namespace_json(namespace: Namespace) -> dict[str, Any]:
    return {"namespace": namespace.path.levels, "properties": dict(namespace.properties)}


ROUTES: Final = (
    *route_pair("GET", "/namespaces", list_namespaces, is_quick=True),
    *route_pair("POST", "/namespaces", create_namespace),
    *route_pair("GET", "/namespaces/{namespace}", load_namespace_metadata, is_quick=True),
    *route_pair("HEAD", "/namespaces/{namespace}", namespace_exists, is_quick=True),
    *route_pair("DELETE", "/namespaces/{namespace}", drop_namespace),
    *route_pair("POST", "/namespaces/{namespace}/properties", update_properties),
)
