"""Every operation of the specification has a route."""

from __future__ import annotations

import inspect
import re

import pytest
from lance_namespace_urllib3_client import api

from tidemill.protocols.lance.service import ROUTES

RESOURCE = re.compile(r"method='(\w+)',\s*resource_path='([^']+)'")
OPERATIONS = sorted(
    {
        (method, path)
        for _, client in inspect.getmembers(api, inspect.isclass)
        for method, path in RESOURCE.findall(inspect.getsource(client))
    }
)


def test_the_specification_has_54_operations() -> None:
    assert len(OPERATIONS) == 54


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_the_operation_has_a_route(method: str, path: str) -> None:
    wanted = path.rstrip("/")
    assert any((route.method, route.pattern) == (method, wanted) for route in ROUTES)
