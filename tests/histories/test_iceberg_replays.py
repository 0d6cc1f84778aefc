"""Random requests with keys, each sent again at random moments: as if every one had been sent once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.iceberg_requests import new_key, new_table, new_view, with_properties, with_version
from tidemill.protocols.app import create_app
from tidemill.protocols.http.call import Limits
from tidemill.server.bootstrap import build_operations, open_adapters
from tidemill.server.health import WorkerState
from tidemill.server.settings import load_settings

BASE = "/iceberg/v1"
NAMES = ("a", "b")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Any = None


class NoWorkers:
    def state(self) -> WorkerState:
        return "absent"


@contextmanager
def catalog() -> Iterator[TestClient]:
    with TemporaryDirectory() as root:
        lake = open_adapters(load_settings(root=Path(root), database_url="sqlite://"))
        app = create_app(build_operations(lake, NoWorkers(), lambda: None), Limits())
        with TestClient(app, raise_server_exceptions=False) as http:
            for namespace in NAMES:
                assert http.post(f"{BASE}/namespaces", json={"namespace": [namespace]}).status_code == 200
            yield http
        lake.store.close()


def requests() -> st.SearchStrategy[Request]:
    """Few names, so that requests meet: what one makes, another drops, renames or finds in the way."""
    namespace, kind, name = (
        st.sampled_from(NAMES),
        st.sampled_from(("tables", "views")),
        st.sampled_from("xy"),
    )
    place = st.tuples(namespace, kind, name)
    number = st.integers(0, 3)

    def made(where: tuple[str, str, str]) -> Request:
        body = new_table(where[2]) if where[1] == "tables" else new_view(where[2])
        return Request("POST", f"{BASE}/namespaces/{where[0]}/{where[1]}", body)

    def replaced(where: tuple[str, str, str], count: int) -> Request:
        path = f"{BASE}/namespaces/{where[0]}/{where[1]}/{where[2]}"
        is_view = where[1] == "views" and count > 1
        return Request(
            "POST", path, with_version(f"SELECT {count}") if is_view else with_properties(p=str(count))
        )

    def dropped(where: tuple[str, str, str]) -> Request:
        return Request("DELETE", f"{BASE}/namespaces/{where[0]}/{where[1]}/{where[2]}")

    def renamed(where: tuple[str, str, str], to: tuple[str, str, str]) -> Request:
        ends = {
            "source": {"namespace": [where[0]], "name": where[2]},
            "destination": {"namespace": [to[0]], "name": to[2]},
        }
        return Request("POST", f"{BASE}/{where[1]}/rename", ends)

    def described(where: str, count: int) -> Request:
        changes = {"removals": [f"k{count}"], "updates": {f"k{(count + 1) % 4}": str(count)}}
        return Request("POST", f"{BASE}/namespaces/{where}/properties", changes)

    return st.one_of(
        place.map(made),
        st.builds(replaced, place, number),
        place.map(dropped),
        st.builds(renamed, place, place),
        st.builds(described, namespace, number),
        namespace.map(lambda where: Request("DELETE", f"{BASE}/namespaces/{where}")),
        namespace.map(lambda where: Request("POST", f"{BASE}/namespaces", {"namespace": [where]})),
    )


def send(http: TestClient, request: Request, key: str) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    answer: httpx.Response = http.request(request.method, request.path, json=request.body, headers=headers)
    assert answer.status_code < 500, answer.text
    return answer


def names_and_numbers(http: TestClient) -> dict[str, Any]:
    """Everything the catalog holds, but for what is made by chance and by the clock."""
    found: dict[str, Any] = {}
    for namespace in NAMES:
        described = http.get(f"{BASE}/namespaces/{namespace}")
        found[namespace] = None
        if described.status_code == 200:
            # A default location has the random id of the namespace in it.
            found[namespace] = described.json()["properties"] | {"location": None}
        for kind, name in itertools.product(("tables", "views"), "xy"):
            loaded = http.get(f"{BASE}/namespaces/{namespace}/{kind}/{name}")
            if loaded.status_code == 200:
                state = loaded.json()
                file = state["metadata-location"].rsplit("/", 1)[1]
                said = [version["representations"] for version in state["metadata"].get("versions", ())]
                found[f"{namespace}.{kind}.{name}"] = (
                    file.partition("-")[0],
                    state["metadata"].get("properties", {}),
                    said,
                )
    return found


Step = tuple[Request, int]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(requests(), st.integers(0, 2)), min_size=1, max_size=12), st.randoms())
def test_what_is_sent_again_changes_nothing_and_gets_the_same_answer(
    steps: Sequence[Step], chance: Any
) -> None:
    with catalog() as once:
        plain = [send(once, request, new_key()).status_code for request, _ in steps]
        expected = names_and_numbers(once)
    with catalog() as http:
        sent: list[tuple[Request, str, httpx.Response]] = []
        for request, repeats in steps:
            key = new_key()
            sent.append((request, key, send(http, request, key)))
            for _ in range(repeats):
                earlier, its_key, first = chance.choice(sent)
                again = send(http, earlier, its_key)
                assert (again.status_code, again.content) == (first.status_code, first.content)
        assert [answer.status_code for _, _, answer in sent] == plain
        assert names_and_numbers(http) == expected
