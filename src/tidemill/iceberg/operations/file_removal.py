"""Removes files that metadata documents name.

Clients write these documents and may name any file in them, by mistake or on purpose. A file is removed only
if it lies in an allowed location and not inside the location of another table or view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

import orjson
import structlog

from tidemill.errors import InvalidInput
from tidemill.iceberg.model.entries import EntryState
from tidemill.iceberg.ports import IcebergStore

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

    def remove_all(self, locations: Iterable[str], owner_id: UUID) -> None:
        def is_foreign(directory: str) -> bool:
            with self._store.reading() as tx:
                return tx.iceberg.is_in_another(directory, owner_id)

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
