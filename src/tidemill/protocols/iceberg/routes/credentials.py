"""Routes for table credentials and for remote signing."""

from __future__ import annotations

from typing import Final

import orjson
from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import read_object
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.iceberg.credentials import read_sign_request, signed_json, storage_credentials
from tidemill.protocols.iceberg.identifiers import table_of
from tidemill.protocols.iceberg.routing import route_pair

TABLE: Final = "/namespaces/{namespace}/tables/{table}"
CACHEABLE: Final = frozenset({"GET", "HEAD"})


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


ROUTES: Final = (
    *route_pair("GET", f"{TABLE}/credentials", load_credentials),
    *route_pair("POST", f"{TABLE}/sign", sign_request),
)
