"""Takes away the files of tables that were dropped for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import orjson
import structlog

from tidemill.errors import Unavailable
from tidemill.iceberg.model.entries import Document, Entry
from tidemill.iceberg.operations.file_removal import FileRemoval, RemovableFiles
from tidemill.iceberg.ports import IcebergStore

BATCH: Final = 16

log = structlog.get_logger("tidemill.iceberg")


class ReachableFiles(RemovableFiles, Protocol):
    """The files that only a table's manifests name."""

    def named_by(self, metadata: Document) -> Iterator[str]:
        """Data and delete files, then manifests, then manifest lists; what cannot be read is left out."""


class Purger:
    """What a crash interrupts is taken up again: a table's row stays until its files are gone."""

    def __init__(self, store: IcebergStore, files: ReachableFiles, metadata: RemovableFiles) -> None:
        self._store = store
        self._files = files
        self._content = FileRemoval(store, files)
        self._metadata = FileRemoval(store, metadata)

    def purge(self, entry: Entry) -> None:
        """Now, or when whoever finishes what was left finds the storage in order again."""
        try:
            self._remove_files(entry)
            with self._store.transaction() as tx:
                tx.purges.remove(entry.entry_id)
        except (Unavailable, OSError) as error:
            log.warning("a table is not purged yet", table=str(entry.ident), problem=str(error))

    def purge_waiting(self) -> int:
        """How many there were that nobody had finished."""
        with self._store.reading() as tx:
            waiting = tx.purges.list_waiting(BATCH)
        for entry in waiting:
            self.purge(entry)
        return len(waiting)

    def _remove_files(self, entry: Entry) -> None:
        """The metadata last: as long as it is there, everything else can be found."""
        metadata: Document = orjson.loads(entry.metadata)
        if (metadata.get("properties") or {}).get("gc.enabled", "true").lower() == "false":
            # Its files may belong to other tables as well.
            return
        self._content.remove_all(self._files.named_by(metadata), entry.entry_id)
        statistics = [*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())]
        self._content.remove_all((found["statistics-path"] for found in statistics), entry.entry_id)
        previous = [found["metadata-file"] for found in metadata.get("metadata-log") or ()]
        self._metadata.remove_all([*previous, entry.metadata_location], entry.entry_id)
