"""Random requests to an Iceberg catalog: most could be a client's, some could not."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from tests.interop.iceberg.random_tables import NewTables, TableUpdates
from tests.interop.iceberg.random_views import ViewUpdates

Levels: TypeAlias = tuple[str, ...]
Name: TypeAlias = tuple[Levels, str]

NAMESPACES: Final[Sequence[Levels]] = (("a",), ("b b",), ("a", "c"))
NAMES: Final = ("x", "y", "z z")
JUNK: Final[Sequence[Any]] = (
    None,
    "x",
    "",
    0,
    1,
    -1,
    7,
    1.5,
    True,
    [],
    {},
    2**40,
    [1],
    {"a": 1},
    ["x"],
    "-1",
)


@dataclass(frozen=True)
class Request:
    """`<uuid>` in its body is the identity of its subject, `<place>` a directory: of each server its own."""

    operation: str
    method: str
    path: str
    body: Any = None
    subjects: Sequence[Name] = ()
    is_mangled: bool = False


@dataclass
class Seen:
    """What is there, as the server that is asked first tells it."""

    namespaces: set[Levels] = field(default_factory=set)
    tables: dict[Name, Mapping[str, Any]] = field(default_factory=dict)
    views: dict[Name, Mapping[str, Any]] = field(default_factory=dict)


class Histories:
    def __init__(self, rng: random.Random, seen: Seen, first_summary: Mapping[str, str]) -> None:
        self._rng = rng
        self._seen = seen
        self._first_summary = first_summary

    def next_request(self) -> Request:
        kinds = {
            self._create_table: 10 if len(self._seen.tables) > 2 else 60,
            self._create_view: 6 if len(self._seen.views) > 1 else 30,
            self._commit_table: 45,
            self._replace_view: 25,
            self._transaction: 6,
            self._create_by_commit: 4,
            self._drop: 4,
            self._rename: 4,
            self._namespace: 6,
            self._read: 4,
        }
        [make] = self._rng.choices(list(kinds), list(kinds.values()))
        request = make()
        if request.body is not None and self._rng.random() < 0.1:
            return self._mangled(request)
        return request

    def _namespace(self) -> Request:
        rng = self._rng
        levels = rng.choice(NAMESPACES)
        at = f"namespaces/{_segment(levels)}"
        match rng.choice((0, 0, 0, 1, 2, 3, 4, 4)):
            case 0:
                body = {"namespace": list(levels), "properties": {"p": "1"}}
                return Request("createNamespace", "POST", "namespaces", body)
            case 1:
                return Request("dropNamespace", "DELETE", at)
            case 2:
                return Request("loadNamespace", "GET", at)
            case 3:
                return Request("listNamespaces", "GET", f"namespaces?parent={_segment(levels)}")
            case _:
                keys = ("p", "q", "r")
                body = {
                    "removals": rng.sample(keys, rng.randrange(3)),
                    "updates": {key: str(rng.randrange(3)) for key in rng.sample(keys, rng.randrange(3))},
                }
                return Request("updateProperties", "POST", f"{at}/properties", body)

    def _create_table(self) -> Request:
        name = self._any_name()
        body = {"name": name[1], **NewTables(self._rng).description()}
        operation = "stageTable" if body.get("stage-create") else "createTable"
        return Request(operation, "POST", f"{_at(name[0])}/tables", body, (name,))

    def _create_view(self) -> Request:
        name = self._any_name()
        body = {"name": name[1], **ViewUpdates(self._rng, {}).description()}
        body["view-version"]["summary"] = dict(self._first_summary)
        return Request("createView", "POST", f"{_at(name[0])}/views", body, (name,))

    def _commit_table(self) -> Request:
        name = self._known(self._seen.tables)
        updates = TableUpdates(self._rng, self._seen.tables.get(name, {}), _now())
        body = {"requirements": updates.requirements(), "updates": updates.some()}
        return Request("updateTable", "POST", f"{_at(name[0])}/tables/{quote(name[1])}", body, (name,))

    def _create_by_commit(self) -> Request:
        """As clients do that have staged a table, and as they should not do."""
        name = self._any_name()
        body = NewTables(self._rng).creation()
        return Request("createByCommit", "POST", f"{_at(name[0])}/tables/{quote(name[1])}", body, (name,))

    def _replace_view(self) -> Request:
        name = self._known(self._seen.views)
        updates = ViewUpdates(self._rng, self._seen.views.get(name, {}))
        body = {"requirements": updates.requirements(), "updates": updates.some()}
        return Request("replaceView", "POST", f"{_at(name[0])}/views/{quote(name[1])}", body, (name,))

    def _transaction(self) -> Request:
        names = {self._known(self._seen.tables) for _ in range(self._rng.randrange(1, 4))}
        changes = []
        for name in sorted(names):
            updates = TableUpdates(self._rng, self._seen.tables.get(name, {}), _now())
            identifier = {"namespace": list(name[0]), "name": name[1]}
            # An identity would be that of the first of them.
            requirements = [one for one in updates.requirements() if "uuid" not in one]
            changes.append(
                {"identifier": identifier, "requirements": requirements, "updates": updates.some()}
            )
        body = {"table-changes": changes}
        return Request("commitTransaction", "POST", "transactions/commit", body, tuple(sorted(names)))

    def _drop(self) -> Request:
        kind = self._rng.choice(("table", "view"))
        name = self._known(self._seen.tables if kind == "table" else self._seen.views)
        return Request(
            f"drop{kind.title()}", "DELETE", f"{_at(name[0])}/{kind}s/{quote(name[1])}", None, (name,)
        )

    def _rename(self) -> Request:
        kind = self._rng.choice(("table", "view"))
        source = self._known(self._seen.tables if kind == "table" else self._seen.views)
        target = self._any_name()
        body = {
            "source": {"namespace": list(source[0]), "name": source[1]},
            "destination": {"namespace": list(target[0]), "name": target[1]},
        }
        return Request(f"rename{kind.title()}", "POST", f"{kind}s/rename", body, (source, target))

    def _read(self) -> Request:
        kind = self._rng.choice(("table", "view"))
        name = self._any_name()
        at = f"{_at(name[0])}/{kind}s"
        match self._rng.randrange(3):
            case 0:
                return Request(f"list{kind.title()}s", "GET", at)
            case 1:
                return Request(f"{kind}Exists", "HEAD", f"{at}/{quote(name[1])}")
            case _:
                return Request(f"load{kind.title()}", "GET", f"{at}/{quote(name[1])}?snapshots=refs")

    def _any_name(self) -> Name:
        return self._rng.choice(NAMESPACES), self._rng.choice(NAMES)

    def _known(self, there: Mapping[Name, object]) -> Name:
        if there and self._rng.random() < 0.97:
            return self._rng.choice(sorted(there))
        return self._any_name()

    def _mangled(self, request: Request) -> Request:
        """Something in the body is another thing, or is not there."""
        body = copy.deepcopy(request.body)
        holder, key = self._rng.choice(list(_places(body)))
        if isinstance(holder, dict) and self._rng.random() < 0.4:
            del holder[key]
        else:
            holder[key] = self._rng.choice(JUNK)
        return Request(request.operation, request.method, request.path, body, request.subjects, True)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Where in a body a value is."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, child in list(entries):
        found.append((value, key))
        if isinstance(child, dict | list):
            found += _places(child)
    return found


def _at(levels: Levels) -> str:
    return f"namespaces/{_segment(levels)}"


def _segment(levels: Levels) -> str:
    return "%1F".join(quote(level, safe="") for level in levels)


def _now() -> int:
    return int(time.time() * 1000)
