"""Routes that alter and drop columns and update field metadata."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import quoted
from tidemill.lance.model.edits import FieldMetadataUpdate
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import Fields
from tidemill.protocols.http.job_requests import require_main_branch
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind, Route
from tidemill.protocols.lance.derived_mapping import column_declarations
from tidemill.protocols.lance.geneva_mapping import find_geneva_replacement, geneva_replacement
from tidemill.protocols.lance.mapping import branch_of
from tidemill.protocols.lance.requests import table_request
from tidemill.protocols.lance.schema_mapping import (
    column_alteration,
    column_paths,
    field_metadata_update,
    replacement_declaration,
    replaces_function,
    updated_fields_json,
)


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
    declared = replacement_declaration(body)
    geneva = find_geneva_replacement(declared)
    if geneva is not None:
        return _replace_geneva_function(call, ident, *geneva)
    (declaration,) = column_declarations(declared)
    call.operations.columns.alter(call.caller, ident, declaration)
    current = call.operations.versions.describe(call.caller, ident, MAIN_BRANCH, None)
    return json_response({"version": current.version})


def _replace_geneva_function(call: Call, ident: TableIdent, name: str, column: Fields) -> Response:
    schema = call.operations.tables.describe(call.caller, ident).schema
    if schema is None or name not in schema.names:
        raise TableColumnNotFound(ident, name, () if schema is None else tuple(schema.names))
    declaration = geneva_replacement(name, column, schema.field(name).type)
    call.operations.columns.alter(call.caller, ident, declaration)
    update = FieldMetadataUpdate(quoted(name), declaration.metadata[name])
    updated = call.operations.schemas.update_field_metadata(call.caller, ident, MAIN_BRANCH, [update])
    return json_response({"version": updated.version})


def alter_table_drop_columns(call: Call) -> Response:
    ident, body = table_request(call)
    paths = column_paths(body)
    version = call.operations.schemas.drop_columns(call.caller, ident, branch_of(call, body), paths)
    return json_response({"version": version})


def update_field_metadata(call: Call) -> Response:
    ident, body = table_request(call)
    updates = [field_metadata_update(entry) for entry in body.objects("updates")]
    updated = call.operations.schemas.update_field_metadata(
        call.caller, ident, branch_of(call, body), updates
    )
    return json_response(updated_fields_json(updated))


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/alter_columns", alter_table_alter_columns, BodyKind.ENVELOPE),
    Route("POST", "/v1/table/{id}/drop_columns", alter_table_drop_columns),
    Route("POST", "/v1/table/{id}/update_field_metadata", update_field_metadata),
)
