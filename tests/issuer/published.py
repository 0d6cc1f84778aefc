"""What an OpenID issuer publishes, from a thread of the test, so that it is quick to stop and to change."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.issuer.issuer import SigningKey, free_port

KEYS = "/keys"


class PublishedKeys:
    def __init__(self, key: SigningKey) -> None:
        self.key = key
        self.reads = 0
        self._port = free_port()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        published = self

        class Documents(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = published.document(self.path)
                self.send_response(200)
                self.send_header("content-length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Documents)
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def document(self, path: str) -> bytes:
        if path != KEYS:
            return json.dumps({"issuer": self.url, "jwks_uri": self.url + KEYS}).encode()
        self.reads += 1
        # As a private key, it would not be one that verifies.
        public = {name: self.key.as_jwk()[name] for name in ("kty", "n", "e", "kid")}
        return json.dumps({"keys": [public]}).encode()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
