"""Which operation of the Lance specification a test drives with which client: what the marker says."""

from __future__ import annotations

import inspect
import re
from typing import Final

import lance_namespace_urllib3_client as generated
import pytest

MARKER: Final = "operation"
# By the name in the marker; the value is how the documentation calls the client.
CLIENTS: Final = {
    "urllib3": "generated client",
    "pylance": "pylance",
    "lancedb": "lancedb",
    "remote": "lancedb `db://`",
    "spark": "Spark SQL",
    "http": "plain HTTP",
}
VARIANTS: Final = ("_with_http_info", "_without_preload_content")


def _operations() -> tuple[str, ...]:
    """The generated client has one method for every operation of the specification, in nine classes."""
    apis = [getattr(generated, name) for name in dir(generated) if name.endswith("Api")]
    methods = {name for api in apis for name in vars(api) if not name.startswith("_")}
    names = {name for name in methods if not name.endswith(VARIANTS)}
    return tuple(sorted("".join(map(str.capitalize, name.split("_"))) for name in names))


OPERATIONS: Final = _operations()


def driven_by(item: pytest.Item) -> list[tuple[str, str]]:
    """The pairs of operation and client in the test's markers; a marker that makes no sense is refused."""
    return [
        (operation, client)
        for node, mark in item.iter_markers_with_node(MARKER)
        for operation, client in _pairs(item, mark)
        if not _is_shared(node, mark) or _is_called(item, operation)
    ]


def _pairs(item: pytest.Item, mark: pytest.Mark) -> list[tuple[str, str]]:
    client = mark.kwargs.get("client")
    unknown = sorted(set(mark.args) - set(OPERATIONS))
    if not mark.args or unknown:
        raise pytest.UsageError(f"{item.nodeid}: the marker names no operation of the 54: {unknown}")
    if mark.kwargs.keys() != {"client"} or client not in CLIENTS:
        raise pytest.UsageError(f"{item.nodeid}: the marker needs client=, one of {', '.join(CLIENTS)}")
    return [(operation, client) for operation in mark.args]


def _is_shared(node: object, mark: pytest.Mark) -> bool:
    """Several operations for a whole module: not every test drives all of them."""
    return isinstance(node, pytest.Module) and len(mark.args) > 1


def _is_called(item: pytest.Item, operation: str) -> bool:
    method = re.sub(r"(?<!^)([A-Z])", r"_\1", operation).lower()
    return re.search(rf"\.{method}(?:_with_http_info)?\(", _source(item)) is not None


def _source(item: pytest.Item) -> str:
    """The text of the test and of the functions of its module that it calls."""
    if not isinstance(item, pytest.Function):
        return ""
    test = inspect.getsource(item.function)
    called = [vars(item.module).get(name) for name in set(re.findall(r"\b(\w+)\(", test))]
    helpers = [inspect.getsource(helper) for helper in called if inspect.isfunction(helper)]
    return "\n".join([test, *helpers])
