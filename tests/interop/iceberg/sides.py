"""Iceberg's own server and ours, asked the same, and their answers in a form that can be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from tests.conftest import start_server
from tests.interop.iceberg.histories import Levels, Name, Request
from tests.interop.iceberg.reference_server import running_reference_server

TIMEOUT_SECONDS: Final = 10.0
FILE_NAME: Final = re.compile(r".*/(\d{5})-[0-9a-f-]{36}((?:\.gz)?\.metadata\.json)")
TIMES: Final = frozenset({"timestamp-ms", "last-updated-ms"})
IDENTITIES: Final = frozenset({"table-uuid", "view-uuid"})
FILES: Final = frozenset({"metadata-location", "metadata-file"})
# The reference writes types, directions and transforms anew; ours keeps the client's spelling.
TYPE_KEYS: Final = frozenset({"type", "element", "key", "value", "transform", "direction", "null-order"})
# Made anew by every server; the reference has no labels.
NOT_COMPARED: Final = frozenset({"config", "storage-credentials", "next-page-token", "created-at", "labels"})
# The reference does not write what is the same as nothing.
LEFT_OUT: Final[Sequence[tuple[str, Any]]] = (
    ("sequence-number", 0),
    ("identifier-field-ids", []),
    ("encryption-keys", []),
)
NO_ANSWER: Final = 504


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any

    @property
    def error(self) -> tuple[str, str]:
        """Its type and message."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return (error.get("type", ""), error.get("message", "")) if isinstance(error, dict) else ("", "")


@dataclass
class Side:
    """One of the two servers."""

    http: httpx.Client
    place: str
    # Jetty takes no control characters, and the reference another separator.
    separator: str = "%1F"
    identities: dict[Name, str] = field(default_factory=dict)

    def ask(self, request: Request) -> Answer:
        return self.send(request.method, request.path, self._filled_in(request))

    def send(self, method: str, path: str, body: Any = None) -> Answer:
        content = None if body is None else json.dumps(body)
        try:
            answer = self.http.request(
                method,
                path.replace("%1F", self.separator),
                content=content,
                headers={"content-type": "application/json"},
            )
        except httpx.ReadTimeout:
            # The reference tries some commits again that can never succeed.
            return Answer(NO_ANSWER, None)
        try:
            told = answer.json() if answer.content else None
        except json.JSONDecodeError:
            told = answer.text
        return Answer(answer.status_code, told)

    def state(self, name: Name) -> tuple[str, Mapping[str, Any]] | None:
        """What the name stands for, in the words of this side."""
        at = path_of(name[0])
        for kind in ("tables", "views"):
            found = self.send("GET", f"{at}/{kind}/{quote(name[1])}")
            if found.status == 200:
                metadata = found.body["metadata"]
                self.identities[name] = metadata["table-uuid" if kind == "tables" else "view-uuid"]
                return kind, found.body
        return None

    def forget(self, name: Name) -> None:
        at = path_of(name[0])
        for kind in ("tables", "views"):
            self.send("DELETE", f"{at}/{kind}/{quote(name[1])}")

    def empty(self, levels: Levels = ()) -> None:
        """The reference makes namespaces with empty names, and has no path for them: what holds one stays."""
        parent = f"?parent={path_of(levels).removeprefix('namespaces/')}" if levels else ""
        for child in self._listed(f"namespaces{parent}", "namespaces"):
            if all(child):
                self.empty(tuple(child))
        if not levels:
            return
        for kind in ("tables", "views"):
            for entry in self._listed(f"{path_of(levels)}/{kind}", "identifiers"):
                self.forget((levels, entry["name"]))
        self.send("DELETE", path_of(levels))
        left = self.send("GET", path_of(levels))
        if left.status == 200:
            removals = [key for key in left.body["properties"] if key != "location"]
            self.send("POST", f"{path_of(levels)}/properties", {"removals": removals})

    def _listed(self, path: str, key: str) -> list[Any]:
        answer = self.send("GET", path)
        return list(answer.body[key]) if answer.status == 200 else []

    def neutral(self, value: Any, key: str = "") -> Any:
        """Without what differs from server to server; null and absent are the same."""
        if isinstance(value, dict):
            return {
                name: self.neutral(child, name)
                for name, child in value.items()
                if child is not None and name not in NOT_COMPARED and (name, child) not in LEFT_OUT
            }
        if isinstance(value, list):
            return sorted((self.neutral(child) for child in value), key=_place_in_list)
        if key in TIMES or key in IDENTITIES:
            return f"<{key}>"
        if key in FILES and (found := FILE_NAME.fullmatch(value)):
            return f"<directory>/{found[1]}-<uuid>{found[2]}"
        if isinstance(value, str) and self.place in value:
            return value.replace(self.place, "<place>")
        if key in TYPE_KEYS and isinstance(value, str):
            return value.replace(" ", "").lower()
        return "<own>" if key == "location" else value

    def _filled_in(self, request: Request) -> Any:
        if request.body is None:
            return None
        identity = self.identities.get(request.subjects[0], "none") if request.subjects else "none"
        text = json.dumps(request.body).replace("<uuid>", identity).replace("<UUID>", identity.upper())
        return json.loads(text.replace("<place>", self.place))


def path_of(levels: Levels) -> str:
    return f"namespaces/{'%1F'.join(quote(level, safe='') for level in levels)}"


def _place_in_list(value: Any) -> int:
    """Versions of views and files of statistics have no order; all else stays where it is."""
    if not isinstance(value, dict):
        return 0
    has_id = {"version-id": "representations", "snapshot-id": "statistics-path"}
    return next((value[key] for key, mark in has_id.items() if mark in value), 0)


def in_order(value: Any) -> Any:
    """Listings have no order."""
    if isinstance(value, dict) and value.keys() <= {
        "identifiers",
        "namespaces",
        "updated",
        "removed",
        "missing",
    }:
        return {key: sorted(entries or [], key=json.dumps) for key, entries in value.items()}
    return value


def unlike(reference: Any, ours: Any, at: str = "") -> str | None:
    """Where two JSON values differ first."""
    if isinstance(reference, dict) and isinstance(ours, dict):
        for key in sorted(reference.keys() | ours.keys()):
            if key not in reference or key not in ours:
                return f"{at}.{key}: {reference.get(key, 'absent')!r} != {ours.get(key, 'absent')!r}"
            if (found := unlike(reference[key], ours[key], f"{at}.{key}")) is not None:
                return found
        return None
    if isinstance(reference, list) and isinstance(ours, list) and len(reference) == len(ours):
        pairs = enumerate(zip(reference, ours, strict=True))
        return next((found for i, pair in pairs if (found := unlike(*pair, f"{at}[{i}]")) is not None), None)
    is_same = reference == ours and type(reference) is type(ours)
    return None if is_same else f"{at}: {reference!r:.300} != {ours!r:.300}"


@contextmanager
def both_servers(folder: Path) -> Iterator[tuple[Side, Side]]:
    places = [folder / "reference-files", folder / "our-files"]
    for place in places:
        place.mkdir()
    allowed = json.dumps([str(places[1])])
    with running_reference_server(folder / "reference") as reference:
        server = start_server(folder / "lake", "--no-worker", TIDEMILL_ALLOWED_LOCATIONS=allowed)
        try:
            with (
                httpx.Client(base_url=f"{reference.url}/v1", timeout=TIMEOUT_SECONDS) as theirs,
                httpx.Client(base_url=f"{server.url}/iceberg/v1", timeout=TIMEOUT_SECONDS) as ours,
            ):
                yield Side(theirs, f"file://{places[0]}", "%2E"), Side(ours, f"file://{places[1]}")
        finally:
            server.stop()
