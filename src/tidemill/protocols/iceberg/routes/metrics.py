"""The route for clients' metrics reports about scans and commits; writes them to the log."""

from __future__ import annotations

from typing import Final

import structlog
from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.routing import BodyKind
from tidemill.protocols.iceberg.identifiers import table_of
from tidemill.protocols.iceberg.routing import route_pair

log = structlog.get_logger("tidemill.iceberg")


def report_metrics(call: Call) -> Response:
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


ROUTES: Final = route_pair(
    "POST", "/namespaces/{namespace}/tables/{table}/metrics", report_metrics, body=BodyKind.ENVELOPE
)
