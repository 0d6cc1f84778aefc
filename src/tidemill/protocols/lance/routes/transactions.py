"""Routes of transactions."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tidemill.protocols.http.call import Call
from tidemill.protocols.http.identifiers import levels_of
from tidemill.protocols.http.responses import json_response
from tidemill.protocols.http.routing import Route
from tidemill.protocols.lance.mapping import transaction_actions, transaction_json
from tidemill.protocols.lance.requests import namespace_request


def describe_transaction(call: Call) -> Response:
    namespace_request(call)
    transaction = call.operations.transactions.describe(call.caller, levels_of(call))
    return json_response(transaction_json(transaction))


def alter_transaction(call: Call) -> Response:
    _, body = namespace_request(call)
    altered = call.operations.transactions.alter(call.caller, levels_of(call), transaction_actions(body))
    return json_response(transaction_json(altered))


ROUTES: Final = (
    Route("POST", "/v1/transaction/{id}/describe", describe_transaction),
    Route("POST", "/v1/transaction/{id}/alter", alter_transaction),
)
