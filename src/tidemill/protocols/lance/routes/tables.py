"""Routes that declare, register, describe, rename, list and drop tables."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent, check_name, namespace_path
from tidemill.catalog.model.tables import Declared, Page
from tidemill.lance.model.tables import RegisterMode
from tidemill.protocols.http.call import Call, empty_response, json_response, without_nulls
from tidemill.protocols.http.fields import Fields, delimiter_of, namespace_of, query_flag, split_id
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.arrow_json import Vocabulary
from tidemill.protocols.lance.mapping import (
    description_json,
    properties_of,
    removed_table_json,
    schema_metadata,
    storage_options_of,
    summary_json,
    table_json,
    table_point,
    table_uri,
)
from tidemill.protocols.lance.requests import (
    dependant_policy,
    flag_of,
    is_lancedb,
    page_of,
    read_page,
    table_request,
)
from tidemill.protocols.lance.routes.namespaces import namespaces_in

# The name in the specification, and in lancedb's remote client.
NEW_NAMESPACE: Final = ("new_namespace_id", "new_namespace")


def declare_table(call: Call) -> Response:
    ident, body = table_request(call)
    location = body.text("location") or None
    table = call.operations.tables.declare(call.caller, ident, properties_of(body), location)
    options = storage_options_of(call, table, body)
    return json_response(table_json(table) | without_nulls({"storage_options": options}))


def describe_table(call: Call) -> Response:
    ident, body = table_request(call)
    tables = call.operations.tables
    description = tables.describe(call.caller, ident, table_point(body))
    vocabulary = Vocabulary.LANCE if is_lancedb(call.headers) else Vocabulary.NAMESPACE
    body_json = description_json(description, vocabulary)
    options = storage_options_of(call, description.table, body)
    if options is not None:
        body_json["storage_options"] = options
    if flag_of(call, body, "with_table_uri"):
        body_json["table_uri"] = table_uri(description.table)
    if flag_of(call, body, "check_declared"):
        body_json["is_only_declared"] = description.version is None
    if flag_of(call, body, "load_detailed_metadata"):
        body_json["metadata"] = schema_metadata(description)
        summary = tables.summary(description)
        if summary is not None:
            body_json["stats"] = summary_json(summary)
    return json_response(body_json)


def table_exists(call: Call) -> Response:
    ident, body = table_request(call)
    call.operations.tables.check_exists(call.caller, ident, table_point(body))
    return empty_response()


def list_tables(call: Call) -> Response:
    return _tables_in(call, namespace_of(call))


def list_root_tables(call: Call) -> Response:
    """`/v1/namespace/./table/list` arrives without the dot; with other delimiters `table` is a namespace."""
    if delimiter_of(call) == ".":
        return _tables_in(call, NamespacePath())
    return namespaces_in(call, NamespacePath(("table",)))


def list_all_tables(call: Call) -> Response:
    """For lancedb's remote client these are the tables of the root, in the specification all tables."""
    if is_lancedb(call.headers):
        return _tables_in(call, NamespacePath())
    delimiter = delimiter_of(call)

    def fetch(page: Page) -> list[str]:
        idents = call.operations.tables.list_all(call.caller, _declared(call))
        return page_of({delimiter.join(ident.levels) for ident in idents}, page)

    names, token = read_page(call, fetch)
    return json_response(without_nulls({"tables": names, "page_token": token}))


def drop_table(call: Call) -> Response:
    ident, body = table_request(call)
    dropped = call.operations.tables.drop(call.caller, ident, dependant_policy(call, body))
    return json_response(removed_table_json(dropped))


def _tables_in(call: Call, path: NamespacePath) -> Response:
    declared = _declared(call)

    def fetch(page: Page) -> list[str]:
        return list(call.operations.tables.list_in(call.caller, path, page, declared))

    names, token = read_page(call, fetch)
    return json_response(without_nulls({"tables": names, "page_token": token}))


def _declared(call: Call) -> Declared:
    return Declared.EXCLUDE if query_flag(call.query, "include_declared") is False else Declared.INCLUDE


def register_table(call: Call) -> Response:
    ident, body = table_request(call)
    location, mode = body.required_text("location"), body.choice("mode", RegisterMode.CREATE)
    table = call.operations.registrations.register(call.caller, ident, location, mode, properties_of(body))
    return json_response({"location": table.location, "properties": dict(table.properties)})


def deregister_table(call: Call) -> Response:
    ident, body = table_request(call)
    policy = dependant_policy(call, body)
    removed = call.operations.registrations.deregister(call.caller, ident, policy)
    return json_response(removed_table_json(removed))


def rename_table(call: Call) -> Response:
    ident, body = table_request(call)
    name = body.required_text("new_table_name")
    check_name(name, "new_table_name")
    namespace = _new_namespace(call, body)
    target = TableIdent(ident.namespace if namespace is None else namespace, name)
    call.operations.registrations.rename(call.caller, ident, target)
    return json_response({})


def _new_namespace(call: Call, body: Fields) -> NamespacePath | None:
    """Reads a list of levels, or a string like an id in a path. None means the namespace stays the same."""
    for key in NEW_NAMESPACE:
        value = body.raw(key)
        if isinstance(value, str):
            return namespace_path(split_id(value, delimiter_of(call)), key)
        # The generated Java client sends every list; one that is not set is empty, as `id` shows.
        if value is not None and not (value == [] and body.raw("id") == []):
            return namespace_path(body.texts(key) or (), key)
    return None


ROUTES: Final = (
    Route("GET", "/v1/namespace/{id}/table/list", list_tables, is_quick=True),
    Route("GET", "/v1/namespace/table/list", list_root_tables),
    Route("GET", "/v1/table", list_all_tables),
    Route("POST", "/v1/table/{id}/declare", declare_table),
    Route("POST", "/v1/table/{id}/describe", describe_table, is_quick=True, is_reading=True),
    Route("POST", "/v1/table/{id}/exists", table_exists, is_quick=True, is_reading=True),
    Route("POST", "/v1/table/{id}/drop", drop_table),
    Route("POST", "/v1/table/{id}/register", register_table),
    Route("POST", "/v1/table/{id}/deregister", deregister_table),
    Route("POST", "/v1/table/{id}/rename", rename_table),
)
