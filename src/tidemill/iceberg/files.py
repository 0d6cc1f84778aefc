"""Files of Iceberg tables and views: their metadata files, and a FileIO with which pyiceberg reads the rest.

Files lie in the warehouse or in other allowed locations; everything else is refused. Locations are accepted
and returned in the client's spelling. `resolve` gives the normalized form, in which overlaps are detected.
"""

from __future__ import annotations

import errno
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

import orjson
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from tidemill.catalog.locations import LOCAL_URI, URI, normalized_location
from tidemill.catalog.ports import TableFiles
from tidemill.catalog.storage_failures import storage_failure
from tidemill.errors import InvalidInput, PayloadTooLarge, Unavailable, Unsupported
from tidemill.iceberg.errors import InvalidMetadata, MetadataFileNotFound
from tidemill.iceberg.model.entries import Document, EntryKind

METADATA_PATH: Final = "write.metadata.path"
COMPRESSION_CODEC: Final = "write.metadata.compression-codec"
DEFAULT_CODECS: Final = {EntryKind.TABLE: "none", EntryKind.VIEW: "gzip"}
# Other readers tell by the file name whether a file is compressed.
FILE_SUFFIXES: Final = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}
FILE_NUMBER: Final = re.compile(r"([0-9]{1,9})-")
# Clients disagree whether tmp in file://tmp/x is a host or a directory.
FILE_URI_WITH_HOST: Final = re.compile(r"file://(?!/|localhost/)")
GZIP_MAGIC: Final = b"\x1f\x8b"
COMPRESSION_LEVEL: Final = 6
MAX_METADATA_BYTES: Final = 128 * 2**20
UNUSABLE_LOCATION_ERRORS: Final = frozenset(
    {errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM}
)
SUBDIRECTORIES: Final = ("metadata", "data")


@dataclass(frozen=True, slots=True)
class WrittenMetadata:
    """The location of a new file, and its JSON before compression."""

    location: str
    data: bytes


class MetadataFiles:
    """Takes and returns locations in the client's spelling; touches nothing outside the allowed ones."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def write(self, metadata: Document, kind: EntryKind, previous: str | None) -> WrittenMetadata:
        """Writes a new file with a unique name; `previous` is the file of the state before."""
        properties = metadata.get("properties") or {}
        codec = _codec(properties.get(COMPRESSION_CODEC, DEFAULT_CODECS[kind]))
        location = f"{_directory(metadata)}/{_next_file_number(previous):05d}-{uuid4()}{FILE_SUFFIXES[codec]}"
        data = _as_json(metadata)
        stored = data if codec == "none" else gzip.compress(data, COMPRESSION_LEVEL, mtime=0)
        key = self._key(location)
        with _translated_os_errors(location):
            self._files.write(key, stored)
        return WrittenMetadata(location, data)

    def directory_of(self, metadata: Document) -> str:
        """The directory for the entry's metadata files, normalized."""
        return self.resolve(_directory(metadata))

    def read(self, location: str) -> bytes:
        """The JSON object in a file, decompressed.

        Raises MetadataFileNotFound, InvalidMetadata, PayloadTooLarge.
        """
        key = self._key(location)
        size = self._files.size_of(key)
        if size is None:
            self.check_reachable()
            raise MetadataFileNotFound(location)
        if size > MAX_METADATA_BYTES:
            raise PayloadTooLarge(location, MAX_METADATA_BYTES)
        try:
            data = _decompressed(self._files.read(key), location)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise MetadataFileNotFound(location) from error
        _check_object(data, location)
        return data

    def exists(self, location: str) -> bool:
        return self._files.size_of(self._key(location)) is not None

    def check_reachable(self) -> None:
        """Raises Unavailable if the whole warehouse is unreachable, rather than one file missing."""
        self._files.check_reachable()

    def remove(self, location: str) -> None:
        """Ignores missing files and directories."""
        key = self._key(location)
        with suppress(IsADirectoryError, NotADirectoryError):
            self._files.remove(key)

    def resolve(self, location: str) -> str:
        """The location in normalized form; raises InvalidInput if it is outside the allowed locations."""
        normalized = _normalized(location)
        with _translated_os_errors(location):
            is_inside = self._files.is_inside(normalized)
        if not is_inside:
            raise InvalidInput(
                "location", f"{location:.200} is outside the warehouse and the other allowed locations"
            )
        return normalized

    def make_directories(self, location: str) -> None:
        """Creates the data and metadata directories: some clients only write into existing ones."""
        self.resolve(location)
        for name in SUBDIRECTORIES:
            directory = f"{location.rstrip('/')}/{name}"
            key = self._key(directory)
            with _translated_os_errors(directory):
                self._files.make_directory(key)

    def _key(self, location: str) -> str:
        return self._files.key_of(self.resolve(location))


def _directory(metadata: Document) -> str:
    properties = metadata.get("properties") or {}
    directory: str = properties.get(METADATA_PATH) or f"{metadata['location'].rstrip('/')}/metadata"
    return directory.rstrip("/")


def _normalized(location: str) -> str:
    local, uri = LOCAL_URI.fullmatch(location), URI.fullmatch(location)
    if local is None and uri is None and not location.startswith("/"):
        raise InvalidInput("location", f"{location!r:.200} is relative; it must be an absolute path or a URI")
    normalized = normalized_location(location, "")
    if local is not None:
        # Iceberg clients take a percent sign literally, even in a URI.
        normalized = normalized_location(local[1], "")
    if normalized.startswith("file:") or FILE_URI_WITH_HOST.match(location) is not None:
        raise InvalidInput("location", f"{location:.200} names a host; it must be file:///path")
    if local is None and uri is not None and uri[2].rstrip("/") != normalized.partition("://")[2]:
        # In object stores a//b and a/b are different keys, and clients would look for the first.
        raise InvalidInput("location", f"{location:.200} has an empty name between slashes")
    return normalized


@contextmanager
def _translated_os_errors(location: str) -> Iterator[None]:
    """Raises InvalidInput for errors that another location would avoid, Unavailable for all others."""
    try:
        yield
    except OSError as error:
        failure = storage_failure(error, f"{location:.200}")
        if failure is not None:
            raise failure from error
        problem = f"{location:.200} cannot be used: {error.strerror}"
        if error.errno in UNUSABLE_LOCATION_ERRORS:
            raise InvalidInput("location", problem) from error
        raise Unavailable(problem) from error


def _codec(name: str) -> str:
    if name.lower() not in FILE_SUFFIXES:
        raise InvalidMetadata(
            f"Invalid codec name: {name:.100}; {COMPRESSION_CODEC} is one of {', '.join(FILE_SUFFIXES)}"
        )
    return name.lower()


def _next_file_number(previous: str | None) -> int:
    found = FILE_NUMBER.match((previous or "").rpartition("/")[2])
    return 0 if found is None else int(found[1]) + 1


def _as_json(metadata: Document) -> bytes:
    try:
        return orjson.dumps(metadata)
    except orjson.JSONEncodeError as error:
        raise InvalidMetadata(f"The metadata cannot be written as JSON: {error}") from error


def _decompressed(stored: bytes, location: str) -> bytes:
    """Detects compression by content, because file names can be wrong."""
    if not stored.startswith(GZIP_MAGIC):
        return stored
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(stored)) as file:
            data = file.read(MAX_METADATA_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise InvalidMetadata(f"Failed to read json file: {location} ({error})") from error
    if len(data) > MAX_METADATA_BYTES:
        raise PayloadTooLarge(location, MAX_METADATA_BYTES)
    return data


def _check_object(data: bytes, location: str) -> None:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidMetadata(f"Failed to read json file: {location} ({error})") from error
    if not isinstance(found, dict):
        raise InvalidMetadata(f"Failed to read json file: {location} (not a JSON object)")


def literal_location(location: str) -> str:
    """Normalizes the location of a file; clients write percent signs literally, even in URIs."""
    local = LOCAL_URI.fullmatch(location)
    return normalized_location(location if local is None else local[1], "")


class CatalogInputFile(InputFile):
    def __init__(self, location: str, files: TableFiles) -> None:
        super().__init__(location)
        self._files = files
        self._key = files.key_of_file(literal_location(location))

    def __len__(self) -> int:
        size = self._files.size_of(self._key)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._files.size_of(self._key) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - pyiceberg's signature
        return io.BytesIO(self._files.read(self._key))


class CatalogFileIO(FileIO):
    """Reads manifests and deletes files; clients write tables, so it writes nothing.

    `is_foreign` tells whether a directory belongs to another table or view; nothing is read from those.
    """

    def __init__(
        self,
        files: TableFiles,
        is_foreign: Callable[[str], bool] = lambda directory: False,
        **properties: Any,
    ) -> None:
        super().__init__(properties)
        self._files = files
        self._is_foreign = lru_cache(maxsize=None)(is_foreign)

    def new_input(self, location: str) -> InputFile:
        if self._is_foreign(literal_location(location).rpartition("/")[0]):
            raise InvalidInput("location", f"{location:.200} is in another table or view")
        return CatalogInputFile(location, self._files)

    def new_output(self, location: str) -> OutputFile:
        raise Unsupported(f"{location} cannot be written: the catalog writes no table files")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self._files.remove(self._files.key_of_file(literal_location(path)))
