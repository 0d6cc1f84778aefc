"""What the permission matrix leaves in the audit: one row if they change something or are refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.e2e.waiting import eventually
from tests.protocol.permissions.matrix import Row
from tidemill.protocols.iceberg.service import ICEBERG_SERVICE
from tidemill.protocols.lance.service import LANCE_SERVICE
from tidemill.protocols.management.service import MANAGEMENT_SERVICE

SERVICES: Final = (MANAGEMENT_SERVICE, ICEBERG_SERVICE, LANCE_SERVICE)
ROUTES: Final = {f"{route.method} {route.pattern}": route for one in SERVICES for route in one.routes}
# No refusal of the matrix is above the limit.
UNLIMITED: Final = {"TIDEMILL_AUDIT_REFUSALS_PER_MINUTE": "100000"}
# What changes files of a table alone, or is answered without a change; its row is written after the fact.
OUTSIDE_THE_DATABASE: Final = {
    "DELETE /api/v1/auth/roles/{role}/members/{member}",
    "POST /v1/jobs/cancel of a registration, which is over",
    "POST /v1/table/{id}/tags/create",
    "POST /v1/table/{id}/tags/update",
    "POST /v1/table/{id}/tags/delete",
    "POST /iceberg/v1/namespaces/{namespace}/tables that are staged",
    "POST /iceberg/v1/{prefix}/namespaces/{namespace}/tables that are staged",
}


@dataclass(frozen=True)
class Sent:
    """A request, by whom, and its response."""

    client: str
    answer: httpx.Response

    @property
    def request_id(self) -> str:
        return self.answer.headers["x-request-id"]


def stored(root: Path, request_ids: Sequence[str]) -> list[dict[str, Any]]:
    """The audit rows of these requests, oldest first."""
    with closing(sqlite3.connect(f"file:{root / 'catalog.db'}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        query = f"""
            SELECT * FROM audit_events WHERE protocol != 'server'
            AND request_id IN ({",".join("?" * len(request_ids))}) ORDER BY event_id
        """
        return [dict(row) for row in connection.execute(query, request_ids)]


def waited_for(root: Path, request_ids: Sequence[str], count: int = 1) -> list[dict[str, Any]]:
    """Refusals are written after the response."""
    eventually(lambda: len(stored(root, request_ids)) >= count, "the audit rows")
    return stored(root, request_ids)


def check_audited(root: Path, row: Row, refused: Sequence[Sent], last: Sent) -> None:
    """Each refusal has a row; the last request has one if its route changes something."""
    is_mutation = ROUTES[row.route].is_mutation
    rows = waited_for(root, [one.request_id for one in (*refused, last)], len(refused) + is_mutation)
    by_request = {found["request_id"]: found for found in rows}
    assert len(by_request) == len(rows) == len(refused) + is_mutation
    for one in refused:
        _check_refused(by_request[one.request_id], row, one)
    if is_mutation:
        _check_done(by_request[last.request_id], row, last)


def _check_refused(found: dict[str, Any], row: Row, sent: Sent) -> None:
    assert (found["decision"], found["status"], found["error_code"]) == ("denied", 403, "permission_denied")
    assert (found["principal"], found["is_claimed"], found["is_committed"]) == (sent.client, 0, 0)
    assert found["operation"] == row.route
    assert json.loads(found["objects"])


def _check_done(found: dict[str, Any], row: Row, sent: Sent) -> None:
    assert (found["principal"], found["address"]) == (sent.client, "127.0.0.1")
    assert found["decision"] == ("allowed" if sent.answer.is_success else "failed")
    if sent.answer.is_success:
        assert found["is_committed"] == (str(row) not in OUTSIDE_THE_DATABASE), "not in its transaction"
        assert json.loads(found["objects"]) or found["job_id"]
