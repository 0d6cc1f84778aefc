"""Routes of commits to tables: to one, or to several at once."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.catalog.model.callers import Permission
from tidemill.catalog.operations.receipts import Need
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.idempotency import Keep, kept, mutation
from tidemill.protocols.iceberg.identifiers import table_of
from tidemill.protocols.iceberg.mapping import change_of, named_changes
from tidemill.protocols.iceberg.responses import NO_CONTENT, Answer, committed_table
from tidemill.protocols.iceberg.routing import both


def update_table(call: Call) -> Response:
    ident = table_of(call)

    def run(keep: Keep) -> Answer:
        change = change_of(ident, read_object(call.body))
        entry = call.operations.iceberg_commits.commit(call.caller, change, kept(keep, committed_table))
        return committed_table(entry)

    return mutation(call, "updateTable", (Need(Permission.WRITE, ident),), run)


def commit_transaction(call: Call) -> Response:
    changes = named_changes(read_object(call.body))

    def run(keep: Keep) -> Answer:
        call.operations.iceberg_commits.commit_all(call.caller, changes, lambda tx, _: keep(tx, NO_CONTENT))
        return NO_CONTENT

    needs = [Need(Permission.WRITE, change.ident) for change in changes]
    return mutation(call, "commitTransaction", needs, run)


ROUTES: Final = (
    *both("POST", "/namespaces/{namespace}/tables/{table}", update_table, body=BodyKind.ENVELOPE),
    *both("POST", "/transactions/commit", commit_transaction, body=BodyKind.ENVELOPE),
)
