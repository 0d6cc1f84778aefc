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
from tidemill.protocols.iceberg.idempotency import Keep, kept, mutation
from tidemill.protocols.iceberg.identifiers import namespace_of, split_levels
from tidemill.protocols.iceberg.paging import page_body, page_of
from tidemill.protocols.iceberg.responses import NO_CONTENT, Answer, json_answer
from tidemill.protocols.iceberg.routing import both


def list_namespaces(call: Call) -> Response:
    """Direct children of the parent; without one, or with an empty one, of the root."""
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
    path = _named(body)

    def run(keep: Keep) -> Answer:
        properties = body.texts_by_name("properties") or {}
        answer = json_answer({"namespace": path.levels, "properties": properties})
        call.operations.namespaces.create(
            call.caller, path, CreateMode.CREATE, properties, lambda tx: keep(tx, answer)
        )
        return answer

    return mutation(call, "createNamespace", _managing(path), run)


def load_namespace_metadata(call: Call) -> Response:
    found = call.operations.namespaces.describe(call.caller, namespace_of(call))
    return json_response(_namespace_json(found))


def namespace_exists(call: Call) -> Response:
    call.operations.namespaces.describe(call.caller, namespace_of(call))
    return Response(status_code=204)


def drop_namespace(call: Call) -> Response:
    path = namespace_of(call)

    def run(keep: Keep) -> Answer:
        call.operations.namespaces.drop(
            call.caller, path, DropMode.FAIL, DropBehavior.RESTRICT, lambda tx: keep(tx, NO_CONTENT)
        )
        return NO_CONTENT

    return mutation(call, "dropNamespace", _managing(path), run)


def update_properties(call: Call) -> Response:
    path = namespace_of(call)

    def run(keep: Keep) -> Answer:
        body = read_object(call.body)
        changes = call.operations.namespaces.update_properties(
            call.caller,
            path,
            body.texts("removals") or (),
            body.texts_by_name("updates") or {},
            kept(keep, _changes_answer),
        )
        return _changes_answer(changes)

    return mutation(call, "updateProperties", _managing(path), run)


def _named(body: Fields) -> NamespacePath:
    levels = body.texts("namespace")
    if not levels:
        raise InvalidInput("namespace", "is missing; it has to be the list of its names, at least one")
    return namespace_path(levels, "namespace")


def _managing(path: NamespacePath) -> tuple[Need]:
    return (Need(Permission.MANAGE, path),)


def _changes_answer(changes: PropertyChanges) -> Answer:
    return json_answer({"updated": changes.updated, "removed": changes.removed, "missing": changes.missing})


def _namespace_json(namespace: Namespace) -> dict[str, Any]:
    return {"namespace": namespace.path.levels, "properties": dict(namespace.properties)}


ROUTES: Final = (
    *both("GET", "/namespaces", list_namespaces, is_quick=True),
    *both("POST", "/namespaces", create_namespace),
    *both("GET", "/namespaces/{namespace}", load_namespace_metadata, is_quick=True),
    *both("HEAD", "/namespaces/{namespace}", namespace_exists, is_quick=True),
    *both("DELETE", "/namespaces/{namespace}", drop_namespace),
    *both("POST", "/namespaces/{namespace}/properties", update_properties),
)
