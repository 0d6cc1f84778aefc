"""What a foreign client said to the server, kept so that it can be said again without the client.

A recording is a file of JSON lines, one per request:

    call     method and target
    headers  those that a server may look at
    body     the request's body as text, or `binary`: compressed, in base64
    files    what the client wrote into the warehouse before this request, by path
    status   of the answer
    answer   its form: JSON with types for values (`s` text, `i` integer, `n` number, `b` boolean) and
             `[3, form]` for three of a form, or the schema and number of rows of Arrow data
    skipped  why the request cannot be said again, if it cannot

Values that differ from run to run are placeholders (`{root}`, `{secret}`, `{basic}`, `{token}`), or UUIDs
that the server made: an answer's form keeps each where it first appears, so that a replay learns which one
its own server made.
Requests that repeat the one before them, as clients do that wait for a job, are left out, and so is a read
that was answered with the same status before: the engines on Java ask for each table many times.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from tests.clients.proxy import Exchange, Message

UUID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
)
# Made by the server, and sent back to it as they are. Tokens of pages are names, which stay the same.
ECHOED: Final = frozenset({"e_tag", "plan-id", "plan-task"})
IGNORED_HEADERS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
MINTED: Final = "="
READS: Final = ("GET ", "HEAD ")
READS_THAT_POST: Final = ("/oauth/tokens", "/metrics")
ARROW: Final = "application/vnd.apache.arrow."
ROOT_LENGTH: Final = 160
# The path of the root in binary content, which has to keep its length.
STAND_IN: Final = b"/" + b"r" * (ROOT_LENGTH - 1)
LARGEST_FILE_BYTES: Final = 32_000
LARGEST_RECORDING_BYTES: Final = 300_000

Line = dict[str, Any]


class RecordingTooLarge(Exception):
    """The scenario should send less."""


def root_below(folder: Path) -> Path:
    """A root of always the same length: binary files that hold paths can then be changed in place."""
    place = folder.resolve()
    return place / ("r" * (ROOT_LENGTH - len(str(place)) - 1))


class Placeholders:
    """Texts of one server that another server has of its own."""

    def __init__(self, root: Path, client_id: str, secret: str) -> None:
        basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        place = str(root)
        # The longer ones first: a key of an object store is a path without its leading slash.
        self._texts = {
            "{basic}": basic,
            "{secret}": secret,
            "{root}": place,
            "{quoted root}": quote(place, safe=""),
            "{root key}": place.removeprefix("/"),
        }
        self.root = place.encode()
        self.tokens: list[str] = []

    def hide(self, text: str) -> str:
        for token in self.tokens:
            text = text.replace(token, "{token}")
        for placeholder, own in self._texts.items():
            text = text.replace(own, placeholder)
        return text

    def fill(self, text: str) -> str:
        if "{" not in text:
            return text
        for placeholder, own in self._texts.items():
            text = text.replace(placeholder, own)
        return text.replace("{token}", self.tokens[-1]) if self.tokens else text

    def learn(self, answer: Any) -> None:
        if isinstance(answer, dict) and isinstance(answer.get("access_token"), str):
            self.tokens.append(answer["access_token"])


def json_of(content_type: str, body: bytes) -> Any:
    """The body if it is JSON, else None."""
    return json.loads(body) if content_type.startswith("application/json") and body else None


def form(value: Any, seen: set[str], key: str = "") -> Any:
    """A value's types, with the UUIDs that nobody has mentioned yet."""
    match value:
        case dict():
            return {name: form(one, seen, name) for name, one in value.items()}
        case list():
            forms = [form(one, seen, key) for one in value]
            return [len(forms), forms[0]] if len(forms) > 2 and forms.count(forms[0]) == len(forms) else forms
        case str():
            found = set(UUID.findall(value)) - seen
            seen |= found
            return MINTED + value if found or key in ECHOED else "s"
        case bool():
            return "b"
        case int():
            return "i"
        case float():
            return "n"
        case _:
            return None


def answer_form(answer: Message, hide: Placeholders, seen: set[str]) -> Any:
    kind = answer.headers.get("content-type", "")
    if kind.startswith(ARROW):
        return arrow_form(kind, answer.body)
    parsed = json_of(kind, answer.body)
    hide.learn(parsed)
    if parsed is None:
        return kind or None
    return form(json.loads(hide.hide(json.dumps(parsed))), seen)


def arrow_form(kind: str, body: bytes) -> dict[str, Any]:
    opened = pa.ipc.open_file(body) if kind.startswith(f"{ARROW}file") else pa.ipc.open_stream(body)
    table = opened.read_all()
    return {"rows": table.num_rows, "columns": [f"{one.name}: {one.type}" for one in table.schema]}


@dataclass
class Recorder:
    """Listens to the proxy. A file that appears between an answer and the next request is the client's."""

    root: Path
    client_id: str
    secret: str
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._placeholders = Placeholders(self.root, self.client_id, self.secret)
        self._known: set[Path] = set()
        self._seen: set[str] = set()

    def asked(self) -> Mapping[Path, bytes | None]:
        with self._lock:
            return {path: _content(path) for path in self._new_files()}

    def answering(self) -> None:
        """The client has not seen the answer, so what is new by now is the server's."""
        with self._lock:
            self._new_files()

    def answered(self, what_was_asked: Mapping[Path, bytes | None], exchange: Exchange) -> None:
        with self._lock:
            line = self._line(what_was_asked, exchange)
            if line not in self.lines[-2:] and not self._is_known_read(line):
                self.lines.append(line)

    def _is_known_read(self, line: Line) -> bool:
        """Whether a read tells a replay nothing: neither files nor UUIDs, and a status that it had before."""
        call, status = line["call"], line["status"]
        is_read = call.startswith(READS) or call.endswith(READS_THAT_POST)
        if not is_read or "files" in line or f'"{MINTED}' in json.dumps(line["answer"]):
            return False
        return any(earlier["call"] == call and earlier["status"] == status for earlier in self.lines)

    def _new_files(self) -> list[Path]:
        found = {path for path in (self.root / "warehouse").rglob("*") if path.is_file()}
        new, self._known = found - self._known, found
        return sorted(new)

    def _line(self, files: Mapping[Path, bytes | None], exchange: Exchange) -> Line:
        request, hide = exchange.request, self._placeholders.hide
        # Before the request is written down: a request with a token comes after the answer that gave it.
        headers = {
            name: hide(value) for name, value in request.headers.items() if name not in IGNORED_HEADERS
        }
        line: Line = {"call": f"{exchange.method} {hide(exchange.target)}", "headers": headers}
        line |= _written_body(request.body, self._placeholders)
        if files:
            line["files"] = {
                hide(str(path)): _written_file(content, self._placeholders) for path, content in files.items()
            }
        self._seen |= set(UUID.findall(json.dumps(line)))
        line["status"] = exchange.answer.status
        line["answer"] = answer_form(exchange.answer, self._placeholders, self._seen)
        return line

    def write(self, path: Path) -> None:
        text = "".join(f"{_compact(line)}\n" for line in self.lines)
        if self.secret in text or any(token in text for token in self._placeholders.tokens):
            raise AssertionError("the recording holds a secret")
        if len(text.encode()) > LARGEST_RECORDING_BYTES:
            raise RecordingTooLarge(f"{path.name}: {len(text.encode())} bytes")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _compact(line: Line) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _content(path: Path) -> bytes | None:
    """None for a large file, and for one that is gone already."""
    try:
        return path.read_bytes() if path.stat().st_size <= LARGEST_FILE_BYTES else None
    except FileNotFoundError:
        return None


def _written_body(body: bytes, placeholders: Placeholders) -> Line:
    if not body:
        return {}
    try:
        return {"body": placeholders.hide(body.decode())}
    except UnicodeDecodeError:
        return {"binary": packed(body.replace(placeholders.root, STAND_IN))}


def _written_file(content: bytes | None, placeholders: Placeholders) -> Line | None:
    return None if content is None else _written_body(content, placeholders)


def packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
