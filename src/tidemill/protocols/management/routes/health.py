"""The health check."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call, json_response
from tidemill.protocols.http.routing import Route


def health(call: Call) -> Response:
    report = call.operations.health.health()
    return json_response(asdict(report), 200 if report.is_serving else 503)


ROUTES: Final = (Route("GET", "/api/v1/health", health, is_public=True),)
