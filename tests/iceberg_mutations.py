"""Mutations of the Iceberg protocol, each with a way to count how often it has happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import httpx

from tests.faulty_database import Fault, Faults
from tests.iceberg_requests import new_key, new_table, new_view, number_of, with_properties, with_version

BASE: Final = "/iceberg/v1"

Send: TypeAlias = Callable[[], httpx.Response]


@dataclass(frozen=True)
class Lake:
    """A catalog over HTTP, the faults of its database, and a namespace with tables t and u and a view v."""

    http: httpx.Client
    faults: Faults
    name: str

    def prepare(self) -> None:
        self._made("/namespaces", {"namespace": [self.name]})
        for table in ("t", "u"):
            self._made(f"{self.at}/tables", new_table(table))
        self._made(f"{self.at}/views", new_view("v"))

    @property
    def at(self) -> str:
        return f"/namespaces/{self.name}"

    def find(self, what: str) -> dict[str, Any] | None:
        answer = self.http.get(f"{BASE}{self.at}/{what}")
        assert answer.status_code in (200, 404), answer.text
        return dict(answer.json()) if answer.status_code == 200 else None

    def number(self, what: str) -> int:
        found = self.find(what)
        assert found is not None
        return number_of(found["metadata-location"])

    def check_files(self) -> set[Path]:
        """Every state that the catalog serves is in storage; gives the files, those of old states too."""
        named: set[Path] = set()
        for kind in ("tables", "views"):
            listed = self.http.get(f"{BASE}{self.at}/{kind}").json()["identifiers"]
            for identifier in listed:
                found = self.find(f"{kind}/{identifier['name']}")
                assert found is not None
                log = found["metadata"].get("metadata-log") or ()
                states = [found["metadata-location"], *(entry["metadata-file"] for entry in log)]
                files = {Path(unquote(urlsplit(state).path)) for state in states}
                assert all(file.exists() for file in files), files
                named |= files
        return named

    def ident(self, name: str) -> dict[str, Any]:
        return {"namespace": [self.name], "name": name}

    def _made(self, path: str, body: Any) -> None:
        answer = self.http.post(f"{BASE}{path}", json=body)
        assert answer.status_code == 200, answer.text


@dataclass(frozen=True)
class Mutation:
    method: str
    path: Callable[[Lake], str]
    body: Callable[[Lake], Any]
    times: Callable[[Lake], int]

    def request(self, lake: Lake, *, keyed: bool) -> Send:
        """One request that can be sent again and again: body and key stay the same."""
        url, body = f"{BASE}{self.path(lake)}", self.body(lake)
        headers = {"Idempotency-Key": new_key()} if keyed else {}
        return lambda: lake.http.request(self.method, url, json=body, headers=headers)


def _transaction(lake: Lake) -> dict[str, Any]:
    changes = [{"identifier": lake.ident(name), **with_properties(p="x")} for name in ("t", "u")]
    return {"table-changes": changes}


def _times_of_both(lake: Lake) -> int:
    both = {lake.number("tables/t"), lake.number("tables/u")}
    assert len(both) == 1, "one table was committed without the other"
    return both.pop()


def _renaming(source: str) -> Callable[[Lake], Any]:
    return lambda lake: {"source": lake.ident(source), "destination": lake.ident("renamed")}


def _is_there(what: str) -> Callable[[Lake], int]:
    return lambda lake: int(lake.find(what) is not None)


def _is_gone(what: str) -> Callable[[Lake], int]:
    return lambda lake: int(lake.find(what) is None)


def _is_renamed(kind: str, source: str) -> Callable[[Lake], int]:
    def times(lake: Lake) -> int:
        found = [lake.find(f"{kind}/{name}") is not None for name in (source, "renamed")]
        assert sum(found) == 1, "a name is lost or doubled"
        return int(found[1])

    return times


def _nothing(lake: Lake) -> None:
    return None


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "createTable": Mutation(
        "POST", lambda lake: f"{lake.at}/tables", lambda _: new_table("new"), _is_there("tables/new")
    ),
    "updateTable": Mutation(
        "POST",
        lambda lake: f"{lake.at}/tables/t",
        lambda _: with_properties(p="x"),
        lambda lake: lake.number("tables/t"),
    ),
    "commitTransaction": Mutation("POST", lambda _: "/transactions/commit", _transaction, _times_of_both),
    "createView": Mutation(
        "POST", lambda lake: f"{lake.at}/views", lambda _: new_view("new"), _is_there("views/new")
    ),
    "replaceView": Mutation(
        "POST",
        lambda lake: f"{lake.at}/views/v",
        lambda _: with_version("SELECT 2"),
        lambda lake: lake.number("views/v"),
    ),
    "dropTable": Mutation("DELETE", lambda lake: f"{lake.at}/tables/t", _nothing, _is_gone("tables/t")),
    "dropView": Mutation("DELETE", lambda lake: f"{lake.at}/views/v", _nothing, _is_gone("views/v")),
    "renameTable": Mutation("POST", lambda _: "/tables/rename", _renaming("t"), _is_renamed("tables", "t")),
    "renameView": Mutation("POST", lambda _: "/views/rename", _renaming("v"), _is_renamed("views", "v")),
}


def check_found_out(lake: Lake, name: str, fault: Fault, *, keyed: bool) -> None:
    """The database answers again at once: the client learns that it was done, and it was done once."""
    mutation = MUTATIONS[name]
    send = mutation.request(lake, keyed=keyed)
    lake.faults.fail_commit(fault)
    answer = send()
    assert lake.faults.count == 1
    assert answer.is_success, answer.text
    assert mutation.times(lake) == 1
    lake.check_files()
    if keyed:
        _check_replay(lake, mutation, send, answer)


def check_unknown(lake: Lake, name: str, fault: Fault, *, keyed: bool) -> None:
    """The database stays away: the client learns that nobody knows, and with a key what it was later on."""
    mutation = MUTATIONS[name]
    send = mutation.request(lake, keyed=keyed)
    lake.faults.fail_commit(fault, stays_down=True)
    answer = send()
    assert lake.faults.count == 1
    assert answer.status_code == 500, answer.text
    assert answer.json()["error"]["type"] == "CommitStateUnknownException"
    assert "retry-after" not in answer.headers
    lake.faults.recover()
    assert mutation.times(lake) == (1 if fault is Fault.AFTER else 0)
    lake.check_files()
    if keyed:
        first = send()
        assert first.is_success, first.text
        assert mutation.times(lake) == 1
        _check_replay(lake, mutation, send, first)
        lake.check_files()


def _check_replay(lake: Lake, mutation: Mutation, send: Send, first: httpx.Response) -> None:
    again = send()
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert mutation.times(lake) == 1
