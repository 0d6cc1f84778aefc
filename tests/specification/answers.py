"""Checks that an answer has the status, the media type and the form that its specification declares.

`checking` is a response hook for httpx clients: every answer that a test receives through such a client is
checked, whatever the test itself looks at. The counts go into the summary of the run, so that a run without
checks is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.specification.notation import Notation
from tests.specification.tables import ICEBERG, JSON, LANCE, Operation, SpecificationTable

# How many answers were checked against each document.
CHECKED: Final[Counter[str]] = Counter()
ANY: Final = frozenset({"*"})


@dataclass(frozen=True)
class Protocol:
    """A specification as this server serves it."""

    table: SpecificationTable
    mount: str
    errors: str
    # Statuses that the specification does not declare and the operations that answer them, or ANY.
    undeclared: Mapping[int, frozenset[str]]

    def check_schema(self, value: Any, written: Any) -> None:
        CHECKED[self.table.document] += 1
        assert list(self.table.problems(value, written)) == []

    def check(self, answer: httpx.Response) -> None:
        """An answer to one of the specification's operations; others are not ours to judge."""
        path = answer.request.url.raw_path.decode().partition("?")[0].rstrip("/")
        if not path.startswith(self.mount):
            return
        operation = self.table.operation(answer.request.method, path.removeprefix(self.mount))
        if operation is None:
            return
        CHECKED[self.table.document] += 1
        problems = list(self._problems(operation, answer))
        assert not problems, (
            f"{operation.name} answered {answer.status_code}: {problems} in {answer.text:.500}"
        )

    def _problems(self, operation: Operation, answer: httpx.Response) -> Iterator[str]:
        status = answer.status_code
        if not operation.declares(status):
            if not self._is_known(operation, status):
                yield f"status {status} is not declared"
            if not self._is_known(operation, status) or status < 400:
                return
        content = self._content(operation, status)
        if answer.request.method == "HEAD" or content is None:
            if answer.content:
                yield "there should be no content"
            return
        media = answer.headers.get("content-type", "").partition(";")[0]
        if isinstance(content, str) and "/" in content:
            if media != content:
                yield f"{media!r} instead of {content!r}"
        elif media != JSON:
            yield f"{media!r} instead of {JSON!r}"
        else:
            yield from self.table.problems(answer.json(), content)

    def _content(self, operation: Operation, status: int) -> Notation:
        declared = operation.answer(status) if operation.declares(status) else None
        # Requests for tokens fail as RFC 6749 says.
        return self.errors if status >= 400 and declared != "OAuthError" else declared

    def _is_known(self, operation: Operation, status: int) -> bool:
        allowed = self.undeclared.get(status, frozenset())
        return allowed == ANY or operation.name in allowed


# Its error codes for unsupported requests and for conflicts may answer any operation, and few declare the
# statuses 406 and 409. Any body may be too large. To lancedb's client 202 says that a view is being filled.
LANCE_PROTOCOL: Final = Protocol(
    LANCE,
    "",
    "ErrorResponse",
    {202: frozenset({"CreateMaterializedView"}), 406: ANY, 409: ANY, 413: ANY},
)
# A key may come with another request than before. Signing may be unsupported, as other operations may.
ICEBERG_PROTOCOL: Final = Protocol(
    ICEBERG, "/iceberg", "IcebergErrorResponse", {406: frozenset({"signRequest"}), 413: ANY, 422: ANY}
)


def checking(*protocols: Protocol) -> Callable[[httpx.Response], None]:
    def check(answer: httpx.Response) -> None:
        answer.read()
        for protocol in protocols:
            protocol.check(answer)

    return check
