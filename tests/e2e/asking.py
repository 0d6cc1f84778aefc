"""Backfills asked for over HTTP, without the checks of the SDK."""

from __future__ import annotations

from typing import Any

import httpx

import tidemill
from tests.conftest import RunningServer


def asked(server: RunningServer, table: tidemill.Table, **options: Any) -> httpx.Response:
    """The answer to a backfill of `size` as a client without checks of its own would ask for it."""
    path = f"{server.url}/v1/table/{'$'.join(table.levels)}/backfill_column"
    return httpx.post(path, json={"column": "size", **options})
