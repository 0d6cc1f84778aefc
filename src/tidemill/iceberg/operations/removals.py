"""Takes away files that documents name, whoever wrote the documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

import structlog

from tidemill.errors import InvalidInput
from tidemill.iceberg.ports import IcebergStore

log = structlog.get_logger("tidemill.iceberg")


class RemovableFiles(Protocol):
    def place_of(self, location: str) -> str:
        """The one way to write this location; raises InvalidInput when nothing of ours may lie there."""

    def remove(self, location: str) -> None:
        """Missing is fine, and a directory is not a file."""


class FileRemoval:
    """Leaves what is outside the allowed places, and what lies in the place of something else."""

    def __init__(self, store: IcebergStore, files: RemovableFiles) -> None:
        self._store = store
        self._files = files

    def remove_all(self, locations: Iterable[str], owner_id: UUID) -> None:
        known: dict[str, bool] = {}
        for location in locations:
            try:
                directory = self._files.place_of(location).rpartition("/")[0]
                if directory not in known:
                    known[directory] = self._is_anothers(directory, owner_id)
                if known[directory]:
                    raise InvalidInput("location", f"{location:.200} is in another table or view")
                self._files.remove(location)
            except InvalidInput as error:
                log.warning("a file that a table names is not its own and stays", problem=str(error))

    def _is_anothers(self, directory: str, owner_id: UUID) -> bool:
        with self._store.reading() as tx:
            return tx.iceberg.is_in_another(directory, owner_id)
