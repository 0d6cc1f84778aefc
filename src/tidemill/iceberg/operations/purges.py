"""Removes the files of tables that were dropped with `purgeRequested`.

Dropping the table queues the purge in the same transaction. The server purges right away; if it crashes or
the storage is unavailable, a worker finishes later. The queue entry stays until all files are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import orjson
import structlog

from tidemill.errors import Unavailable
from tidemill.iceberg.model.entries import Document, Entry
from tidemill.iceberg.operations.file_removal import FileRemover, RemovableFiles
from tidemill.iceberg.ports import IcebergStore

BATCH: Final = 16

log = structlog.get_logger("tidemill.iceberg")


class ReachableFiles(RemovableFiles, Protocol):
    """The files that are reachable only through the manifests of a table."""

    def named_by(self, metadata: Document) -> Iterator[str]:
        """Data and delete files, then manifests, then manifest lists; skips what cannot be read."""


class Purger:
    """Can be interrupted and repeated: a queue entry stays until the files are gone."""

    def __init__(self, store: IcebergStore, files: ReachableFiles, metadata: RemovableFiles) -> None:
        self._store = store
        self._files = files
        self._data_remover = FileRemover(store, files)
        self._metadata_remover = FileRemover(store, metadata)

    def purge(self, entry: Entry) -> None:
        """Removes the files now; if storage or database are unavailable, the entry stays queued."""
        try:
            self._remove_files(entry)
            with self._store.transaction() as tx:
                tx.purges.remove(entry.entry_id)
        except (Unavailable, OSError) as error:
            log.warning("purging a table failed; will be retried", table=str(entry.ident), problem=str(error))

    def purge_waiting(self) -> int:
        """Purges a batch of queued tables; returns how many were queued."""
        with self._store.reading() as tx:
            waiting = tx.purges.list_waiting(BATCH)
        for entry in waiting:
            self.purge(entry)
        return len(waiting)

    def _remove_files(self, entry: Entry) -> None:
        """Removes the metadata last: as long as it exists, all other files can be found."""
        metadata: Document = orjson.loads(entry.metadata)
        if (metadata.get("properties") or {}).get("gc.enabled", "true").lower() == "false":
            # The files may be shared with other tables.
            return
        self._data_remover.remove_all(self._files.named_by(metadata), entry.entry_id)
        statistics = [*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())]
        self._data_remover.remove_all((found["statistics-path"] for found in statistics), entry.entry_id)
        previous = [found["metadata-file"] for found in metadata.get("metadata-log") or ()]
        self._metadata_remover.remove_all([*previous, entry.metadata_location], entry.entry_id)
