"""A cache of schemas rendered as JSON, because clients request the same few again and again."""

from __future__ import annotations

import threading
from typing import Final

import orjson
import pyarrow as pa

from tidemill.protocols.lance.arrow_json import Vocabulary, schema_json

MAX_BYTES: Final = 64 << 20


class RenderedSchemas:
    """Keyed by the identity of the schema, which the catalog caches. Evicts the oldest entries."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rendered: dict[tuple[int, Vocabulary], tuple[pa.Schema, bytes]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, schema: pa.Schema, vocabulary: Vocabulary) -> orjson.Fragment:
        key = (id(schema), vocabulary)
        cached = self._rendered.get(key)
        # An entry keeps its schema alive, so no other schema can have the same identity.
        rendered = self._render(schema, vocabulary) if cached is None else cached[1]
        return orjson.Fragment(rendered)

    def _render(self, schema: pa.Schema, vocabulary: Vocabulary) -> bytes:
        rendered = orjson.dumps(schema_json(schema, vocabulary))
        with self._lock:
            if self._rendered.setdefault((id(schema), vocabulary), (schema, rendered))[1] is rendered:
                self._bytes += len(rendered)
            while self._bytes > self._max_bytes:
                _, oldest = self._rendered.pop(next(iter(self._rendered)))
                self._bytes -= len(oldest)
        return rendered


RENDERED: Final = RenderedSchemas()
