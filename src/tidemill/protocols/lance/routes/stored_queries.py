"""Routes of stored queries, which lancedb's remote client calls views."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from starlette.responses import Response

from tidemill.catalog.model.identifiers import table_ident
from tidemill.catalog.model.sql import quoted_name
from tidemill.catalog.model.tables import StoredQuery, Table, TableKind
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.identifiers import namespace_of
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.arrow_json import Vocabulary, schema_json
from tidemill.protocols.lance.lancedb_sql import read_query
from tidemill.protocols.lance.requests import LANCEDB_HEADER, table_request

KNOWN_KEYS: Final = frozenset({"id", "query", "identity", "context"})


def create_view(call: Call) -> Response:
    ident, body = table_request(call)
    body.refuse_unknown(KNOWN_KEYS)
    statement = body.required_text("query")
    query = read_query(statement, "query")
    projected = call.operations.views.project(call.caller, query, "query")
    stored = StoredQuery(
        table=Table(uuid4(), ident, "", TableKind.QUERY),
        statement=statement,
        source=table_ident(query.source),
        columns=query.columns or {name: quoted_name(name) for name in projected.names},
        filter=query.filter,
        limit=query.limit,
        output=projected,
    )
    return json_response(_view_json(call, call.operations.stored_queries.create(call.caller, stored)))


def describe_view(call: Call) -> Response:
    ident, _ = table_request(call)
    return json_response(_view_json(call, call.operations.stored_queries.describe(call.caller, ident)))


def drop_view(call: Call) -> Response:
    ident, _ = table_request(call)
    call.operations.stored_queries.drop(call.caller, ident)
    return json_response({})


def list_views(call: Call) -> Response:
    return json_response(
        {"views": list(call.operations.stored_queries.list_in(call.caller, namespace_of(call)))}
    )


def _view_json(call: Call, stored: StoredQuery) -> dict[str, Any]:
    """There is only one database, so its name in a statement is whatever the client calls it."""
    ident = stored.table.ident
    return {
        "name": ident.name,
        "namespace": list(ident.namespace.levels),
        "namespace_path": list(ident.namespace.levels),
        "query": stored.statement,
        "default_database": call.headers.get(LANCEDB_HEADER, ""),
        "default_namespace": [],
        "schema": schema_json(stored.output, Vocabulary.NAMESPACE),
    }


ROUTES: Final = (
    Route("POST", "/v1/view/{id}/create", create_view),
    Route("POST", "/v1/view/{id}/describe", describe_view),
    Route("POST", "/v1/view/{id}/drop", drop_view),
    Route("GET", "/v1/namespace/{id}/view/list", list_views),
)
