"""Namespaces through the client generated from the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lance_namespace_urllib3_client import ApiClient, ApiException, NamespaceApi
from lance_namespace_urllib3_client.models import (
    CreateNamespaceRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    Identity,
    NamespaceExistsRequest,
)

from tests.protocol.generated import refusal
from tests.protocol.wire import TableOnWire

pytestmark = pytest.mark.operation(
    "CreateNamespace",
    "ListNamespaces",
    "DescribeNamespace",
    "DropNamespace",
    "NamespaceExists",
    "ListTables",
    client="urllib3",
)


@pytest.fixture
def namespaces(generated: ApiClient) -> NamespaceApi:
    return NamespaceApi(generated)


def make(namespaces: NamespaceApi, path: str, **options: Any) -> Any:
    return namespaces.create_namespace_with_http_info(path, CreateNamespaceRequest(**options))


def test_a_new_namespace_has_its_properties(namespaces: NamespaceApi, namespace: str) -> None:
    answer = make(namespaces, f"{namespace}$n", properties={"owner": "me"})
    assert (answer.status_code, answer.data.properties) == (200, {"owner": "me"})
    described = namespaces.describe_namespace_with_http_info(f"{namespace}$n", DescribeNamespaceRequest())
    assert (described.status_code, described.data.properties) == (200, {"owner": "me"})


@pytest.mark.parametrize("mode", [None, "Create", "create", "CREATE"])
def test_a_taken_name_is_refused(namespaces: NamespaceApi, namespace: str, mode: str | None) -> None:
    with pytest.raises(ApiException) as raised:
        make(namespaces, namespace, mode=mode)
    assert refusal(raised) == (409, 2)


@pytest.mark.parametrize("mode", ["ExistOk", "exist_ok", "EXIST_OK", "existok"])
def test_an_existing_namespace_is_kept_if_asked_for(
    namespaces: NamespaceApi, table: TableOnWire, mode: str
) -> None:
    answer = make(namespaces, table.namespace, mode=mode, properties={"new": "yes"})
    assert (answer.status_code, answer.data.properties) == (200, {})
    assert namespaces.list_tables(table.namespace).tables == ["t"]


@pytest.mark.parametrize("mode", ["Overwrite", "overwrite"])
def test_an_overwritten_namespace_is_empty(namespaces: NamespaceApi, table: TableOnWire, mode: str) -> None:
    files = table.directory
    answer = make(namespaces, table.namespace, mode=mode, properties={"new": "yes"})
    assert (answer.status_code, answer.data.properties) == (200, {"new": "yes"})
    assert namespaces.list_tables(table.namespace).tables == []
    assert not files.exists()


def test_the_parent_has_to_exist(namespaces: NamespaceApi, namespace: str) -> None:
    with pytest.raises(ApiException) as raised:
        make(namespaces, f"{namespace}$nowhere$n")
    assert refusal(raised) == (404, 1)


def test_the_root_is_not_made(namespaces: NamespaceApi) -> None:
    with pytest.raises(ApiException) as raised:
        make(namespaces, "$", mode="Overwrite")
    assert refusal(raised) == (400, 13)


def test_the_root_is_not_dropped(namespaces: NamespaceApi, still: TableOnWire) -> None:
    with pytest.raises(ApiException) as raised:
        namespaces.drop_namespace("$", DropNamespaceRequest(behavior="Cascade"))
    assert refusal(raised) == (400, 13)
    assert still.asked("count_rows") == 3


def test_children_come_sorted_and_in_pages(namespaces: NamespaceApi, namespace: str) -> None:
    for name in ("d", "a", "e", "b", "c"):
        make(namespaces, f"{namespace}${name}")
    pages, token = [], None
    while True:
        page = namespaces.list_namespaces(namespace, limit=2, page_token=token)
        pages.append(page.namespaces)
        token = page.page_token
        if not token:
            break
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize(("limit", "shown"), [(0, []), (-1, ["a", "b"]), (2, ["a", "b"]), (9, ["a", "b"])])
def test_a_page_that_holds_the_rest_has_no_token(
    namespaces: NamespaceApi, namespace: str, limit: int, shown: list[str]
) -> None:
    for name in ("a", "b"):
        make(namespaces, f"{namespace}${name}")
    page = namespaces.list_namespaces(namespace, limit=limit)
    assert (page.namespaces, page.page_token) == (shown, None)


def test_the_root_lists_the_namespaces_below_it(namespaces: NamespaceApi, namespace: str) -> None:
    assert namespace in namespaces.list_namespaces("$").namespaces
    assert namespace in namespaces.list_namespaces(".", delimiter=".").namespaces


def test_what_exists_is_said_with_an_empty_answer(namespaces: NamespaceApi, namespace: str) -> None:
    answer = namespaces.namespace_exists_with_http_info(namespace, NamespaceExistsRequest())
    assert (answer.status_code, answer.raw_data) == (200, b"")


@pytest.mark.parametrize("action", ["list_namespaces", "list_tables", "describe", "exists", "drop"])
def test_a_missing_namespace_is_not_found(namespaces: NamespaceApi, namespace: str, action: str) -> None:
    path = f"{namespace}$nowhere"
    calls: dict[str, Callable[[], object]] = {
        "list_namespaces": lambda: namespaces.list_namespaces(path),
        "list_tables": lambda: namespaces.list_tables(path),
        "describe": lambda: namespaces.describe_namespace(path, DescribeNamespaceRequest()),
        "exists": lambda: namespaces.namespace_exists(path, NamespaceExistsRequest()),
        "drop": lambda: namespaces.drop_namespace(path, DropNamespaceRequest()),
    }
    with pytest.raises(ApiException) as raised:
        calls[action]()
    assert refusal(raised) == (404, 1)


@pytest.mark.parametrize("mode", ["Skip", "skip"])
def test_dropping_what_is_not_there_can_be_skipped(
    namespaces: NamespaceApi, namespace: str, mode: str
) -> None:
    answer = namespaces.drop_namespace_with_http_info(f"{namespace}$nowhere", DropNamespaceRequest(mode=mode))
    assert (answer.status_code, answer.raw_data) == (200, b"{}")


def test_an_empty_namespace_is_dropped(namespaces: NamespaceApi, namespace: str) -> None:
    answer = namespaces.drop_namespace_with_http_info(namespace, DropNamespaceRequest())
    assert answer.status_code == 200
    assert namespace not in namespaces.list_namespaces("$").namespaces


@pytest.mark.parametrize("behavior", [None, "Restrict", "restrict"])
def test_a_namespace_with_a_table_is_not_dropped(
    namespaces: NamespaceApi, table: TableOnWire, behavior: str | None
) -> None:
    with pytest.raises(ApiException) as raised:
        namespaces.drop_namespace(table.namespace, DropNamespaceRequest(behavior=behavior))
    assert refusal(raised) == (409, 3)
    assert table.asked("count_rows") == 3


def test_a_namespace_with_a_namespace_is_not_dropped(namespaces: NamespaceApi, namespace: str) -> None:
    make(namespaces, f"{namespace}$inner")
    with pytest.raises(ApiException) as raised:
        namespaces.drop_namespace(namespace, DropNamespaceRequest())
    assert refusal(raised) == (409, 3)


@pytest.mark.parametrize("behavior", ["Cascade", "cascade"])
def test_a_cascade_drops_everything_below(
    namespaces: NamespaceApi, table: TableOnWire, behavior: str
) -> None:
    make(namespaces, f"{table.namespace}$inner")
    files = table.directory
    namespaces.drop_namespace(table.namespace, DropNamespaceRequest(behavior=behavior))
    assert table.namespace not in namespaces.list_namespaces("$").namespaces
    assert not files.exists()


def test_properties_have_limits(namespaces: NamespaceApi, namespace: str) -> None:
    for properties in ({str(number): "x" for number in range(1001)}, {"": "x"}, {"x": "y" * 300_000}):
        with pytest.raises(ApiException) as raised:
            make(namespaces, f"{namespace}$n", properties=properties)
        assert refusal(raised) == (400, 13)
    most = {str(number): "x" for number in range(1000)}
    assert make(namespaces, f"{namespace}$n", properties=most).data.properties == most


def test_a_listing_goes_on_after_a_name_that_is_gone(namespaces: NamespaceApi, namespace: str) -> None:
    for name in ("a", "b", "c"):
        make(namespaces, f"{namespace}${name}")
    page = namespaces.list_namespaces(namespace, limit=2)
    namespaces.drop_namespace(f"{namespace}$b", DropNamespaceRequest())
    assert namespaces.list_namespaces(namespace, limit=2, page_token=page.page_token).namespaces == ["c"]


def test_context_and_identity_are_taken_and_not_given_back(namespaces: NamespaceApi, namespace: str) -> None:
    answer = namespaces.describe_namespace_with_http_info(
        namespace,
        DescribeNamespaceRequest(
            context={"header.x-secret": "s3cret"}, identity=Identity(api_key="s3cret", auth_token="s3cret")
        ),
        _headers={"x-lance-ctx-secret": "s3cret", "authorization": "Bearer s3cret", "x-api-key": "s3cret"},
    )
    assert answer.status_code == 200
    headers = dict(answer.headers or {})
    assert headers["x-request-id"]
    assert "s3cret" not in str(headers) + answer.raw_data.decode()
