"""Lists the files that a table's snapshots refer to; reads manifests with pyiceberg."""

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
from tidemill.iceberg.table_io import CatalogFileIO, literal_location

READ_ERRORS: Final = (OSError, InvalidInput, *PARSE_ERRORS)

log = structlog.get_logger("tidemill.iceberg")


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
