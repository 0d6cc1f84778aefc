"""Routes that add, alter, compute and drop columns, and update field metadata."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.errors import FunctionNotFound, TableColumnNotFound
from tidemill.catalog.model.functions import RegisteredFunction
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import Keep, quoted
from tidemill.lance.model.edits import FieldMetadataUpdate
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import Fields, table_of
from tidemill.protocols.http.job_requests import backfill_request, idempotency_key, require_main_branch
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.column_mapping import (
    ARROW_START,
    arrow_schema,
    column_alteration,
    column_declarations,
    column_paths,
    field_metadata_update,
    is_expression_request,
    kept_values,
    new_columns,
    replacement_declaration,
    replaces_function,
    updated_fields_json,
)
from tidemill.protocols.lance.geneva_mapping import find_geneva_replacement, geneva_replacement
from tidemill.protocols.lance.lancedb_functions import (
    bound_columns,
    function_reference,
    is_registration,
    stored_name,
)
from tidemill.protocols.lance.mapping import branch_of
from tidemill.protocols.lance.requests import dependant_policy, table_request


def alter_table_add_columns(call: Call) -> Response:
    """Adds columns filled by an expression, empty columns, or computed columns."""
    if call.body.startswith(ARROW_START):
        ident, branch = table_of(call), call.query.get("branch") or MAIN_BRANCH
        fields = arrow_schema(call.body)
        version = call.operations.schemas.add_empty_columns(call.caller, ident, branch, fields)
        return json_response({"version": version})
    ident, body = table_request(call)
    if is_expression_request(body):
        branch = branch_of(call, body)
        version = call.operations.schemas.add_columns(call.caller, ident, branch, new_columns(body))
        return json_response({"version": version})
    require_main_branch(call, ident, body.text("branch"))
    if body.has("function"):
        declaration = bound_columns(body, _function(call, body))
        version = call.operations.columns.declare(call.caller, ident, [declaration])
        return json_response({"version": version})
    version = call.operations.columns.declare(call.caller, ident, column_declarations(body))
    return json_response({"version": version})


def _function(call: Call, body: Fields) -> RegisteredFunction:
    """The function version in the request. Its digest must be the one that the client was given."""
    ident, version, digest = function_reference(body)
    registered = call.operations.functions.get(call.caller, ident.namespace, stored_name(ident), version)
    if registered.function.digest != digest or not is_registration(registered.function):
        raise FunctionNotFound(stored_name(ident), f" version {version} with object id {digest:.100}")
    return registered


def alter_table_backfill_columns(call: Call) -> Response:
    ident, body = table_request(call)
    request = backfill_request(body)
    job = call.operations.jobs.submit_backfill(call.caller, ident, request, idempotency_key(call))
    return json_response({"job_id": job.job_id}, 202)


def alter_table_alter_columns(call: Call) -> Response:
    ident, body = table_request(call)
    entries = body.objects("alterations")
    if not entries:
        raise InvalidInput("alterations", "is empty; it must list at least one column")
    if any(replaces_function(entry) for entry in entries):
        return _replace_function(call, ident, body)
    alterations = [column_alteration(entry) for entry in entries]
    version = call.operations.schemas.alter_columns(call.caller, ident, branch_of(call, body), alterations)
    return json_response({"version": version})


def _replace_function(call: Call, ident: TableIdent, body: Fields) -> Response:
    """Replaces the function of a column. This commits a version only if field metadata names the function."""
    require_main_branch(call, ident, branch_of(call, body))
    declared, keep = replacement_declaration(body), kept_values(body)
    geneva = find_geneva_replacement(declared)
    if geneva is not None:
        return _replace_geneva_function(call, ident, *geneva, keep)
    (declaration,) = column_declarations(declared)
    call.operations.columns.alter(call.caller, ident, declaration, keep)
    current = call.operations.versions.describe(call.caller, ident, MAIN_BRANCH, None)
    return json_response({"version": current.version})


def _replace_geneva_function(
    call: Call, ident: TableIdent, name: str, column: Fields, keep: Keep | None
) -> Response:
    schema = call.operations.tables.describe(call.caller, ident).schema
    if schema is None or name not in schema.names:
        raise TableColumnNotFound(ident, name, () if schema is None else tuple(schema.names))
    declaration = geneva_replacement(name, column, schema.field(name).type)
    call.operations.columns.alter(call.caller, ident, declaration, keep)
    update = FieldMetadataUpdate(quoted(name), declaration.metadata[name])
    updated = call.operations.schemas.update_field_metadata(call.caller, ident, MAIN_BRANCH, [update])
    return json_response({"version": updated.version})


def alter_table_drop_columns(call: Call) -> Response:
    ident, body = table_request(call)
    paths = column_paths(body)
    policy = dependant_policy(call, body)
    version = call.operations.schemas.drop_columns(call.caller, ident, branch_of(call, body), paths, policy)
    return json_response({"version": version})


def update_field_metadata(call: Call) -> Response:
    ident, body = table_request(call)
    updates = [field_metadata_update(entry) for entry in body.objects("updates")]
    updated = call.operations.schemas.update_field_metadata(
        call.caller, ident, branch_of(call, body), updates
    )
    return json_response(updated_fields_json(updated))


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/add_columns", alter_table_add_columns, BodyKind.ENVELOPE),
    Route("POST", "/v1/table/{id}/backfill_column", alter_table_backfill_columns),
    Route("POST", "/v1/table/{id}/alter_columns", alter_table_alter_columns, BodyKind.ENVELOPE),
    Route("POST", "/v1/table/{id}/drop_columns", alter_table_drop_columns),
    Route("POST", "/v1/table/{id}/update_field_metadata", update_field_metadata),
)
