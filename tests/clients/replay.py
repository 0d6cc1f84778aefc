"""Says again what a client said, to a fresh server in this process, and compares the answers.

Statuses have to be the same, and so do the keys, types and lengths of JSON, and the schema and number of rows
of Arrow data. The checks of both specifications apply to every answer. UUIDs that the server made when the
requests were recorded are replaced, in later requests and in files, by those it makes now.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from tests.clients.recording import (
    ARROW,
    ECHOED,
    MINTED,
    STAND_IN,
    UUID,
    Line,
    Placeholders,
    arrow_form,
    form,
    json_of,
    root_below,
    unpacked,
)
from tests.specification.answers import ICEBERG_PROTOCOL, LANCE_PROTOCOL, checking
from tidemill.protocols.app import create_app
from tidemill.protocols.http.call import Limits
from tidemill.protocols.lance.requests import is_lancedb
from tidemill.server.bootstrap import build_operations, open_adapters
from tidemill.server.health import WorkerState
from tidemill.server.settings import load_settings

CLIENT_ID: Final = "foreign"
SECRET: Final = "the-secret-of-a-replay-is-no-secret"
# Each pass finds the first request that cannot be said again; then all that are left are named at once.
PASSES: Final = 12


class NoWorkers:
    def state(self) -> WorkerState:
        return "absent"


@contextmanager
def fresh_server(root: Path) -> Iterator[httpx.Client]:
    settings = load_settings(root=root, clients={CLIENT_ID: {"secret": SECRET}})
    adapters = open_adapters(settings)
    operations = build_operations(adapters, NoWorkers(), lambda: None)
    app = create_app(operations, Limits(), adapters.authentication.caller_of)
    with TestClient(app, raise_server_exceptions=False) as http:
        http.event_hooks = {"response": [_check]}
        yield http
    adapters.store.close()


def _check(answer: httpx.Response) -> None:
    """Answers in lancedb's own dialect have more than is specified."""
    if not is_lancedb(Headers(answer.request.headers)):
        checking(LANCE_PROTOCOL, ICEBERG_PROTOCOL)(answer)


def read_recording(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def not_replayed(lines: Iterable[Line]) -> list[str]:
    return [f"{line['call']}: {line['skipped']}" for line in lines if "skipped" in line]


def drop_unread_files(lines: list[Line]) -> None:
    """Leaves out the files that the server does not look at, by kind: most data files, many manifests."""
    for kind in sorted({_kind(path) for line in lines for path in line.get("files", {})}):
        without = [_without(line, kind) for line in lines]
        with tempfile.TemporaryDirectory(prefix="tidemill-replay-") as folder:
            if not any(replayed(without, Path(folder))):
                lines[:] = without


def _kind(path: str) -> str:
    """`.manifest` also for a staged one, which ends in a UUID."""
    return Path(path).suffix.partition("-")[0]


def _without(line: Line, kind: str) -> Line:
    files = {path: one for path, one in line.get("files", {}).items() if _kind(path) != kind}
    return {key: one for key, one in line.items() if key != "files"} | ({"files": files} if files else {})


def mark_what_cannot_be_replayed(lines: list[Line]) -> None:
    """Notes the reason with each request whose answer differs where there is neither worker nor client."""
    for attempt in range(PASSES):
        with tempfile.TemporaryDirectory(prefix="tidemill-replay-") as folder:
            problems = replayed(lines, Path(folder))
            for number, problem in problems:
                lines[number]["skipped"] = problem
                if attempt < PASSES - 1:
                    break
            else:
                if attempt < PASSES - 1:
                    return


def replayed(lines: list[Line], folder: Path) -> Iterator[tuple[int, str]]:
    """The number of each request that is answered differently, with the difference."""
    root = root_below(folder)
    with fresh_server(root) as http:
        replay = Replay(http, root)
        for number, line in enumerate(lines):
            if "skipped" not in line:
                problem = replay.problem(line)
                if problem is not None:
                    yield number, problem


class Replay:
    def __init__(self, http: httpx.Client, root: Path) -> None:
        self._http = http
        self._placeholders = Placeholders(root, CLIENT_ID, SECRET)
        self._now: dict[str, str] = {}

    def problem(self, line: Line) -> str | None:
        for path, content in line.get("files", {}).items():
            self._write(Path(self._filled(path)), content)
        try:
            answer = self._ask(line)
        except AssertionError as error:
            return str(error)
        if answer.status_code != line["status"]:
            said = UUID.sub("...", self._placeholders.hide(answer.text))
            return f"answered {answer.status_code} instead of {line['status']}: {said:.300}"
        return next(self._differences(line["answer"], answer), None)

    def _ask(self, line: Line) -> httpx.Response:
        method, _, target = line["call"].partition(" ")
        headers = {name: self._filled(value) for name, value in line["headers"].items()}
        return self._http.request(method, self._filled(target), headers=headers, content=self._bytes(line))

    def _bytes(self, written: Line) -> bytes:
        if "binary" in written:
            return unpacked(written["binary"])
        return self._filled(written.get("body", "")).encode()

    def _write(self, path: Path, content: Line | None) -> None:
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._own(self._bytes(content)) if "binary" in content else self._bytes(content))

    def _own(self, content: bytes) -> bytes:
        """Binary content with the root and the UUIDs of this server; they have the same lengths."""
        content = content.replace(STAND_IN, self._placeholders.root)
        for recorded, now in self._now.items():
            content = content.replace(recorded.encode(), now.encode())
        return content

    def _filled(self, text: str) -> str:
        text = self._placeholders.fill(text)
        for recorded, now in self._now.items():
            if recorded in text:
                text = text.replace(recorded, now)
        return text

    def _differences(self, expected: Any, answer: httpx.Response) -> Iterator[str]:
        kind = answer.headers.get("content-type", "")
        if kind.startswith(ARROW):
            yield from _unequal(expected, arrow_form(kind, answer.content), "Arrow")
            return
        parsed = json_of(kind, answer.content)
        if parsed is None:
            yield from _unequal(expected, kind or None, "the kind of answer")
            return
        self._placeholders.learn(parsed)
        yield from self._compare(expected, json.loads(self._placeholders.hide(json.dumps(parsed))), "")

    def _compare(self, expected: Any, found: Any, place: str) -> Iterator[str]:
        if isinstance(expected, dict) and isinstance(found, dict):
            yield from _unequal(sorted(expected), sorted(found), f"keys of {place or 'the answer'}")
            for key in expected.keys() & found.keys():
                yield from self._compare(expected[key], found[key], f"{place}.{key}")
        elif isinstance(expected, list) and isinstance(found, list):
            forms = _spread(expected)
            yield from _unequal(len(forms), len(found), f"length of {place or 'the answer'}")
            for number, (one, other) in enumerate(zip(forms, found, strict=False)):
                yield from self._compare(one, other, f"{place}[{number}]")
        elif isinstance(expected, str) and expected.startswith(MINTED) and isinstance(found, str):
            self._learn(expected.removeprefix(MINTED), found, place.rpartition(".")[2])
        else:
            yield from _unequal(expected, form(found, set(UUID.findall(str(found)))), place)

    def _learn(self, recorded: str, found: str, key: str) -> None:
        pairs = zip(UUID.findall(recorded), UUID.findall(found), strict=False)
        self._now |= {one: other for one, other in pairs if one != other}
        if key in ECHOED and recorded != found:
            self._now[recorded] = found


def _spread(expected: list[Any]) -> list[Any]:
    """`[3, form]` stands for three of that form."""
    if len(expected) == 2 and isinstance(expected[0], int):
        return [expected[1]] * expected[0]
    return expected


def _unequal(expected: Any, found: Any, what: str) -> Iterator[str]:
    if expected != found:
        yield f"{what}: {found} instead of {expected}"[:600]
