"""Requests with an Idempotency-Key: carried out once, answered as often as they are sent."""

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
from tidemill.protocols.iceberg.responses import Answer, json_answer, respond, respond_again

HEADER: Final = "Idempotency-Key"
# `uuid.UUID` would take braces, URNs, missing hyphens and every version.
UUID_V7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Refusals that the same request would get again; who may ask, and how busy we are, may change.
FINAL_STATUSES: Final = frozenset({400, 404, 406, 409, 422})

Keep: TypeAlias = Callable[[CatalogTransaction, Answer], None]
"""Puts the answer on record in the transaction of what it is the answer to; raises ReceiptExists."""

Result = TypeVar("Result")


def mutation(call: Call, operation: str, needs: Sequence[Need], run: Callable[[Keep], Answer]) -> Response:
    """Runs what changes the catalog, unless that was done before for the same key."""
    key = idempotency_key(call)
    if key is None:
        return respond(call, run(_keep_nothing))
    receipts = call.operations.receipts
    # Before anything is told of an earlier request: the caller may have lost its permissions since.
    receipts.authorize(call.caller, needs)
    asked = Receipt(key, call.caller.principal, operation, resource_of(call), _digest(call.body), b"")
    found = receipts.find(asked)
    if found is not None:
        return respond_again(call, Answer.from_bytes(found.outcome))
    return respond(call, _carry_out(call, asked, run))


def kept(keep: Keep, answer_of: Callable[[Result], Answer]) -> Callable[[CatalogTransaction, Result], None]:
    """What an operation has to do beside its own work for its answer to be on record."""
    return lambda tx, result: keep(tx, answer_of(result))


def idempotency_key(call: Call) -> str | None:
    """In the one form it is compared in; raises InvalidInput where it is anything but one UUIDv7."""
    given = call.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1:
        raise InvalidInput(HEADER, f"is there {len(given)} times; a request has one key")
    key = given[0].lower()
    if UUID_V7.fullmatch(key) is None:
        raise InvalidInput(HEADER, f"has to be a UUID of version 7 (RFC 9562), not {given[0]!r:.60}")
    return key


def with_checked_key(route: Route) -> Route:
    """For what changes nothing: a key has no effect, and still has to be one."""

    def checked(call: Call) -> Response:
        idempotency_key(call)
        return route.handler(call)

    return replace(route, handler=checked)


def resource_of(call: Call) -> str:
    """What the path and the query name; with and without the prefix it is the same."""
    names = [quote(value, safe="") for name, value in call.parameters.items() if name != "prefix"]
    options = urlencode(sorted(call.query.multi_items()))
    return "/".join(names) + (f"?{options}" if options else "")


def _carry_out(call: Call, asked: Receipt, run: Callable[[Keep], Answer]) -> Answer:
    receipts = call.operations.receipts

    def keep(tx: CatalogTransaction, answer: Answer) -> None:
        receipts.record(tx, replace(asked, outcome=answer.to_bytes()))

    try:
        return run(keep)
    except ReceiptExists as error:
        # Somebody else was carrying out the same request, and has done so.
        found = receipts.find(asked)
        if found is None:
            raise Unavailable(f"{HEADER} {asked.key} ended just now; send the request again") from error
        return Answer.from_bytes(found.outcome)
    except TidemillError as error:
        answer = _refused(error)
        if answer.status not in FINAL_STATUSES:
            raise
        return Answer.from_bytes(
            receipts.record_in_own_transaction(replace(asked, outcome=answer.to_bytes())).outcome
        )


def _refused(error: TidemillError) -> Answer:
    answer = ICEBERG_ERRORS[error.code]
    return json_answer(error_body(answer, message_of(error)), answer.status)


def _keep_nothing(tx: CatalogTransaction, answer: Answer) -> None:
    return None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
