"""A server that only notes what it is asked for."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tidemill.sdk.http import ServerClient
from tidemill.sdk.lake import Lake

JOB: dict[str, Any] = {
    "job_id": "j1",
    "kind": "backfill",
    "table": ["library", "docs"],
    "column": "words",
    "state": "DONE",
    "progress": {"total": 10, "done": 10, "computed": 4, "skipped": 6},
}


class NotingServer:
    """Keeps every request and answers from a table of paths, by their last part."""

    def __init__(self, **answers: Any) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = answers

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self._answers.get(request.url.path.rpartition("/")[2], {})
        # A list is the pages of a listing.
        return httpx.Response(200, json=answer.pop(0) if isinstance(answer, list) else answer)

    def lake(self) -> Lake:
        return Lake(ServerClient("http://lake", api_key="secret", transport=httpx.MockTransport(self)))

    def last(self) -> tuple[str, Any]:
        request = self.requests[-1]
        return request.url.raw_path.decode(), json.loads(request.content)

    def asked(self) -> list[tuple[str, str]]:
        """The method and path of each request, with its query."""
        return [(request.method, request.url.raw_path.decode()) for request in self.requests]

    def sent(self, number: int = 0) -> Any:
        return json.loads(self.requests[number].content)
