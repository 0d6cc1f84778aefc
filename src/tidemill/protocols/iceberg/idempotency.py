"""Requests with an Idempotency-Key: executed once, answered the same way every time they are sent.

Clients repeat a commit with the same key when the response got lost. Executing it twice would fail with a
conflict at best, and the client would report a failure for a commit that succeeded. So every mutation goes
through `run_mutation`:

1. Check the caller's permissions, even for a replay.
2. If a receipt for the key exists, replay the response in it.
3. Otherwise run the operation and pass it a recorder. The operation calls the recorder in its own
   transaction, before it changes anything, so the receipt and the change are committed together.
4. If the same request is running elsewhere at the same time, the second insert of the receipt fails with
   ReceiptExists. The second transaction rolls back and the first one's response is replayed.

Refusals that would be the same next time (FINAL_STATUSES) get a receipt as well, in a transaction of their
own. Credentials are never stored: responses are completed with fresh ones when they are sent (`responses`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tidemill.catalog.errors import ReceiptExists
from tidemill.catalog.model.receipts import Receipt
from tidemill.catalog.operations.receipts import Need
from tidemill.catalog.ports import CatalogTransaction
from tidemill.errors import InvalidInput, TidemillError, Unavailable
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.errors import ICEBERG_ERRORS, error_body, message_of
from tidemill.protocols.iceberg.responses import ReplayableResponse, replay, replayable_json, respond

HEADER: Final = "Idempotency-Key"
# `uuid.UUID` would also accept braces, URNs, missing hyphens and other versions.
UUID_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Refusals that the same request would get again; those that depend on permissions or load are not.
FINAL_STATUSES: Final = frozenset({400, 404, 406, 409, 422})

Recorder: TypeAlias = Callable[[CatalogTransaction, ReplayableResponse], None]
"""Stores the response in the mutation's transaction, so a retry replays it. Raises ReceiptExists."""

Result = TypeVar("Result")


def run_mutation(
    call: Call, operation: str, needs: Sequence[Need], run: Callable[[Recorder], ReplayableResponse]
) -> Response:
    """Runs the mutation, or replays the response if the same key was used before."""
    key = idempotency_key(call)
    if key is None:
        return respond(call, run(_record_nothing))
    receipts = call.operations.receipts
    # Before revealing an earlier response: the caller may have lost its permissions since.
    receipts.authorize(call.caller, needs)
    request = Receipt(key, call.caller.principal, operation, resource_of(call), _digest(call.body), b"")
    receipt = receipts.find(request)
    if receipt is not None:
        return replay(call, ReplayableResponse.from_bytes(receipt.outcome))
    return respond(call, _run_once(call, request, run))


def recording(
    record: Recorder, to_response: Callable[[Result], ReplayableResponse]
) -> Callable[[CatalogTransaction, Result], None]:
    """The `on_commit` callback of an operation: turns its result into a response and records it."""
    return lambda tx, result: record(tx, to_response(result))


def idempotency_key(call: Call) -> str | None:
    """The key in lower case; raises InvalidInput unless it is exactly one UUIDv7."""
    keys = call.headers.getlist(HEADER)
    if not keys:
        return None
    if len(keys) > 1:
        raise InvalidInput(HEADER, f"is given {len(keys)} times; a request has only one key")
    key = keys[0].lower()
    if UUID_V7.fullmatch(key) is None:
        raise InvalidInput(HEADER, f"must be a UUID of version 7 (RFC 9562), not {keys[0]!r:.60}")
    return key


def with_checked_key(route: Route) -> Route:
    """For routes that change nothing: a key has no effect, but must be valid."""

    def checked(call: Call) -> Response:
        idempotency_key(call)
        return route.handler(call)

    return replace(route, handler=checked)


def resource_of(call: Call) -> str:
    """The resource that path and query name; the same with and without the prefix."""
    names = [quote(value, safe="") for name, value in call.parameters.items() if name != "prefix"]
    options = urlencode(sorted(call.query.multi_items()))
    return "/".join(names) + (f"?{options}" if options else "")


def _run_once(
    call: Call, request: Receipt, run: Callable[[Recorder], ReplayableResponse]
) -> ReplayableResponse:
    receipts = call.operations.receipts

    def record(tx: CatalogTransaction, response: ReplayableResponse) -> None:
        receipts.record(tx, replace(request, outcome=response.to_bytes()))

    try:
        return run(record)
    except ReceiptExists as error:
        # The same request was running concurrently and has committed.
        receipt = receipts.find(request)
        if receipt is None:
            raise Unavailable(f"{HEADER} {request.key} has just expired; send the request again") from error
        return ReplayableResponse.from_bytes(receipt.outcome)
    except TidemillError as error:
        response = _error_response(error)
        if response.status not in FINAL_STATUSES:
            raise
        return ReplayableResponse.from_bytes(
            receipts.record_in_own_transaction(replace(request, outcome=response.to_bytes())).outcome
        )


def _error_response(error: TidemillError) -> ReplayableResponse:
    iceberg_error = ICEBERG_ERRORS[error.code]
    return replayable_json(error_body(iceberg_error, message_of(error)), iceberg_error.status)


def _record_nothing(tx: CatalogTransaction, response: ReplayableResponse) -> None:
    return None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
