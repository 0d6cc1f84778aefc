"""An S3 that fails: an HTTP proxy before the object store that injects faults by rules.

    server under test ──► FaultyStore.store  ──► rules ─┐
    other writers     ──► FaultyStore.direct ───────────┴──► moto

Both ports of the proxy send puts to moto one at a time: moto looks for the object and writes it in two steps,
and two conditional puts at the same moment would both succeed. So a writer that competes for a key with the
server under test has to use one of the two ports, not moto itself.

Requests are signed for the proxy's address and passed on as they are; moto does not verify signatures.
"""

from __future__ import annotations

import re
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Event, Lock, Thread
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.object_store import ObjectStore

UPSTREAM_SECONDS: Final = 60
HOP_BY_HOP: Final = frozenset({"connection", "content-length", "expect", "keep-alive", "transfer-encoding"})
ERROR: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{code}</Message></Error>'
)


class Fault(Enum):
    SLOW_DOWN = "503 SlowDown, not forwarded"
    PRECONDITION_FAILED = "412 PreconditionFailed, not forwarded"
    CONDITIONAL_CONFLICT = "409 ConditionalRequestConflict, not forwarded"
    NOT_IMPLEMENTED = "501 NotImplemented, not forwarded"
    LOST_REQUEST = "connection dropped, not forwarded"
    LOST_RESPONSE = "forwarded, then connection dropped"
    TRUNCATED = "forwarded, half of the body, then connection dropped"
    DELAY = "forwarded after a pause"
    HANG = "no answer until the client gives up, not forwarded"
    OVERTAKEN = "forwarded after somebody else did something"


ANSWERS: Final = {
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.PRECONDITION_FAILED: (412, "PreconditionFailed"),
    Fault.CONDITIONAL_CONFLICT: (409, "ConditionalRequestConflict"),
    Fault.NOT_IMPLEMENTED: (501, "NotImplemented"),
}


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def key(self) -> str:
        """Bucket and key; for a listing, bucket and prefix."""
        path, _, query = self.target.partition("?")
        [prefix] = parse_qs(query).get("prefix", [""])
        return "/".join(part for part in (unquote(path).strip("/"), prefix) if part)

    @property
    def is_conditional(self) -> bool:
        return any(name.lower() == "if-none-match" for name, _ in self.headers)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    def encoded(self, method: str) -> bytes:
        """All of it at once: small packets one after the other wait for acknowledgements."""
        lines = [f"HTTP/1.1 {self.status} -", *(f"{name}: {value}" for name, value in self.headers)]
        if method != "HEAD":
            lines.append(f"Content-Length: {len(self.body)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head if method == "HEAD" else head + self.body


@dataclass
class Rule:
    """Which requests fail, and how. `skip` and `times` pick the n-th of those that match."""

    fault: Fault
    methods: Collection[str] = ()
    key: str = ""
    only_conditional: bool = False
    probability: float = 1.0
    skip: int = 0
    times: int | None = None
    seconds: float = 0.0
    meanwhile: Callable[[], object] | None = None
    matched: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)

    def matches(self, request: Request) -> bool:
        return (
            (not self.methods or request.method in self.methods)
            and (request.is_conditional or not self.only_conditional)
            and (request.method == "GET" or self.fault is not Fault.TRUNCATED)
            and re.search(self.key, request.key) is not None
        )

    def fires(self, random: Random) -> bool:
        self.matched += 1
        is_due = self.matched > self.skip and (self.times is None or self.fired < self.times)
        if not is_due or random.random() >= self.probability:
            return False
        self.fired += 1
        return True


class FaultyStore:
    """The rules in force, what they have done, and the requests they saw. Used from many threads."""

    def __init__(self, upstream: ObjectStore) -> None:
        self._host = urlsplit(upstream.endpoint).netloc
        self._random = Random()
        self._lock = Lock()
        self._puts = Lock()
        self._rules: Sequence[Rule] = ()
        self._healed = Event()
        self.injected: Counter[Fault] = Counter()
        self.requests: list[Request] = []
        self.store = upstream
        self.direct = upstream

    @contextmanager
    def failing(self, *rules: Rule, seed: int = 0) -> Iterator[None]:
        """Injects faults while the block runs; the counters and the random numbers start again with it."""
        with self._lock:
            self._random.seed(seed)
            self.injected.clear()
            self.requests.clear()
            self._healed.clear()
            self._rules = rules
        try:
            yield
        finally:
            self.heal()

    def heal(self) -> None:
        with self._lock:
            self._rules = ()
            self._healed.set()

    def rule_for(self, request: Request) -> Rule | None:
        """The first rule that fires."""
        with self._lock:
            self.requests.append(request)
            for rule in self._rules:
                if rule.matches(request) and rule.fires(self._random):
                    self.injected[rule.fault] += 1
                    return rule
        return None

    def forward(self, request: Request) -> Reply:
        if request.method != "PUT":
            return self._forward(request)
        with self._puts:
            return self._forward(request)

    def wait_for_client(self, connection: socket.socket) -> None:
        """Until it closes the connection, or the faults end."""
        while not self._healed.is_set():
            readable, _, _ = select.select([connection], [], [], 0.1)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return

    def _forward(self, request: Request) -> Reply:
        connection = HTTPConnection(self._host, timeout=UPSTREAM_SECONDS)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers:
                if name.lower() not in HOP_BY_HOP:
                    connection.putheader(name, value)
            if request.body or request.method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            dropped = HOP_BY_HOP if request.method != "HEAD" else HOP_BY_HOP - {"content-length"}
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in dropped]
            return Reply(answer.status, headers, answer.read())
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client; what makes no answer closes it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_any(self) -> None:
        request = Request(self.command, self.path, self.headers.items(), self._body())
        rule = self.server.proxy.rule_for(request) if self.server.has_faults else None
        try:
            self._answer(request, rule)
        except (OSError, HTTPException):
            self.close_connection = True

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = do_any

    def log_message(self, *_: Any) -> None:
        """Nothing: tests look at what was injected."""

    def _answer(self, request: Request, rule: Rule | None) -> None:
        match rule.fault if rule is not None else None:
            case Fault.LOST_REQUEST:
                self.close_connection = True
                return
            case Fault.HANG:
                self.server.proxy.wait_for_client(self.connection)
                self.close_connection = True
                return
            case Fault() as fault if fault in ANSWERS:
                self.wfile.write(_refusal(fault).encoded(request.method))
                return
            case _:
                self._forward(request, rule)

    def _forward(self, request: Request, rule: Rule | None) -> None:
        if rule is not None and rule.meanwhile is not None:
            rule.meanwhile()
        if rule is not None:
            time.sleep(rule.seconds)
        reply = self.server.proxy.forward(request)
        encoded = reply.encoded(request.method)
        if rule is not None and rule.fault is Fault.LOST_RESPONSE:
            self.close_connection = True
            return
        if rule is not None and rule.fault is Fault.TRUNCATED:
            self.close_connection = True
            encoded = encoded[: len(encoded) - (len(reply.body) + 1) // 2]
        self.wfile.write(encoded)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, proxy: FaultyStore, *, has_faults: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self.has_faults = has_faults

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients may leave in the middle of a request."""

    @contextmanager
    def serving(self) -> Iterator[ObjectStore]:
        thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield ObjectStore(f"http://127.0.0.1:{self.server_address[1]}")
        finally:
            self.shutdown()
            self.server_close()
            thread.join(10)


@contextmanager
def running_faulty_store(upstream: ObjectStore) -> Iterator[FaultyStore]:
    proxy = FaultyStore(upstream)
    with ExitStack() as listeners:
        for name, has_faults in (("store", True), ("direct", False)):
            listener = _Listener(proxy, has_faults=has_faults)
            setattr(proxy, name, listeners.enter_context(listener.serving()))
        try:
            yield proxy
        finally:
            proxy.heal()


def _refusal(fault: Fault) -> Reply:
    status, code = ANSWERS[fault]
    return Reply(status, [("Content-Type", "application/xml")], ERROR.format(code=code).encode())
