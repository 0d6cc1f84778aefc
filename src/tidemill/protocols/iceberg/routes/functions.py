"""Routes of functions; functions belong to no namespace and are listed in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound
from tidemill.catalog.model.identifiers import NamespacePath
from tidemill.catalog.model.tables import Page
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.iceberg.function_mapping import function_metadata
from tidemill.protocols.iceberg.mapping import namespace_of
from tidemill.protocols.iceberg.parameters import page_body, page_of
from tidemill.protocols.iceberg.routing import route_pair

FUNCTIONS: Final = "/namespaces/{namespace}/functions"


def list_functions(call: Call) -> Response:
    namespace = _existing_namespace(call)

    def names(page: Page) -> Sequence[str]:
        found = {item.function.name for item in call.operations.functions.list_registered(call.caller)}
        following = sorted(name for name in found if page.after is None or name > page.after)
        return following[: page.limit]

    return json_response(
        page_body(page_of(call), "identifiers", names, lambda name: [*namespace.levels, name])
    )


def load_function(call: Call) -> Response:
    _existing_namespace(call)
    name = call.parameters["function"]
    functions = call.operations.functions.list_registered(call.caller)
    versions = [item for item in functions if item.function.name == name]
    if not versions:
        raise FunctionNotFound(name)
    return json_response({"metadata": function_metadata(versions)})


def _existing_namespace(call: Call) -> NamespacePath:
    namespace = namespace_of(call)
    call.operations.namespaces.describe(call.caller, namespace)
    return namespace


ROUTES: Final = (
    *route_pair("GET", FUNCTIONS, list_functions),
    *route_pair("GET", f"{FUNCTIONS}/{{function}}", load_function),
)
