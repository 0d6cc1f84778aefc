"""Routes that change something: executed once per Idempotency-Key, answered the same way every time.

Clients repeat a commit with the same key when the response got lost. Executing it twice would fail with a
conflict at best, and the client would report a failure for a commit that succeeded. So every mutation is
declared with `mutation_route`, which turns it into a handler:

1. Read what the request is about (`target_of`), and check the permissions for it, even for a replay.
2. If a receipt for the key exists, replay the response in it.
3. Otherwise run the route with a `Mutation`. The operation records its result with it in its own transaction,
   before it changes anything, so the receipt and the change are committed together.
4. If the same request is running elsewhere at the same time, the second insert of the receipt fails with
   ReceiptExists. The second transaction rolls back and the first one's response is replayed.

Refusals that would be the same next time (FINAL_STATUSES) get a receipt as well, in a transaction of their
own. Credentials are never stored: responses are completed with fresh ones when they are sent (`responses`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tidemill.catalog.auditing import note_failure
from tidemill.catalog.errors import ReceiptExists
from tidemill.catalog.model.callers import Receipt
from tidemill.catalog.operations.receipts import Mutation, Needs, PendingReceipt
from tidemill.errors import InvalidInput, TidemillError, Unavailable
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.routing import Route
from tidemill.protocols.iceberg.errors import ICEBERG_ERRORS, add_near_names, error_body, message_of
from tidemill.protocols.iceberg.responses import ReplayableResponse, replay, replayable_json, respond

HEADER: Final = "Idempotency-Key"
# `uuid.UUID` would also accept braces, URNs, missing hyphens and other versions.
UUID_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Refusals that the same request would get again; those that depend on permissions or load are not.
FINAL_STATUSES: Final = frozenset({400, 404, 406, 409, 422})

TargetT = TypeVar("TargetT")
ResultT = TypeVar("ResultT")

Run: TypeAlias = Callable[[Call, TargetT, Mutation[ResultT]], ResultT]


@dataclass(frozen=True, slots=True)
class MutationHandler(Generic[TargetT, ResultT]):
    """A handler of requests that change something; see `mutation_route`."""

    operation: str
    target_of: Callable[[Call], TargetT]
    needs_of: Callable[[TargetT], Needs]
    to_response: Callable[[ResultT], ReplayableResponse]
    run: Run[TargetT, ResultT]

    def __call__(self, call: Call) -> Response:
        target, key = self.target_of(call), idempotency_key(call)
        if key is None:
            return respond(call, self.to_response(self.run(call, target, Mutation(call.caller))))
        request = Receipt(
            key, call.caller.principal, self.operation, resource_of(call), _digest(call.body), b""
        )
        # Permissions first: the caller may have lost them since the earlier response.
        earlier = call.operations.receipts.find_authorized(call.caller, self.needs_of(target), request)
        if earlier is not None:
            return replay(call, ReplayableResponse.from_bytes(earlier.outcome))
        return respond(call, self._run_once(call, target, request))

    def _run_once(self, call: Call, target: TargetT, request: Receipt) -> ReplayableResponse:
        receipts = call.operations.receipts
        receipt = PendingReceipt(receipts, request, self._outcome_of)
        try:
            return self.to_response(self.run(call, target, Mutation(call.caller, receipt)))
        except ReceiptExists as error:
            # The same request was running concurrently and has committed.
            stored = receipts.find(request)
            if stored is None:
                raise Unavailable(
                    f"{HEADER} {request.key} has just expired; send the request again"
                ) from error
            return ReplayableResponse.from_bytes(stored.outcome)
        except TidemillError as error:
            add_near_names(call, error)
            note_failure(error.code.value)
            response = _error_response(error)
            if response.status not in FINAL_STATUSES:
                raise
            return ReplayableResponse.from_bytes(
                receipts.record_in_own_transaction(replace(request, outcome=response.to_bytes())).outcome
            )

    def _outcome_of(self, result: ResultT) -> bytes:
        return self.to_response(result).to_bytes()


def mutation_route(
    operation: str,
    target_of: Callable[[Call], TargetT],
    needs_of: Callable[[TargetT], Needs],
    to_response: Callable[[ResultT], ReplayableResponse],
) -> Callable[[Run[TargetT, ResultT]], MutationHandler[TargetT, ResultT]]:
    """Declares a route that changes something; the decorated function runs at most once per key.

    `needs_of` is the function that the operation itself uses. A request that `target_of` refuses gets no
    receipt: nobody knows yet which permissions it needs.
    """
    return lambda run: MutationHandler(operation, target_of, needs_of, to_response, run)


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


def _error_response(error: TidemillError) -> ReplayableResponse:
    iceberg_error = ICEBERG_ERRORS[error.code]
    return replayable_json(error_body(iceberg_error, message_of(error)), iceberg_error.status)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
