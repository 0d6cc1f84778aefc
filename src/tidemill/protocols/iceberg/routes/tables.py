"""Routes of tables, except commits."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.operations.receipts import Need
from tidemill.iceberg.model.entries import Purge
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import query_flag, read_object
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.etags import requested_snapshots
from tidemill.protocols.iceberg.idempotency import Recorder, recording, run_mutation
from tidemill.protocols.iceberg.identifiers import ident_in, namespace_of, table_of
from tidemill.protocols.iceberg.mapping import new_table, source_and_target
from tidemill.protocols.iceberg.paging import page_body, page_of
from tidemill.protocols.iceberg.responses import (
    NO_CONTENT,
    ReplayableResponse,
    loaded_table,
    respond_loaded,
    staged_table,
)
from tidemill.protocols.iceberg.routing import route_pair


def list_tables(call: Call) -> Response:
    namespace = namespace_of(call)
    body = page_body(
        page_of(call),
        "identifiers",
        lambda page: call.operations.iceberg_tables.list_in(call.caller, namespace, page),
        lambda name: {"namespace": namespace.levels, "name": name},
    )
    return json_response(body)


def create_table(call: Call) -> Response:
    body = read_object(call.body)
    ident = ident_in(namespace_of(call), body.required_text("name"))
    tables = call.operations.iceberg_tables

    def run(record: Recorder) -> ReplayableResponse:
        new = new_table(body)
        if body.flag("stage-create"):
            return staged_table(tables.stage(call.caller, ident, new, recording(record, staged_table)))
        return loaded_table(tables.create(call.caller, ident, new, recording(record, loaded_table)))

    return run_mutation(call, "createTable", (Need(Permission.WRITE, ident),), run)


def load_table(call: Call) -> Response:
    snapshots = requested_snapshots(call)
    return respond_loaded(call, call.operations.iceberg_tables.load(call.caller, table_of(call)), snapshots)


def table_exists(call: Call) -> Response:
    call.operations.iceberg_tables.check_exists(call.caller, table_of(call))
    return Response(status_code=204)


def drop_table(call: Call) -> Response:
    ident = table_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        purge = Purge.REMOVE_FILES if query_flag(call.query, "purgeRequested") else Purge.KEEP_FILES
        call.operations.iceberg_tables.drop(call.caller, ident, purge, lambda tx, _: record(tx, NO_CONTENT))
        return NO_CONTENT

    return run_mutation(call, "dropTable", (Need(Permission.MANAGE, ident),), run)


def rename_table(call: Call) -> Response:
    source, target = source_and_target(read_object(call.body))

    def run(record: Recorder) -> ReplayableResponse:
        call.operations.iceberg_tables.rename(
            call.caller, source, target, lambda tx, _: record(tx, NO_CONTENT)
        )
        return NO_CONTENT

    needs = (Need(Permission.MANAGE, source), Need(Permission.WRITE, target))
    return run_mutation(call, "renameTable", needs, run)


TABLES: Final = "/namespaces/{namespace}/tables"
TABLE: Final = f"{TABLES}/{{table}}"

ROUTES: Final = (
    *route_pair("GET", TABLES, list_tables, is_quick=True),
    *route_pair("POST", TABLES, create_table, body=BodyKind.ENVELOPE),
    *route_pair("GET", TABLE, load_table, is_quick=True),
    *route_pair("HEAD", TABLE, table_exists, is_quick=True),
    *route_pair("DELETE", TABLE, drop_table),
    *route_pair("POST", "/tables/rename", rename_table),
)
