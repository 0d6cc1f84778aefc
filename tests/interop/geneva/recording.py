"""Records what Geneva's client sends while its scenarios run, for `tests/protocol/test_recorded_geneva.py`.

The client talks to a proxy, which passes everything on. Kept are the requests about functions, columns, views
and jobs, with the status and the form of each answer; a table that the client writes is kept as its first
rows. Requests that say the same as one before, but for names and code, are left out, and so are scenarios
without anything new. `{t1}` stands for a name, and `{text1}` for a long text, which is a compressed line of
its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import http.client
import json
import re
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa

KEPT: Final = re.compile(
    r"/v1/(table/(?!__system)[^/]+/(declare|add_columns|alter_columns|drop_columns|drop|backfill_column)"
    r"|materialized_view/[^/]+/(create|refresh))"
)
JOBS: Final = ("/refresh", "/backfill_column")
NAMED: Final = re.compile(r"\{t\d+\}")
NAME: Final = re.compile(r"\bt[0-9a-f]{10}\b")
LONG_TEXT: Final = re.compile(r"[A-Za-z0-9+/=]{200,}")
# They differ from run to run, and say nothing else than the envelope.
CHECKSUMS: Final = frozenset({"udtf_sha", "udtf_version", "udf_version", "udf_checksum", "udf"})
HOP_BY_HOP: Final = frozenset({"host", "connection", "transfer-encoding", "content-length", "date", "server"})
MOST_ROWS: Final = 50
# Pickles of named tuples tell where Python is; it has to be a path of the same length.
OWN_PLACE: Final = sys.base_prefix.encode()
NEUTRAL_PLACE: Final = (b"/usr" + b"/." * (len(OWN_PLACE) // 2 - 2)).ljust(len(OWN_PLACE), b"/")
PROXY_SECONDS: Final = 300

Line = dict[str, Any]


class Recorder:
    """`scenario_file` is where the client writes the title of the scenario it is at."""

    def __init__(self, scenario_file: Path) -> None:
        self._scenario_file = scenario_file
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._unwritten: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._columns: set[str] = set()
        self._lines: list[Line] = []

    def note(self, call: str, body: bytes, status: int, answer: bytes) -> None:
        path = call.partition(" ")[2].partition("?")[0]
        if KEPT.fullmatch(path) is None:
            return
        with self._lock:
            self._note_rows()
            title = self._scenario_file.read_text()
            if path.endswith("/declare"):
                self._unwritten[NAME.findall(path)[0]] = json.loads(answer)["location"]
                return
            line = {"call": f"POST {path}", "body": json.loads(body or b"{}"), "status": status}
            if not self._is_replayable(path, line["body"]):
                return
            line["answer"] = _form(status, json.loads(answer or b"{}"))
            self._lines.append({"scenario": title, **json.loads(self._hidden(neutral(json.dumps(line))))})

    def _is_replayable(self, path: str, body: Line) -> bool:
        """Not a column that comes a second time: the client has dropped the first one in its own commit."""
        added = {f"{path} {column['name']}" for column in body.get("new_columns", ())}
        is_new = not added & self._columns
        self._columns |= added
        return is_new

    def _note_rows(self) -> None:
        """Of the tables that were written since the last request."""
        for name, location in list(self._unwritten.items()):
            rows = lance.dataset(location, version=1).to_table()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows.slice(0, MOST_ROWS))
            line = {"rows": self._hidden(name), "arrow": base64.b64encode(sink.getvalue()).decode()}
            self._lines.append({"scenario": self._scenario_file.read_text(), **line})
            del self._unwritten[name]

    def _hidden(self, text: str) -> str:
        def named(found: re.Match[str]) -> str:
            return self._names.setdefault(found[0], f"{{t{len(self._names) + 1}}}")

        def kept(found: re.Match[str]) -> str:
            return self._texts.setdefault(found[0], f"{{text{len(self._texts) + 1}}}")

        return LONG_TEXT.sub(kept, NAME.sub(named, text))

    def write(self, path: Path) -> None:
        lines = [line for scenario in self._new_scenarios() for line in scenario]
        used = json.dumps(lines)
        texts = [{"text": name, "is": packed(text)} for text, name in self._texts.items() if name in used]
        written = (json.dumps(line, separators=(",", ":")) + "\n" for line in [*texts, *lines])
        path.write_text("".join(written))

    def _new_scenarios(self) -> Iterator[list[Line]]:
        """Each up to its last request of a kind that was not there before."""
        seen: set[str] = set()
        for title in dict.fromkeys(line["scenario"] for line in self._lines):
            kept: list[Line] = []
            end = 0
            for line in (line for line in self._lines if line["scenario"] == title):
                signature = json.dumps([self._kind(line), _signature(line)])
                is_new = "rows" not in line and signature not in seen
                if is_new or not line.get("call", "").endswith(JOBS):
                    kept.append(line)
                seen.add(signature)
                end = len(kept) if is_new else end
            if end:
                yield kept[:end]

    def _kind(self, line: Line) -> str | None:
        """Of the view that a request is about."""
        name = NAMED.findall(line.get("call", ""))
        if "kind" in line.get("body", {}):
            self._kinds[name[0]] = line["body"]["kind"]
        return self._kinds.get(name[0]) if name else None


def neutral(text: str) -> str:
    """Without the place of this machine's Python in any pickle, and with the checksums that follow."""
    for found in set(LONG_TEXT.findall(text)):
        try:
            content = base64.b64decode(found, validate=True)
        except binascii.Error:
            continue
        is_json = content.startswith(b"{")
        changed = neutral(content.decode()).encode() if is_json else content.replace(OWN_PLACE, NEUTRAL_PLACE)
        if changed != content:
            again = base64.b64encode(changed).decode()
            text = text.replace(found, again).replace(_sha(found.encode()), _sha(again.encode()))
            text = text.replace(_sha(content), _sha(changed))
    return text


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    return zlib.decompress(base64.b64decode(text)).decode()


def _form(status: int, answer: Any) -> Any:
    """The keys; of an error its code and the field in front of its message."""
    if status < 400:
        return sorted(answer)
    return {"code": answer["code"], "field": answer["error"].partition(":")[0]}


def _signature(value: Any, key: str = "") -> Any:
    """The line without what differs from scenario to scenario."""
    if isinstance(value, dict):
        return {name: _signature(one, name) for name, one in value.items() if name != "scenario"}
    if isinstance(value, list):
        return [_signature(one, key) for one in value]
    if key == "source_query":
        return _signature(json.loads(value))
    if isinstance(value, str):
        return None if key in CHECKSUMS else re.sub(r"\{(t|text)\d+\}", "{}", value)
    return None if key == "read_version" else value


@contextmanager
def recording(server_url: str, recorder: Recorder) -> Iterator[str]:
    """The address of a proxy in front of the server."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self._body()
            server = http.client.HTTPConnection(server_url.partition("//")[2], timeout=PROXY_SECONDS)
            headers = {key: one for key, one in self.headers.items() if key.lower() not in HOP_BY_HOP}
            server.request(self.command, self.path, body, headers)
            answer = server.getresponse()
            content = answer.read()
            recorder.note(f"{self.command} {self.path}", body, answer.status, content)
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in HOP_BY_HOP:
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            server.close()

        do_GET = do_POST = pass_on

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            chunks = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
