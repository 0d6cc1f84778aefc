"""Routes of materialized views, and of stored queries, which lancedb's remote client calls views."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.sql import quoted_name
from tidemill.catalog.model.tables import StoredQuery, Table, TableKind
from tidemill.jobs.service.unchanged_columns import retry_changed
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import namespace_of
from tidemill.protocols.http.job_requests import idempotency_key, refresh_request
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.arrow_json import Vocabulary, schema_json
from tidemill.protocols.lance.lancedb_sql import read_query
from tidemill.protocols.lance.requests import LANCEDB_HEADER, dependant_policy, table_request
from tidemill.protocols.lance.view_mapping import (
    described_view_json,
    is_sql_view,
    sql_view_definition,
    view_definition,
)

KNOWN_KEYS: Final = frozenset({"id", "query", "identity", "context"})


def create_materialized_view(call: Call) -> Response:
    """lancedb's client expects status 202 and a job id if the view is being filled."""
    ident, body = table_request(call)
    is_sql = is_sql_view(body)
    definition = sql_view_definition(body) if is_sql else view_definition(call, body, ident)
    created = call.operations.views.create(call.caller, ident, definition)
    body_json = without_nulls({"version": created.version, "job_id": created.job_id})
    return json_response(body_json, 202 if is_sql and created.job_id is not None else 201)


def refresh_materialized_view(call: Call) -> Response:
    ident, body = table_request(call)
    request = refresh_request(body)
    job = call.operations.jobs.submit_refresh(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


def describe_materialized_view(call: Call) -> Response:
    """For lancedb's client. The specification has no such operation."""
    ident, _ = table_request(call)
    described = call.operations.views.describe(call.caller, ident)
    version = call.operations.versions.find_latest(described.table)
    return json_response(described_view_json(described, None if version is None else version.version))


def drop_materialized_view(call: Call) -> Response:
    """Removes the files before it responds, so there is no job to wait for."""
    ident, body = table_request(call)
    call.operations.views.describe(call.caller, ident)
    call.operations.tables.drop(call.caller, ident, dependant_policy(call, body))
    return json_response({})


def list_materialized_views(call: Call) -> Response:
    listed = call.operations.views.list_in(call.caller, namespace_of(call))
    return json_response({"views": [described.table.ident.name for described in listed]})


def create_view(call: Call) -> Response:
    ident, body = table_request(call)
    body.refuse_unknown(KNOWN_KEYS)
    statement = body.required_text("query")
    stored = retry_changed(lambda: _store_query(call, ident, statement))
    return json_response(_view_json(call, stored))


def _store_query(call: Call, ident: TableIdent, statement: str) -> StoredQuery:
    query = read_query(statement, "query")
    projected, version = call.operations.views.project(call.caller, query, "query")
    stored = StoredQuery(
        table=Table(uuid4(), ident, "", TableKind.QUERY),
        statement=statement,
        source=table_ident(query.source),
        columns=query.columns or {name: quoted_name(name) for name in projected.names},
        filter=query.filter,
        limit=query.limit,
        output=projected,
    )
    return call.operations.stored_queries.create(call.caller, stored, version)


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
    Route("POST", "/v1/materialized_view/{id}/create", create_materialized_view, BodyKind.ENVELOPE),
    Route("POST", "/v1/materialized_view/{id}/refresh", refresh_materialized_view),
    Route("POST", "/v1/materialized_view/{id}/describe", describe_materialized_view, is_reading=True),
    Route("POST", "/v1/materialized_view/{id}/drop", drop_materialized_view),
    Route("GET", "/v1/namespace/{id}/materialized_view/list", list_materialized_views),
    Route("POST", "/v1/view/{id}/create", create_view),
    Route("POST", "/v1/view/{id}/describe", describe_view, is_reading=True),
    Route("POST", "/v1/view/{id}/drop", drop_view),
    Route("GET", "/v1/namespace/{id}/view/list", list_views),
)
