"""Routes of namespaces."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.locations import LOCATION_PROPERTY
from tidemill.catalog.model.identifiers import (
    CreateMode,
    DropBehavior,
    DropMode,
    Namespace,
    NamespacePath,
    PropertyChanges,
    namespace_path,
)
from tidemill.catalog.operations.namespaces import needs_to_change
from tidemill.catalog.operations.receipts import Mutation
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.iceberg.idempotency import mutation_route
from tidemill.protocols.iceberg.mapping import namespace_of, new_namespace_of, split_levels
from tidemill.protocols.iceberg.parameters import page_body, page_of, route_pair
from tidemill.protocols.iceberg.responses import ReplayableResponse, no_content, replayable_json


def _namespace_json(namespace: Namespace) -> dict[str, Any]:
    """Trino creates tables only in namespaces with a `location` (trinodb/trino#26742), so all have one."""
    properties = {**namespace.properties, LOCATION_PROPERTY: namespace.location}
    return {"namespace": namespace.path.levels, "properties": properties}


def _created_response(namespace: Namespace) -> ReplayableResponse:
    return replayable_json(_namespace_json(namespace))


def _changes_response(changes: PropertyChanges) -> ReplayableResponse:
    return replayable_json(
        {"updated": changes.updated, "removed": changes.removed, "missing": changes.missing}
    )


def list_namespaces(call: Call) -> Response:
    """Direct children of the parent; without a parent or with an empty one, of the root."""
    raw = call.query.get("parent")
    parent = namespace_path(split_levels(call, raw), "parent") if raw else NamespacePath()
    body = page_body(
        page_of(call),
        "namespaces",
        lambda page: call.operations.namespaces.list_children(call.caller, parent, page),
        lambda name: parent.child(name).levels,
    )
    return json_response(body)


@mutation_route("createNamespace", new_namespace_of, needs_to_change, _created_response)
def create_namespace(call: Call, path: NamespacePath, creation: Mutation[Namespace]) -> Namespace:
    properties = read_object(call.body).texts_by_name("properties") or {}
    return call.operations.namespaces.create(creation, path, CreateMode.CREATE, properties)


def load_namespace_metadata(call: Call) -> Response:
    found = call.operations.namespaces.describe(call.caller, namespace_of(call))
    return json_response(_namespace_json(found))


def namespace_exists(call: Call) -> Response:
    call.operations.namespaces.describe(call.caller, namespace_of(call))
    return Response(status_code=204)


@mutation_route("dropNamespace", namespace_of, needs_to_change, no_content)
def drop_namespace(call: Call, path: NamespacePath, removal: Mutation[None]) -> None:
    call.operations.namespaces.drop(removal, path, DropMode.FAIL, DropBehavior.RESTRICT)


@mutation_route("updateProperties", namespace_of, needs_to_change, _changes_response)
def update_properties(call: Call, path: NamespacePath, update: Mutation[PropertyChanges]) -> PropertyChanges:
    body = read_object(call.body)
    removals, updates = body.texts("removals") or (), body.texts_by_name("updates") or {}
    return call.operations.namespaces.update_properties(update, path, removals, updates)


ROUTES: Final = (
    *route_pair("GET", "/namespaces", list_namespaces, is_quick=True),
    *route_pair("POST", "/namespaces", create_namespace),
    *route_pair("GET", "/namespaces/{namespace}", load_namespace_metadata, is_quick=True),
    *route_pair("HEAD", "/namespaces/{namespace}", namespace_exists, is_quick=True),
    *route_pair("DELETE", "/namespaces/{namespace}", drop_namespace),
    *route_pair("POST", "/namespaces/{namespace}/properties", update_properties),
)
