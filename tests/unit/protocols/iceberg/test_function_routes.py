"""Every namespace lists all functions, and has them loaded by name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import httpx
import orjson
import pyarrow as pa
import pytest
from starlette.datastructures import Headers, QueryParams

from tests.protocol.iceberg.wire import check_form
from tidemill.catalog.errors import FunctionNotFound, NamespaceNotFound
from tidemill.catalog.model.callers import LOCAL_CALLER, Caller
from tidemill.catalog.model.functions import RegisteredFunction, source_function
from tidemill.catalog.model.identifiers import Namespace, NamespacePath
from tidemill.catalog.operations.functions import FunctionOperations
from tidemill.catalog.operations.namespaces import NamespaceOperations
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.routes.functions import list_functions, load_function

SEPARATOR = "\x1f"


class Functions(FunctionOperations):
    def __init__(self, *names: str) -> None:
        self._names = names

    def list_registered(
        self, caller: Caller, namespace: NamespacePath | None = None
    ) -> Sequence[RegisteredFunction]:
        return [
            RegisteredFunction(
                source_function("f", "source", ("x",), pa.int64(), name=name, python="3.11"),
                version,
                "me",
                datetime(2024, 1, 1, tzinfo=UTC),
            )
            for name in self._names
            for version in (1, 2)
        ]


class Namespaces(NamespaceOperations):
    def __init__(self) -> None:
        pass

    def describe(self, caller: Caller, path: NamespacePath) -> Namespace:
        raise NamespaceNotFound(path)


class Existing(Namespaces):
    def describe(self, caller: Caller, path: NamespacePath) -> Namespace:
        return Namespace(cast("Any", None), path)


class Server:
    def __init__(self, *names: str, namespaces: NamespaceOperations | None = None) -> None:
        self.functions = Functions(*names)
        self.namespaces = namespaces or Existing()

    def call(self, query: str = "", **parameters: str) -> Call:
        return Call(
            operations=cast("Operations", self),
            caller=LOCAL_CALLER,
            limits=Limits(),
            parameters={"namespace": f"a{SEPARATOR}b", **parameters},
            query=QueryParams(query),
            headers=Headers(),
            body=b"",
        )

    def listed(self, query: str = "") -> Any:
        body = orjson.loads(bytes(list_functions(self.call(query)).body))
        return check_form(httpx.Response(200, json=body), "ListFunctionsResponse")


def test_every_function_is_listed_once_below_the_namespace() -> None:
    answer = Server("g", "f").listed()
    assert answer == {"next-page-token": None, "identifiers": [["a", "b", "f"], ["a", "b", "g"]]}


def test_pages_follow_each_other() -> None:
    server = Server("f", "g", "h")
    first = server.listed("pageToken=&pageSize=2")
    last = server.listed(f"pageToken={first['next-page-token']}&pageSize=2")
    assert [name for *_, name in [*first["identifiers"], *last["identifiers"]]] == ["f", "g", "h"]
    assert last["next-page-token"] is None


def test_a_function_is_loaded_with_its_versions() -> None:
    body = orjson.loads(bytes(load_function(Server("f", "g").call(function="g")).body))
    assert [version["version-id"] for version in body["metadata"]["definitions"][0]["versions"]] == [1, 2]


def test_a_missing_function_is_not_found() -> None:
    with pytest.raises(FunctionNotFound, match="h"):
        load_function(Server("f").call(function="h"))


def test_a_missing_namespace_has_no_functions() -> None:
    server = Server("f", namespaces=Namespaces())
    with pytest.raises(NamespaceNotFound):
        server.listed()
    with pytest.raises(NamespaceNotFound):
        load_function(server.call(function="f"))
