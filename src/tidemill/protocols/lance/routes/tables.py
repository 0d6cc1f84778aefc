"""Routes of tables as catalog objects."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import NamespacePath, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.catalog.operations.tables import Declared
from tidemill.errors import InvalidInput, Unsupported
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields, query_flag
from tidemill.protocols.http.identifiers import delimiter_of, namespace_of
from tidemill.protocols.http.job_requests import require_main_branch
from tidemill.protocols.http.responses import empty_response, json_response, without_nulls
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.arrow_json import Vocabulary
from tidemill.protocols.lance.dialect import is_lancedb
from tidemill.protocols.lance.mapping import description_json, schema_metadata, table_json, table_uri
from tidemill.protocols.lance.requests import flag_of, read_page, table_request
from tidemill.protocols.lance.routes.namespaces import namespaces_in


def declare_table(call: Call) -> Response:
    ident, body = table_request(call)
    if body.text("location"):
        raise Unsupported("location: choosing the location of a table is not supported; leave it out")
    table = call.operations.tables.declare(call.caller, ident, body.texts_by_name("properties") or {})
    return json_response(table_json(table))


def describe_table(call: Call) -> Response:
    ident, body = table_request(call)
    _require_current_branch(ident, body)
    description = call.operations.tables.describe(call.caller, ident, body.integer("version", 1))
    vocabulary = Vocabulary.LANCE if is_lancedb(call.headers) else Vocabulary.NAMESPACE
    answer = description_json(description, vocabulary)
    if flag_of(call, body, "with_table_uri"):
        answer["table_uri"] = table_uri(description.table)
    if flag_of(call, body, "check_declared"):
        answer["is_only_declared"] = description.version is None
    if flag_of(call, body, "load_detailed_metadata"):
        answer["metadata"] = schema_metadata(description)
    return json_response(answer)


def table_exists(call: Call) -> Response:
    ident, body = table_request(call)
    _require_current_branch(ident, body)
    call.operations.tables.describe(call.caller, ident, body.integer("version", 1))
    return empty_response()


def list_tables(call: Call) -> Response:
    return _tables_in(call, namespace_of(call))


def list_root_tables(call: Call) -> Response:
    """`/v1/namespace/./table/list` arrives without its dot; with another delimiter `table` is a namespace."""
    if delimiter_of(call) == ".":
        return _tables_in(call, NamespacePath())
    return namespaces_in(call, NamespacePath(("table",)))


def list_all_tables(call: Call) -> Response:
    """lancedb's remote client means the tables of the root, the specification those of all namespaces."""
    if not is_lancedb(call.headers):
        raise Unsupported("ListAllTables is not supported yet; list the tables of each namespace")
    return _tables_in(call, NamespacePath())


def drop_table(call: Call) -> Response:
    ident, _ = table_request(call)
    table = call.operations.tables.drop(call.caller, ident)
    return json_response(
        {"id": list(ident.levels), "location": table.location, "properties": dict(table.properties)}
    )


def _tables_in(call: Call, path: NamespacePath) -> Response:
    include = query_flag(call.query, "include_declared")
    declared = Declared.EXCLUDE if include is False else Declared.INCLUDE

    def fetch(page: Page) -> list[str]:
        return list(call.operations.tables.list_in(call.caller, path, page, declared))

    names, token = read_page(call, fetch)
    return json_response(without_nulls({"tables": names, "page_token": token}))


def _require_current_branch(ident: TableIdent, body: Fields) -> None:
    if body.text("tag"):
        if body.has("version") or body.has("branch"):
            raise InvalidInput("tag", "excludes version and branch; give one of them")
        raise Unsupported("tag: tags are not supported yet; give a version")
    require_main_branch(ident, body.text("branch"))


ROUTES: Final = (
    Route("GET", "/v1/namespace/{id}/table/list", list_tables),
    Route("GET", "/v1/namespace/table/list", list_root_tables),
    Route("GET", "/v1/table", list_all_tables),
    Route("POST", "/v1/table/{id}/declare", declare_table),
    Route("POST", "/v1/table/{id}/describe", describe_table),
    Route("POST", "/v1/table/{id}/exists", table_exists),
    Route("POST", "/v1/table/{id}/drop", drop_table),
)
