"""Routes of batch requests and of transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent, table_ident
from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableVersion
from tidemill.errors import InvalidInput
from tidemill.lance.batches import (
    BatchOperation,
    BatchResult,
    CreateVersion,
    DeclareTable,
    DeleteVersions,
    DeregisterTable,
    VersionRange,
    version_range,
)
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import Fields, levels_of, read_object
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.mapping import (
    branch_of,
    table_json,
    transaction_actions,
    transaction_json,
    version_entry,
    version_json,
)
from tidemill.protocols.lance.requests import namespace_request, table_request

MAX_OPERATIONS: Final = 1000


def batch_delete_table_versions(call: Call) -> Response:
    ident, body = table_request(call)
    count = call.operations.batches.delete_versions(call.caller, ident, branch_of(call, body), _ranges(body))
    return json_response({"deleted_count": count})


def batch_create_table_versions(call: Call) -> Response:
    entries = _entries(read_object(call.body), "entries")
    results = call.operations.batches.commit(call.caller, [_create_version(entry) for entry in entries])
    versions = [version_json(result) for result in results if isinstance(result, TableVersion)]
    return json_response({"versions": versions})


def batch_commit_tables(call: Call) -> Response:
    entries = _entries(read_object(call.body), "operations")
    kinds, operations = zip(*map(_operation, entries), strict=True)
    results = call.operations.batches.commit(call.caller, operations)
    result_objects = [{kind: _result(kind, result)} for kind, result in zip(kinds, results, strict=True)]
    return json_response({"results": result_objects})


def _entries(body: Fields, key: str) -> tuple[Fields, ...]:
    entries = body.objects(key)
    if not entries:
        raise InvalidInput(key, "is missing; it must list at least one entry")
    if len(entries) > MAX_OPERATIONS:
        raise InvalidInput(key, f"has {len(entries)} entries; at most {MAX_OPERATIONS} are allowed")
    return entries


def _operation(entry: Fields) -> tuple[str, BatchOperation]:
    present_kinds = [kind for kind in OPERATIONS if entry.has(kind)]
    if len(present_kinds) != 1:
        problem = f"must have exactly one of {', '.join(OPERATIONS)}"
        raise InvalidInput(entry.name_of("")[:-1], problem)
    inner = entry.nested(present_kinds[0])
    assert inner is not None
    return present_kinds[0], OPERATIONS[present_kinds[0]](inner)


def _declare(fields: Fields) -> BatchOperation:
    return DeclareTable(_ident(fields), fields.texts_by_name("properties") or {}, fields.text("location"))


def _create_version(fields: Fields) -> BatchOperation:
    return CreateVersion(_ident(fields), fields.text("branch") or MAIN_BRANCH, version_entry(fields))


def _delete(fields: Fields) -> BatchOperation:
    return DeleteVersions(_ident(fields), fields.text("branch") or MAIN_BRANCH, _ranges(fields))


def _deregister(fields: Fields) -> BatchOperation:
    return DeregisterTable(_ident(fields))


OPERATIONS: Final[Mapping[str, Callable[[Fields], BatchOperation]]] = {
    "declare_table": _declare,
    "create_table_version": _create_version,
    "delete_table_versions": _delete,
    "deregister_table": _deregister,
}


def _ident(fields: Fields) -> TableIdent:
    levels = fields.texts("id")
    if levels is None:
        raise InvalidInput(fields.name_of("id"), "is missing; it must list the levels of the table's name")
    return table_ident(levels, fields.name_of("id"))


def _ranges(fields: Fields) -> tuple[VersionRange, ...]:
    ranges = fields.objects("ranges")
    if not ranges:
        raise InvalidInput(fields.name_of("ranges"), "is missing; it must list at least one range")
    return tuple(
        version_range(entry.required_integer("start_version", 0), entry.required_integer("end_version", -1))
        for entry in ranges
    )


def _result(kind: str, result: BatchResult) -> dict[str, Any]:
    match result:
        case TableVersion():
            return {"version": version_json(result)}
        case Table() if kind == "declare_table":
            return table_json(result)
        case Table():
            return {
                "id": list(result.ident.levels),
                "location": result.location,
                "properties": dict(result.properties),
            }
        case count:
            return {"deleted_count": count}


def describe_transaction(call: Call) -> Response:
    namespace_request(call)
    transaction = call.operations.transactions.describe(call.caller, levels_of(call))
    return json_response(transaction_json(transaction))


def alter_transaction(call: Call) -> Response:
    _, body = namespace_request(call)
    altered = call.operations.transactions.alter(call.caller, levels_of(call), transaction_actions(body))
    return json_response(transaction_json(altered))


ROUTES: Final = (
    Route("POST", "/v1/table/{id}/version/delete", batch_delete_table_versions),
    Route("POST", "/v1/table/version/batch-create", batch_create_table_versions),
    Route("POST", "/v1/table/batch-commit", batch_commit_tables),
    Route("POST", "/v1/transaction/{id}/describe", describe_transaction, is_reading=True),
    Route("POST", "/v1/transaction/{id}/alter", alter_transaction),
)
