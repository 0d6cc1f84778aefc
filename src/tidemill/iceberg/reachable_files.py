"""The files that a table's snapshots lead to, read with pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import structlog
from pyiceberg.manifest import ManifestFile, read_manifest_list

from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput
from tidemill.iceberg.model.entries import Document
from tidemill.iceberg.planning.scans import MISSING_FILE_ERRORS, PARSE_ERRORS, is_content_error
from tidemill.iceberg.table_io import StoredFiles, literal_place

NOT_READ: Final = (OSError, InvalidInput, *PARSE_ERRORS)

log = structlog.get_logger("tidemill.iceberg")


class ManifestReachableFiles:
    def __init__(self, files: TableFiles) -> None:
        self._io = StoredFiles(files)

    def named_by(self, metadata: Document) -> Iterator[str]:
        manifests: dict[str, ManifestFile] = {}
        lists = []
        for snapshot in metadata.get("snapshots") or ():
            if (place := snapshot.get("manifest-list")) is not None:
                lists.append(place)
                manifests |= {found.manifest_path: found for found in self._manifests(place)}
        seen: set[str] = set()
        for manifest in manifests.values():
            for path in self._data_files(manifest):
                if path not in seen:
                    seen.add(path)
                    yield path
        yield from manifests
        yield from lists

    def resolve(self, location: str) -> str:
        return literal_place(location)

    def remove(self, location: str) -> None:
        with suppress(IsADirectoryError, NotADirectoryError):
            self._io.delete(location)

    def _manifests(self, place: str) -> list[ManifestFile]:
        try:
            return list(read_manifest_list(self._io.new_input(place)))
        except NOT_READ as error:
            _pass_over(error, "a manifest list of a purged table cannot be read", place)
            return []

    def _data_files(self, manifest: ManifestFile) -> list[str]:
        try:
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=False)
        except NOT_READ as error:
            _pass_over(error, "a manifest of a purged table cannot be read", manifest.manifest_path)
            return []
        return [entry.data_file.file_path for entry in entries]


def _pass_over(error: Exception, event: str, location: str) -> None:
    """Unless the storage is to blame, which may be in order again later."""
    if not (is_content_error(error) or isinstance(error, MISSING_FILE_ERRORS)):
        raise error
    log.warning(event, location=location, problem=str(error)[:200])
