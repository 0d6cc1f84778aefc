"""Requests with a key: carried out once, answered as often as they are sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conftest import RunningServer
from tests.iceberg_requests import new_key
from tests.protocol.iceberg.wire import (
    SCHEMA,
    Space,
    check_error,
    keyed,
    new_version,
    set_properties,
    view_version,
)

SENDERS = 8


@dataclass(frozen=True)
class Sent:
    """One request, to be sent again and again."""

    method: str
    path: str
    body: Any = None

    def by(self, http: httpx.Client, key: str) -> httpx.Response:
        return http.request(self.method, self.path, json=self.body, headers=keyed(key))


def a_table(space: Space) -> Sent:
    return Sent("POST", space.at("tables"), {"name": "new", "schema": SCHEMA})


def a_staged_table(space: Space) -> Sent:
    return Sent("POST", space.at("tables"), {"name": "new", "schema": SCHEMA, "stage-create": True})


def a_view(space: Space) -> Sent:
    return Sent("POST", space.at("views"), {"name": "new", "schema": SCHEMA, "view-version": view_version()})


def a_registration(space: Space) -> Sent:
    location = space.http.post(f"{space.table()}/unregister").json()["metadata-location"]
    return Sent("POST", space.at("register"), {"name": "new", "metadata-location": location})


def a_view_registration(space: Space) -> Sent:
    location = space.http.get(space.view()).json()["metadata-location"]
    space.http.delete(space.view())
    return Sent("POST", space.at("register-view"), {"name": "new", "metadata-location": location})


def a_rename(kind: str, name: str) -> Callable[[Space], Sent]:
    return lambda space: Sent(
        "POST", f"{kind}/rename", {"source": space.ident(name), "destination": space.ident("new")}
    )


def a_transaction(space: Space) -> Sent:
    change = {"identifier": space.ident("t"), "requirements": [], "updates": [set_properties(a="1")]}
    return Sent("POST", "transactions/commit", {"table-changes": [change]})


MUTATIONS: dict[str, Callable[[Space], Sent]] = {
    "createNamespace": lambda space: Sent("POST", "namespaces", {"namespace": [space.name, "new"]}),
    "dropNamespace": lambda space: Sent("DELETE", f"namespaces/{space.name}%1Fempty"),
    "updateProperties": lambda space: Sent(
        "POST", space.at("properties"), {"updates": {"a": "1"}, "removals": ["b"]}
    ),
    "createTable": a_table,
    "stageCreate": a_staged_table,
    "registerTable": a_registration,
    "updateTable": lambda space: Sent("POST", space.table(), {"updates": [set_properties(a="1")]}),
    "dropTable": lambda space: Sent("DELETE", space.table() + "?purgeRequested=true"),
    "unregisterTable": lambda space: Sent("POST", f"{space.table()}/unregister"),
    "renameTable": a_rename("tables", "t"),
    "commitTransaction": a_transaction,
    "createView": a_view,
    "replaceView": lambda space: Sent("POST", space.view(), {"updates": new_version("SELECT 2 AS id")}),
    "dropView": lambda space: Sent("DELETE", space.view()),
    "renameView": a_rename("views", "v"),
    "registerView": a_view_registration,
}


@pytest.fixture
def furnished(space: Space) -> Space:
    """With a table `t`, a view `v` and an empty namespace below it."""
    space.made_table()
    space.made_view()
    space.http.post("namespaces", json={"namespace": [space.name, "empty"]})
    return space


def told(answer: httpx.Response) -> tuple[int, bytes, str | None]:
    return answer.status_code, answer.content, answer.headers.get("etag")


@pytest.mark.parametrize("operation", MUTATIONS)
def test_a_request_that_is_sent_twice_is_answered_alike(furnished: Space, operation: str) -> None:
    sent, key = MUTATIONS[operation](furnished), new_key()
    first = sent.by(furnished.http, key)
    assert first.status_code in (200, 204), first.text
    assert told(sent.by(furnished.http, key.upper())) == told(first)


@pytest.mark.parametrize("operation", ["createTable", "updateTable", "createView", "replaceView", "dropView"])
def test_a_request_that_is_sent_many_times_at_once_is_carried_out_once(
    furnished: Space, operation: str
) -> None:
    sent, key = MUTATIONS[operation](furnished), new_key()
    with ThreadPoolExecutor(SENDERS) as threads:
        answers = list(threads.map(lambda _: told(sent.by(furnished.http, key)), range(SENDERS)))
    assert len(set(answers)) == 1
    assert answers[0][0] in (200, 204), answers[0][1]


def test_duplicates_at_two_servers_are_carried_out_once(
    furnished: Space, second_server: RunningServer
) -> None:
    sent, key = MUTATIONS["replaceView"](furnished), new_key()
    with httpx.Client(base_url=f"{second_server.url}/iceberg/v1", timeout=60) as other:
        senders = [furnished.http, other] * 4
        with ThreadPoolExecutor(SENDERS) as threads:
            answers = list(threads.map(lambda http: told(sent.by(http, key)), senders))
    assert len(set(answers)) == 1
    assert answers[0][0] == 200
    assert len(furnished.http.get(furnished.view()).json()["metadata"]["versions"]) == 2


def test_a_view_that_was_made_again_is_not_dropped_again(furnished: Space) -> None:
    sent, key = MUTATIONS["dropView"](furnished), new_key()
    assert sent.by(furnished.http, key).status_code == 204
    made = furnished.made_view()
    assert sent.by(furnished.http, key).status_code == 204
    assert furnished.http.get(furnished.view()).json() == made


def test_a_table_that_was_dropped_since_is_told_of_and_not_made_again(furnished: Space) -> None:
    sent, key = a_table(furnished), new_key()
    first = sent.by(furnished.http, key)
    furnished.http.delete(furnished.table("new"))
    assert told(sent.by(furnished.http, key)) == told(first)
    assert furnished.names("tables") == ["t"]


def test_a_commit_is_not_repeated_on_a_later_state(furnished: Space) -> None:
    sent, key = MUTATIONS["updateTable"](furnished), new_key()
    first = sent.by(furnished.http, key)
    later = furnished.commit(furnished.table(), set_properties(a="2")).json()
    assert told(sent.by(furnished.http, key)) == told(first)
    assert furnished.http.get(furnished.table()).json()["metadata"] == later["metadata"]


REFUSED: dict[str, tuple[Callable[[Space], Sent], int]] = {
    "a name that is taken": (lambda space: Sent("POST", space.at("views"), view_body("v")), 409),
    "a missing view": (lambda space: Sent("POST", space.view("x"), {"updates": []}), 404),
    "an unknown update": (lambda space: Sent("POST", space.view(), {"updates": [{"action": "x"}]}), 400),
    "a missing field": (lambda space: Sent("POST", space.view(), {}), 400),
    "a namespace in use": (lambda space: Sent("DELETE", space.at()), 409),
    "a contradiction": (
        lambda space: Sent("POST", space.at("properties"), {"updates": {"a": "1"}, "removals": ["a"]}),
        422,
    ),
}


def view_body(name: str) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "view-version": view_version()}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_final(furnished: Space, case: str) -> None:
    make, status = REFUSED[case]
    sent, key = make(furnished), new_key()
    first = sent.by(furnished.http, key)
    assert first.status_code == status, first.text
    assert told(sent.by(furnished.http, key)) == told(first)


def test_a_refusal_stays_when_its_reason_is_gone(furnished: Space) -> None:
    sent, key = Sent("POST", furnished.at("views"), view_body("v")), new_key()
    first = sent.by(furnished.http, key)
    assert first.status_code == 409
    furnished.http.delete(furnished.view())
    assert told(sent.by(furnished.http, key)) == told(first)
    assert sent.by(furnished.http, new_key()).status_code == 200


@pytest.mark.parametrize(
    "other",
    [
        lambda space: Sent("POST", space.view(), {"updates": [set_properties(a="2")]}),
        lambda space: Sent("POST", space.view("w"), {"updates": [set_properties(a="1")]}),
        lambda space: Sent("POST", space.table(), {"updates": [set_properties(a="1")]}),
        lambda space: Sent("DELETE", space.view()),
    ],
    ids=["another body", "another view", "another operation", "another method"],
)
def test_a_key_is_for_one_request(furnished: Space, other: Callable[[Space], Sent]) -> None:
    sent, key = Sent("POST", furnished.view(), {"updates": [set_properties(a="1")]}), new_key()
    first = sent.by(furnished.http, key)
    message = f"Idempotency-Key {key} was used for another request"
    check_error(other(furnished).by(furnished.http, key), 422, "UnprocessableEntityException", message)
    assert told(sent.by(furnished.http, key)) == told(first)
    assert furnished.names("views") == ["v"]


def test_options_in_the_query_make_another_request(furnished: Space) -> None:
    key = new_key()
    assert Sent("DELETE", furnished.table()).by(furnished.http, key).status_code == 204
    purge = Sent("DELETE", furnished.table() + "?purgeRequested=true").by(furnished.http, key)
    check_error(purge, 422, "UnprocessableEntityException")


def test_with_and_without_the_prefix_a_request_is_the_same(furnished: Space) -> None:
    key = new_key()
    first = Sent("DELETE", furnished.view()).by(furnished.http, key)
    again = Sent("DELETE", f"tidemill/{furnished.view()}").by(furnished.http, key)
    assert told(again) == told(first)


@pytest.mark.parametrize("operation", MUTATIONS)
def test_a_key_of_another_form_stops_the_request(furnished: Space, operation: str) -> None:
    sent = MUTATIONS[operation](furnished)
    answer = sent.by(furnished.http, "017f22e2-79b0-4cc3-98c4-dc0c0c07398f")
    check_error(answer, 400, "BadRequestException", "Idempotency-Key: must be a UUID of version 7")
    assert sent.by(furnished.http, new_key()).status_code in (200, 204)


@pytest.mark.parametrize("action", ["plan", "tasks"])
def test_planning_takes_no_key_of_another_form(furnished: Space, action: str) -> None:
    answer = Sent("POST", f"{furnished.table()}/{action}", {}).by(furnished.http, "mine")
    check_error(answer, 400, "BadRequestException", "Idempotency-Key: ")


def test_two_keys_stop_the_request(furnished: Space) -> None:
    headers = [("Idempotency-Key", new_key()), ("Idempotency-Key", new_key())]
    answer = furnished.http.delete(furnished.view(), headers=headers)
    check_error(answer, 400, "BadRequestException", "Idempotency-Key: is given 2 times")
    assert furnished.names("views") == ["v"]


def test_requests_without_a_key_are_carried_out_each_time(furnished: Space) -> None:
    assert furnished.http.delete(furnished.view()).status_code == 204
    assert furnished.http.delete(furnished.view()).status_code == 404
