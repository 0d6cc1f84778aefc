"""Takes away files that documents name, whoever wrote the documents."""

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
        """The one way to write this location; raises InvalidInput when nothing of ours may lie there."""

    def remove(self, location: str) -> None:
        """Missing is fine, and a directory is not a file."""


class FileRemoval:
    """Leaves what is outside the allowed places, and what lies in the place of something else."""

    def __init__(self, store: IcebergStore, files: RemovableFiles) -> None:
        self._store = store
        self._files = files

    def remove_all(self, locations: Iterable[str], owner_id: UUID) -> None:
        def is_anothers(directory: str) -> bool:
            with self._store.reading() as tx:
                return tx.iceberg.is_in_another(directory, owner_id)

        self._remove(locations, is_anothers)

    def remove_obsolete(self, locations: Sequence[str], owner_id: UUID) -> None:
        """Leaves what the entry itself names; whoever would make an old file current again has to wait."""
        if not locations:
            return
        with self._store.transaction() as tx:
            state = tx.iceberg.lock_state(owner_id)
            named = set() if state is None else set(map(self._spelled, files_of(state)))
            unnamed = [location for location in locations if self._spelled(location) not in named]
            self._remove(unnamed, lambda directory: tx.iceberg.is_in_another(directory, owner_id))

    def _spelled(self, location: str) -> str:
        """In the one way, whichever a client chose when it registered the file."""
        try:
            return self._files.resolve(location)
        except InvalidInput:
            return location

    def _remove(self, locations: Iterable[str], is_anothers: Callable[[str], bool]) -> None:
        known: dict[str, bool] = {}
        for location in locations:
            try:
                directory = self._files.resolve(location).rpartition("/")[0]
                if directory not in known:
                    known[directory] = is_anothers(directory)
                if known[directory]:
                    raise InvalidInput("location", f"{location:.200} is in another table or view")
                self._files.remove(location)
            except InvalidInput as error:
                log.warning("a file that a table names is not its own and stays", problem=str(error))


def files_of(state: EntryState) -> Sequence[str]:
    """The metadata files of a state and of those before it that it names."""
    previous = orjson.loads(state.metadata).get("metadata-log") or ()
    return [state.metadata_location, *(entry["metadata-file"] for entry in previous)]
