"""Writes batches as fragments of a table in a background thread while more are computed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Full, Queue
from typing import Final

import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

DEFAULT_ROWS_PER_FRAGMENT: Final = 1 << 20
QUEUE_SIZE: Final = 2
POLL_SECONDS: Final = 0.2


class Abandoned(Exception):
    """The fragments are no longer needed."""


class FragmentSink:
    """Accepts batches of one schema; the thread starts with the first batch."""

    def __init__(self, location: str, schema: pa.Schema, max_rows: int | None) -> None:
        self._location = location
        self._schema = schema
        self._max_rows = max_rows or DEFAULT_ROWS_PER_FRAGMENT
        self._queue: Queue[pa.RecordBatch | Abandoned | None] = Queue(QUEUE_SIZE)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fragments")
        self._writing: Future[list[FragmentMetadata]] | None = None
        self.rows = 0

    def put(self, batch: pa.RecordBatch) -> None:
        """Queues a batch. Raises the error that occurred while writing earlier batches."""
        if self._writing is None:
            self._writing = self._pool.submit(self._write)
        self.rows += len(batch)
        self._offer(batch)

    def close(self) -> list[FragmentMetadata]:
        """Waits until everything is written and returns the fragments."""
        if self._writing is None:
            return []
        self._offer(None)
        return self._writing.result()

    def abandon(self) -> None:
        """Stops the thread, even if batches are pending."""
        if self._writing is not None and not self._writing.done():
            self._offer(Abandoned())
        self._pool.shutdown()

    def _offer(self, item: pa.RecordBatch | Abandoned | None) -> None:
        while self._writing is not None:
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
            except Full:
                if self._writing.done():
                    self._raise_failure(item)
                    return
            else:
                return

    def _raise_failure(self, item: pa.RecordBatch | Abandoned | None) -> None:
        if self._writing is not None and not isinstance(item, Abandoned):
            self._writing.result()

    def _write(self) -> list[FragmentMetadata]:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        written: list[FragmentMetadata] = write_fragments(
            reader, self._location, mode="append", max_rows_per_file=self._max_rows
        )
        return written

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, Abandoned):
                raise item
            yield item.cast(self._schema) if item.schema != self._schema else item
