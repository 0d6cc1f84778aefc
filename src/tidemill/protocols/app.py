"""The protocols of the server, put together into one application."""

from __future__ import annotations

from starlette.types import ASGIApp

from tidemill.protocols.http.app import HttpApp
from tidemill.protocols.http.auditing import NO_AUDIT, AuditTrail
from tidemill.protocols.http.call import CallerResolver, Limits, local_caller
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.service import ICEBERG_SERVICE
from tidemill.protocols.lance.service import LANCE_SERVICE
from tidemill.protocols.management.service import MANAGEMENT_SERVICE


def create_app(
    operations: Operations,
    limits: Limits,
    callers: CallerResolver = local_caller,
    audit: AuditTrail = NO_AUDIT,
) -> ASGIApp:
    """Management under /api, Iceberg under /iceberg; everything else belongs to the Lance protocol."""
    return HttpApp((MANAGEMENT_SERVICE, ICEBERG_SERVICE, LANCE_SERVICE), operations, limits, callers, audit)
