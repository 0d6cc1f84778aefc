"""Routes of indexes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.indexes import PENDING, IndexDefinition
from tidemill.protocols.http.call import Call, json_response, without_nulls
from tidemill.protocols.http.fields import query_integer
from tidemill.protocols.http.job_requests import idempotency_key
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.index_mapping import (
    index_definition,
    index_json,
    require_scalar,
    statistics_json,
)
from tidemill.protocols.lance.mapping import branch_of
from tidemill.protocols.lance.requests import is_lancedb, table_request


def create_table_index(call: Call) -> Response:
    return _create(call, lambda _: None)


def create_table_scalar_index(call: Call) -> Response:
    return _create(call, require_scalar)


def list_table_indices(call: Call) -> Response:
    ident, body = table_request(call)
    version = body.integer("version", 0)
    indexes = call.operations.indexes.list_all(call.caller, ident, branch_of(call, body), version)
    if is_lancedb(call.headers):
        # Its users expect a listed index to be ready.
        indexes = [index for index in indexes if index.status != PENDING]
    limit, after = body.integer("limit", 0), body.text("page_token") or call.query.get("page_token")
    if limit is None:
        limit = query_integer(call.query, "limit")
    following = [index for index in indexes if not after or index.name > after]
    page = following if limit is None or limit < 0 else following[:limit]
    token = page[-1].name if page and len(page) < len(following) else None
    return json_response(
        without_nulls({"indexes": [index_json(index) for index in page], "page_token": token})
    )


def describe_table_index_stats(call: Call) -> Response:
    ident, body = table_request(call)
    statistics = call.operations.indexes.statistics(
        call.caller, ident, branch_of(call, body), _index_name(call), body.integer("version", 0)
    )
    return json_response(statistics_json(statistics))


def drop_table_index(call: Call) -> Response:
    ident, body = table_request(call)
    branch = branch_of(call, body)
    version = call.operations.indexes.drop(call.caller, ident, branch, _index_name(call))
    if version is None or branch != MAIN_BRANCH:
        return json_response({})
    commit = call.operations.transactions.describe(call.caller, (*ident.levels, str(version)))
    return json_response({"transaction_id": commit.properties.get("uuid", str(version))})


def prewarm_table_index(call: Call) -> Response:
    ident, body = table_request(call)
    call.operations.indexes.prewarm(call.caller, ident, branch_of(call, body), _index_name(call))
    return json_response({})


def _create(call: Call, check: Callable[[IndexDefinition], None]) -> Response:
    """By default lancedb's clients replace an existing index, while the specification rejects it."""
    ident, body = table_request(call)
    definition = index_definition(body, replaces_by_default=is_lancedb(call.headers))
    check(definition)
    job = call.operations.indexes.create(
        call.caller, ident, branch_of(call, body), definition, idempotency_key(call)
    )
    body_json = {"transaction_id": job.job_id}
    return json_response(body_json | {"job_id": job.job_id} if is_lancedb(call.headers) else body_json)


def _index_name(call: Call) -> str:
    return call.parameters["index_name"]


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/create_index", create_table_index),
    Route("POST", "/v1/table/{id}/create_scalar_index", create_table_scalar_index),
    Route("POST", "/v1/table/{id}/index/list", list_table_indices, is_reading=True),
    Route("POST", "/v1/table/{id}/index/{index_name}/stats", describe_table_index_stats, is_reading=True),
    Route("POST", "/v1/table/{id}/index/{index_name}/drop", drop_table_index),
    # lancedb's remote client.
    Route("POST", "/v1/table/{id}/index/{index_name}/prewarm", prewarm_table_index, is_reading=True),
    # Older clients use GET.
    Route("GET", "/v1/table/{id}/index/{index_name}/stats", describe_table_index_stats),
)
