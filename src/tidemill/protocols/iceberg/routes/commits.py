"""Routes of commits: to one table, or to several atomically."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.operations.receipts import Need
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.idempotency import Recorder, recording, run_mutation
from tidemill.protocols.iceberg.identifiers import table_of
from tidemill.protocols.iceberg.mapping import change_of, changes_of
from tidemill.protocols.iceberg.responses import NO_CONTENT, ReplayableResponse, committed_table
from tidemill.protocols.iceberg.routing import route_pair


def update_table(call: Call) -> Response:
    ident = table_of(call)

    def run(record: Recorder) -> ReplayableResponse:
        change = change_of(ident, read_object(call.body))
        entry = call.operations.iceberg_tables.commit(call.caller, change, recording(record, committed_table))
        return committed_table(entry)

    return run_mutation(call, "updateTable", (Need(Permission.WRITE, ident),), run)


def commit_transaction(call: Call) -> Response:
    changes = changes_of(read_object(call.body))

    def run(record: Recorder) -> ReplayableResponse:
        call.operations.iceberg_tables.commit_all(call.caller, changes, lambda tx, _: record(tx, NO_CONTENT))
        return NO_CONTENT

    needs = [Need(Permission.WRITE, change.ident) for change in changes]
    return run_mutation(call, "commitTransaction", needs, run)


ROUTES: Final = (
    *route_pair("POST", "/namespaces/{namespace}/tables/{table}", update_table, body=BodyKind.ENVELOPE),
    *route_pair("POST", "/transactions/commit", commit_transaction, body=BodyKind.ENVELOPE),
)
