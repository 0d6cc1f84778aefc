"""Removes the files of tables that were dropped with `purgeRequested`.

Dropping the table queues the purge in the same transaction. The server purges right away; if it crashes or
the storage is unavailable, a worker finishes later. The queue entry stays until all files are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID

import orjson
import structlog
from pyiceberg.manifest import ManifestFile, read_manifest_list

from tidemill.catalog.auditing import note_object
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput, Unavailable
from tidemill.iceberg.files import CatalogFileIO, literal_location
from tidemill.iceberg.model.entries import Document, Entry, EntryState
from tidemill.iceberg.planning.scans import MISSING_FILE_ERRORS, PARSE_ERRORS, is_content_error
from tidemill.iceberg.ports import IcebergStore

BATCH: Final = 16

log = structlog.get_logger("tidemill.iceberg")


class RemovableFiles(Protocol):
    def resolve(self, location: str) -> str:
        """The location in normalized form; raises InvalidInput if it is outside the allowed locations."""

    def remove(self, location: str) -> None:
        """Ignores missing files and directories."""


class FileRemover:
    """Skips files outside the allowed locations, and files inside the location of another table or view."""

    def __init__(self, store: IcebergStore, files: RemovableFiles) -> None:
        self._store = store
        self._files = files

    def remove_all(self, locations: Iterable[str], dropped: Entry) -> None:
        def is_foreign(directory: str) -> bool:
            with self._store.reading() as tx:
                return tx.iceberg.is_in_another(directory, dropped.entry_id, dropped.location)

        self._remove(locations, is_foreign)

    def remove_obsolete(self, locations: Sequence[str], owner_id: UUID) -> None:
        """Removes files that the entry no longer names.

        The row stays locked meanwhile, so no registration can make an old file current again.
        """
        if not locations:
            return
        with self._store.transaction() as tx:
            state = tx.iceberg.lock_state(owner_id)
            current_files = set() if state is None else set(map(self._resolved, metadata_files_of(state)))
            obsolete = [location for location in locations if self._resolved(location) not in current_files]
            self._remove(obsolete, lambda directory: tx.iceberg.is_in_another(directory, owner_id))

    def _resolved(self, location: str) -> str:
        """Normalized, because a client may have registered the file with a different spelling."""
        try:
            return self._files.resolve(location)
        except InvalidInput:
            return location

    def _remove(self, locations: Iterable[str], is_foreign: Callable[[str], bool]) -> None:
        foreign_directories: dict[str, bool] = {}
        for location in locations:
            try:
                directory = self._files.resolve(location).rpartition("/")[0]
                if directory not in foreign_directories:
                    foreign_directories[directory] = is_foreign(directory)
                if foreign_directories[directory]:
                    raise InvalidInput("location", f"{location:.200} is in another table or view")
                self._files.remove(location)
            except InvalidInput as error:
                log.warning("kept a file that a table names but does not own", problem=str(error))


def metadata_files_of(state: EntryState) -> Sequence[str]:
    """The metadata file of the state, and those of previous states that its metadata log names."""
    previous = orjson.loads(state.metadata).get("metadata-log") or ()
    return [state.metadata_location, *(entry["metadata-file"] for entry in previous)]


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
        note_object(entry.ident)
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
        self._data_remover.remove_all(self._files.named_by(metadata), entry)
        statistics = [*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())]
        self._data_remover.remove_all((found["statistics-path"] for found in statistics), entry)
        previous = [found["metadata-file"] for found in metadata.get("metadata-log") or ()]
        self._metadata_remover.remove_all([*previous, entry.metadata_location], entry)


READ_ERRORS: Final = (OSError, InvalidInput, *PARSE_ERRORS)


class ManifestReachableFiles:
    def __init__(self, files: TableFiles) -> None:
        self._io = CatalogFileIO(files)

    def named_by(self, metadata: Document) -> Iterator[str]:
        manifests: dict[str, ManifestFile] = {}
        lists = []
        for snapshot in metadata.get("snapshots") or ():
            if (manifest_list := snapshot.get("manifest-list")) is not None:
                lists.append(manifest_list)
                manifests |= {manifest.manifest_path: manifest for manifest in self._manifests(manifest_list)}
        seen: set[str] = set()
        for manifest in manifests.values():
            for path in self._data_files(manifest):
                if path not in seen:
                    seen.add(path)
                    yield path
        yield from manifests
        yield from lists

    def resolve(self, location: str) -> str:
        return literal_location(location)

    def remove(self, location: str) -> None:
        with suppress(IsADirectoryError, NotADirectoryError):
            self._io.delete(location)

    def _manifests(self, manifest_list: str) -> list[ManifestFile]:
        try:
            return list(read_manifest_list(self._io.new_input(manifest_list)))
        except READ_ERRORS as error:
            _skip_unreadable(error, "cannot read a manifest list of a purged table", manifest_list)
            return []

    def _data_files(self, manifest: ManifestFile) -> list[str]:
        try:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=False)
        except READ_ERRORS as error:
            _skip_unreadable(error, "cannot read a manifest of a purged table", manifest.manifest_path)
            return []
        return [entry.data_file.file_path for entry in entries]


def _skip_unreadable(error: Exception, event: str, location: str) -> None:
    """Logs files that are missing or malformed; re-raises storage errors, which may be transient."""
    if not (is_content_error(error) or isinstance(error, MISSING_FILE_ERRORS)):
        raise error
    log.warning(event, location=location, problem=str(error)[:200])
