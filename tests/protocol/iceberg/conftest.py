"""What the tests of Iceberg's protocol share: a plain client, and a namespace of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from tests.conftest import RunningServer
from tests.protocol.iceberg.wire import Space
from tests.specification.answers import ICEBERG_PROTOCOL, checking


@pytest.fixture(scope="session")
def iceberg(server: RunningServer) -> Iterator[httpx.Client]:
    hooks = {"response": [checking(ICEBERG_PROTOCOL)]}
    with httpx.Client(base_url=f"{server.url}/iceberg/v1", timeout=60, event_hooks=hooks) as client:
        yield client


@pytest.fixture
def space(iceberg: httpx.Client) -> Space:
    name = f"i{uuid4().hex[:12]}"
    answer = iceberg.post("namespaces", json={"namespace": [name]})
    assert answer.status_code == 200, answer.text
    return Space(iceberg, name)
