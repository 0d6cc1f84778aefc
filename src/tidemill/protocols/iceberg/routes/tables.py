"""Routes of tables: create, load, commit, register, rename, drop, credentials and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
import structlog
from starlette.responses import Response

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.operations.receipts import Mutation
from tidemill.iceberg.model.entries import Change, Entry, Purge, Registration, StagedTable
from tidemill.iceberg.operations import needs
from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.fields import query_flag, read_object
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.idempotency import mutation_route
from tidemill.protocols.iceberg.mapping import (
    change_of,
    changes_of,
    namespace_of,
    new_ident_of,
    new_table,
    registration_of,
    source_and_target,
    table_of,
)
from tidemill.protocols.iceberg.parameters import page_body, page_of, requested_snapshots, route_pair
from tidemill.protocols.iceberg.responses import (
    committed_table,
    created_table,
    loaded_table,
    no_content,
    read_sign_request,
    respond_loaded,
    signed_json,
    storage_credentials,
    unregistered_table,
)

CACHEABLE: Final = frozenset({"GET", "HEAD"})

log = structlog.get_logger("tidemill.iceberg")


def list_tables(call: Call) -> Response:
    namespace = namespace_of(call)
    body = page_body(
        page_of(call),
        "identifiers",
        lambda page: call.operations.iceberg_tables.list_in(call.caller, namespace, page),
        lambda name: {"namespace": namespace.levels, "name": name},
    )
    return json_response(body)


@mutation_route("createTable", new_ident_of, needs.to_write, created_table)
def create_table(
    call: Call, ident: TableIdent, creation: Mutation[Entry | StagedTable]
) -> Entry | StagedTable:
    body = read_object(call.body)
    new = new_table(body)
    if body.flag("stage-create"):
        return call.operations.iceberg_tables.stage(creation, ident, new)
    return call.operations.iceberg_tables.create(creation, ident, new)


def load_table(call: Call) -> Response:
    snapshots = requested_snapshots(call)
    return respond_loaded(call, call.operations.iceberg_tables.load(call.caller, table_of(call)), snapshots)


def table_exists(call: Call) -> Response:
    call.operations.iceberg_tables.check_exists(call.caller, table_of(call))
    return Response(status_code=204)


@mutation_route("updateTable", table_of, needs.to_write, committed_table)
def update_table(call: Call, ident: TableIdent, commit: Mutation[Entry]) -> Entry:
    change = change_of(ident, read_object(call.body))
    return call.operations.iceberg_tables.commit(commit, change)


@mutation_route("commitTransaction", changes_of, needs.to_commit, no_content)
def commit_transaction(
    call: Call, changes: Sequence[Change], commit: Mutation[Sequence[Entry]]
) -> Sequence[Entry]:
    return call.operations.iceberg_tables.commit_all(commit, changes)


@mutation_route("registerTable", registration_of, lambda target: needs.to_register(*target), loaded_table)
def register_table(
    call: Call, target: tuple[TableIdent, Registration], registration: Mutation[Entry]
) -> Entry:
    location = read_object(call.body).required_text("metadata-location")
    ident, mode = target
    return call.operations.iceberg_tables.register(registration, ident, location, mode)


@mutation_route("unregisterTable", table_of, needs.to_remove, unregistered_table)
def unregister_table(call: Call, ident: TableIdent, removal: Mutation[Entry]) -> Entry:
    return call.operations.iceberg_tables.unregister(removal, ident)


@mutation_route("dropTable", table_of, needs.to_remove, no_content)
def drop_table(call: Call, ident: TableIdent, removal: Mutation[Entry]) -> Entry:
    purge = Purge.REMOVE_FILES if query_flag(call.query, "purgeRequested") else Purge.KEEP_FILES
    return call.operations.iceberg_tables.drop(removal, ident, purge)


@mutation_route("renameTable", source_and_target, lambda names: needs.to_rename(*names), no_content)
def rename_table(call: Call, names: tuple[TableIdent, TableIdent], renaming: Mutation[None]) -> None:
    call.operations.iceberg_tables.rename(renaming, *names)


def load_credentials(call: Call) -> Response:
    entry = call.operations.iceberg_tables.load(call.caller, table_of(call))
    location = orjson.loads(entry.metadata)["location"]
    options = call.operations.iceberg_access.storage_options(call.caller, entry.ident, entry.location)
    return json_response({"storage-credentials": storage_credentials(location, options)})


def sign_request(call: Call) -> Response:
    request = read_sign_request(read_object(call.body))
    signed = call.operations.iceberg_signing.sign(call.caller, table_of(call), request)
    response = json_response(signed_json(signed))
    response.headers["Cache-Control"] = "private" if request.method in CACHEABLE else "no-cache"
    return response


def report_metrics(call: Call) -> Response:
    """Writes what clients report about their scans and commits to the log."""
    ident = table_of(call)
    report = read_object(call.body)
    kind = report.required_text("report-type")
    metrics = report.nested("metrics")
    call.operations.iceberg_tables.check_exists(call.caller, ident)
    log.info(
        "metrics",
        table=str(ident),
        caller=call.caller.principal,
        report=kind[:100],
        snapshot_id=report.integer("snapshot-id", -1),
        metrics=None if metrics is None else dict(metrics.values),
    )
    return Response(status_code=204)


TABLES: Final = "/namespaces/{namespace}/tables"
TABLE: Final = f"{TABLES}/{{table}}"

ROUTES: Final = (
    *route_pair("GET", TABLES, list_tables, is_quick=True),
    *route_pair("POST", TABLES, create_table, body=BodyKind.ENVELOPE),
    *route_pair("GET", TABLE, load_table, is_quick=True),
    *route_pair("HEAD", TABLE, table_exists, is_quick=True),
    *route_pair("POST", TABLE, update_table, body=BodyKind.ENVELOPE),
    *route_pair("DELETE", TABLE, drop_table),
    *route_pair("POST", "/tables/rename", rename_table),
    *route_pair("POST", "/transactions/commit", commit_transaction, body=BodyKind.ENVELOPE),
    *route_pair("POST", "/namespaces/{namespace}/register", register_table),
    *route_pair("POST", f"{TABLE}/unregister", unregister_table),
    *route_pair("GET", f"{TABLE}/credentials", load_credentials),
    *route_pair("POST", f"{TABLE}/sign", sign_request, is_reading=True),
    *route_pair("POST", f"{TABLE}/metrics", report_metrics, body=BodyKind.ENVELOPE, is_reading=True),
)
