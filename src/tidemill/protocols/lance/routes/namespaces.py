"""Routes of namespaces."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import CreateMode, DropBehavior, DropMode, NamespacePath
from tidemill.catalog.operations.receipts import Mutation
from tidemill.protocols.http.call import Call, empty_response, json_response, without_nulls
from tidemill.protocols.http.fields import namespace_of
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.mapping import properties_of
from tidemill.protocols.lance.requests import dependant_policy, namespace_request, read_page


def create_namespace(call: Call) -> Response:
    path, body = namespace_request(call)
    mode, properties = body.choice("mode", CreateMode.CREATE), properties_of(body)
    namespace = call.operations.namespaces.create(Mutation(call.caller), path, mode, properties)
    return json_response({"properties": dict(namespace.properties)})


def list_namespaces(call: Call) -> Response:
    return namespaces_in(call, namespace_of(call))


def namespaces_in(call: Call, path: NamespacePath) -> Response:
    names, token = read_page(call, partial(call.operations.namespaces.list_children, call.caller, path))
    return json_response(without_nulls({"namespaces": names, "page_token": token}))


def describe_namespace(call: Call) -> Response:
    path, _ = namespace_request(call)
    namespace = call.operations.namespaces.describe(call.caller, path)
    return json_response({"properties": dict(namespace.properties)})


def drop_namespace(call: Call) -> Response:
    path, body = namespace_request(call)
    mode, behavior = body.choice("mode", DropMode.FAIL), body.choice("behavior", DropBehavior.RESTRICT)
    policy = dependant_policy(call, body)
    call.operations.namespaces.drop(Mutation(call.caller), path, mode, behavior, policy)
    return json_response({})


def namespace_exists(call: Call) -> Response:
    path, _ = namespace_request(call)
    call.operations.namespaces.describe(call.caller, path)
    return empty_response()


ROUTES: Final = (
    Route("POST", "/v1/namespace/{id}/create", create_namespace),
    Route("GET", "/v1/namespace/{id}/list", list_namespaces),
    Route("POST", "/v1/namespace/{id}/describe", describe_namespace, is_reading=True),
    Route("POST", "/v1/namespace/{id}/drop", drop_namespace),
    Route("POST", "/v1/namespace/{id}/exists", namespace_exists, is_reading=True),
    # URL libraries remove `/./`, the root with the delimiter `.`.
    Route("POST", "/v1/namespace/create", create_namespace),
    Route("GET", "/v1/namespace/list", list_namespaces),
    Route("POST", "/v1/namespace/describe", describe_namespace, is_reading=True),
    Route("POST", "/v1/namespace/drop", drop_namespace),
    Route("POST", "/v1/namespace/exists", namespace_exists, is_reading=True),
)
