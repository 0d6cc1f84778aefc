"""Refusals say what a name stands for and which names are near, to those who may know and to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import httpx
import pytest

from tests.protocol.permissions.lance_computed_rows import LANCE_COMPUTED_ROWS
from tests.protocol.permissions.lance_table_rows import LANCE_TABLE_ROWS
from tests.protocol.permissions.management_rows import MANAGEMENT_ROWS
from tests.protocol.permissions.matrix import HOME, NOBODY, OWNER, Row, key_of
from tests.protocol.permissions.objects import Objects, new_name
from tests.protocol.permissions.test_permissions import Stand, owner_of, running
from tests.protocol.wire import some_rows, stream

OBJECT_PATHS: Final = tuple(
    f"{prefix}/{{id}}"
    for prefix in ("/v1/table", "/v1/materialized_view", "/v1/view", "/api/v1/tables", "/api/v1/views")
)
ROWS: Final = [
    row
    for row in (*LANCE_TABLE_ROWS, *LANCE_COMPUTED_ROWS, *MANAGEMENT_ROWS)
    if row.pattern.startswith(OBJECT_PATHS) and row.status is None
]
READ: Final = ["read"]
CLIENTS: Final[dict[str, Any]] = {
    OWNER: {"secret": "secret", "grants": {"": ["admin"]}},
    NOBODY: {"secret": "secret", "grants": {}},
    "reader": {"secret": "secret", "grants": {"home": READ}},
    "below": {"secret": "secret", "grants": {"home.inner": READ, "home.secret1": READ, "home.orders": READ}},
    "root": {"secret": "secret", "grants": {"": READ}},
}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    root = tmp_path_factory.mktemp("names")
    with running(root, CLIENTS) as (server, http), owner_of(server) as owner:
        yield Stand(server, http, Objects(owner))


def message(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    return str(error if isinstance(error, str) else error["message"])


def post(stand: Stand, client: str, path: str, body: Any = None) -> httpx.Response:
    return stand.http.post(path, headers=key_of(client), json=body or {})


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_route_names_what_iceberg_has(stand: Stand, row: Row) -> None:
    request, objects = row.prepare(stand.objects), stand.objects
    for name, noun in (
        (objects.still_iceberg_table, "an Iceberg table"),
        (objects.still_iceberg_view, "an Iceberg view"),
    ):
        asked = replace(request, parameters={**request.parameters, "id": f"{HOME}${name}"})
        answer = stand.send(OWNER, row, asked)
        assert answer.status_code in (404, 400, 409), answer.text
        assert f"is {noun}" in message(answer)
        assert f"{HOME}.{name}" in message(answer)
        assert "does not exist" not in message(answer)
        hidden = stand.send(NOBODY, row, asked)
        assert (hidden.status_code, "Iceberg" in hidden.text) == (403, False)


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("/v1/materialized_view/{}/refresh", "table", "{} is not a materialized view; it is a Lance table"),
        ("/v1/materialized_view/{}/describe", "query", "{} is not a materialized view; it is a view"),
        ("/v1/view/{}/describe", "table", "{} is not a view; it is a Lance table"),
        ("/v1/view/{}/drop", "view", "{} is not a view; it is a materialized view"),
        ("/api/v1/views/{}/verify", "table", "{} is not a materialized view; it is a Lance table"),
        ("/v1/namespace/{}/describe", "table", "{} is a Lance table, not a namespace"),
        ("/v1/namespace/{}$inner/exists", "iceberg", "{} is an Iceberg table, not a namespace"),
        ("/v1/table/{}/describe", "namespace", "Table {} does not exist; it is a namespace"),
        ("/v1/table/{}/declare", "view", "Table {} already exists: it is a materialized view"),
        ("/v1/table/{}/declare", "query", "Table {} already exists: it is a view"),
    ],
)
def test_an_object_of_another_kind_is_named(stand: Stand, path: str, kind: str, said: str) -> None:
    objects = stand.objects
    ident = {
        "table": lambda: objects.still,
        "view": lambda: objects.still_view,
        "query": lambda: objects.still_query,
        "iceberg": lambda: f"{HOME}${objects.still_iceberg_table}",
        "namespace": lambda: objects.namespace(HOME),
    }[kind]()
    answer = post(stand, OWNER, path.format(ident))
    assert message(answer) == said.format(ident.replace("$", "."))


@pytest.fixture(scope="module")
def shop(stand: Stand) -> Stand:
    """With names that can be mistyped."""
    owner = stand.objects
    for path in ("home$shop", "home$secret2", "home$inner", "home$inner$deep"):
        owner.ask("POST", f"/v1/namespace/{path}/create", {})
    content = {"content": stream(some_rows())}
    for table in ("orders", "customers"):
        owner.ask("POST", f"/v1/table/home$shop${table}/create", **content)
    new = {"name": "returns", "schema": {"type": "struct", "fields": []}}
    owner.ask("POST", "/iceberg/v1/namespaces/home%1Fshop/tables", new)
    owner.ask("POST", "/iceberg/v1/namespaces/home/tables", {**new, "name": "secret1"})
    return stand


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/table/home$shop$ordres/describe", {}, "did you mean home.shop.orders?"),
        ("/v1/table/home$shop$Orders/exists", {}, "did you mean home.shop.orders?"),
        ("/v1/table/home$shop$return/count_rows", {}, "did you mean home.shop.returns (an Iceberg table)?"),
        ("/v1/materialized_view/home$shop$customer/refresh", {}, "did you mean home.shop.customers?"),
        ("/v1/namespace/home$shopp/describe", {}, "did you mean home.shop?"),
        ("/v1/table/home$shoop$orders/describe", {}, "did you mean home.shop?"),
        ("/v1/table/home$shop$orders/query", {"columns": {"column_names": ["txt"]}}, "did you mean 'text'?"),
        ("/v1/table/home$shop$orders/backfill_column", {"column": "vektor"}, "did you mean 'vector'?"),
        ("/api/v1/views/home$shop$custmers/verify", {}, "did you mean home.shop.customers?"),
    ],
)
def test_a_name_that_is_not_found_comes_with_those_near(
    shop: Stand, path: str, body: dict[str, Any], said: str
) -> None:
    answer = post(shop, OWNER, path, {"k": 1, **body} if path.endswith("query") else body)
    assert answer.status_code == 404
    assert said in message(answer)


def test_nothing_is_near_a_name_unlike_all_others(shop: Stand) -> None:
    answer = post(shop, OWNER, "/v1/table/home$shop$zzzzzz/describe")
    assert message(answer) == "Table home.shop.zzzzzz does not exist"
    assert message(post(shop, OWNER, f"/v1/table/home$shop${'o' * 255}/describe")).endswith("does not exist")


def test_a_job_is_found_by_its_beginning_or_one_wrong_character(stand: Stand) -> None:
    job_id = stand.objects.still_job
    changed = ("0" if job_id[-1] != "0" else "1").join((job_id[:-1], ""))
    for asked in (job_id[:-4], changed):
        answer = post(stand, OWNER, "/v1/jobs/describe", {"job_id": asked})
        assert (answer.status_code, message(answer)) == (
            404,
            f"There is no job {asked}; did you mean {job_id}?",
        )
        managed = stand.http.get(f"/api/v1/jobs/{asked}", headers=key_of("reader"))
        assert f"did you mean {job_id}?" in message(managed)
        assert job_id not in stand.http.get(f"/api/v1/jobs/{asked}", headers=key_of("below")).text


def test_a_function_is_found_by_a_name_like_its_own(stand: Stand) -> None:
    name = f"lengths_{new_name()}"
    created = stand.objects.function().partition("$")[2]
    answer = post(stand, OWNER, f"/v1/function/home${created[:-1]}/describe", {"version": "1"})
    assert f"did you mean home${created}?" in message(answer)
    unlike = post(stand, OWNER, f"/v1/function/home${name}/describe", {"version": "1"})
    assert "did you mean" not in message(unlike) or created not in message(unlike)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        # Granted a namespace that does not exist, it learns nothing about its neighbours.
        ("/v1/namespace/home$secret1/describe", 404),
        ("/v1/table/home$secret1$t/describe", 404),
        ("/v1/table/home$orders$t/describe", 404),
        ("/v1/table/home$secret2$t/describe", 403),
        ("/v1/table/home$shop$ordres/describe", 403),
        ("/v1/table/home$returns/describe", 403),
    ],
)
def test_names_are_told_only_to_those_who_may_read_them(shop: Stand, path: str, status: int) -> None:
    answer = post(shop, "below", path)
    assert answer.status_code == status
    for name in ("Iceberg", "secret2", "home.shop.orders", "did you mean"):
        assert name not in answer.text.replace(path.split("/")[3].replace("$", "."), "")
    assert "did you mean home.inner.deep?" in message(
        post(shop, "below", "/v1/namespace/home$inner$dep/exists")
    )
