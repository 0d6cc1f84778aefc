"""Metadata files of Iceberg tables and views, in the warehouse and where else tables may lie."""

from __future__ import annotations

import errno
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import orjson

from tidemill.catalog.model.locations import LOCAL_URI, URI, normalized_location
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput, PayloadTooLarge, Unavailable
from tidemill.iceberg.errors import InvalidMetadata, MetadataFileNotFound
from tidemill.iceberg.model.entries import Document, EntryKind

METADATA_PATH: Final = "write.metadata.path"
CODEC: Final = "write.metadata.compression-codec"
DEFAULT_CODECS: Final = {EntryKind.TABLE: "none", EntryKind.VIEW: "gzip"}
# Readers of other makers tell by the name whether a file is compressed.
ENDINGS: Final = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}
NUMBER: Final = re.compile(r"([0-9]{1,9})-")
# To some clients tmp in file://tmp/x is a host, to others a directory.
HOST: Final = re.compile(r"file://(?!/|localhost/)")
GZIP_MAGIC: Final = b"\x1f\x8b"
COMPRESSION_LEVEL: Final = 6
MAX_METADATA_BYTES: Final = 128 * 2**20
UNUSABLE: Final = frozenset(
    {errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS}
)
DIRECTORIES: Final = ("metadata", "data")


@dataclass(frozen=True, slots=True)
class WrittenMetadata:
    """A new file, and the JSON in it before any compression."""

    location: str
    data: bytes


class MetadataFiles:
    """Locations are taken and given in the client's spelling; none outside the allowed places is touched."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def write(self, metadata: Document, kind: EntryKind, previous: str | None) -> WrittenMetadata:
        """Writes it under a name of its own; `previous` is the file that it follows."""
        properties = metadata.get("properties") or {}
        codec = _codec(properties.get(CODEC, DEFAULT_CODECS[kind]))
        location = f"{_directory(metadata)}/{_number_after(previous):05d}-{uuid4()}{ENDINGS[codec]}"
        data = _encoded(metadata)
        stored = data if codec == "none" else gzip.compress(data, COMPRESSION_LEVEL, mtime=0)
        key = self._key(location)
        with _usable(location):
            self._files.write(key, stored)
        return WrittenMetadata(location, data)

    def directory_of(self, metadata: Document) -> str:
        """The place of the directory that its files are written to."""
        return self.resolve(_directory(metadata))

    def read(self, location: str) -> bytes:
        """The JSON object in a file, compressed or not; raises MetadataFileNotFound, InvalidMetadata."""
        key = self._key(location)
        size = self._files.size_of(key)
        if size is None:
            raise MetadataFileNotFound(location)
        if size > MAX_METADATA_BYTES:
            raise PayloadTooLarge(location, MAX_METADATA_BYTES)
        try:
            data = _decompressed(self._files.read(key), location)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise MetadataFileNotFound(location) from error
        _check_object(data, location)
        return data

    def is_there(self, location: str) -> bool:
        return self._files.size_of(self._key(location)) is not None

    def check_reachable(self) -> None:
        """Raises Unavailable when the warehouse is away as a whole, and not just a file."""
        self._files.check_reachable()

    def remove(self, location: str) -> None:
        """Missing is fine, and a directory is not a file."""
        key = self._key(location)
        with suppress(IsADirectoryError, NotADirectoryError):
            self._files.remove(key)

    def resolve(self, location: str) -> str:
        """The one way to write this location; raises InvalidInput when nothing of ours may lie there."""
        place = _settled(location)
        with _usable(location):
            is_inside = self._files.is_inside(place)
        if not is_inside:
            raise InvalidInput(
                "location", f"{location:.200} is outside the warehouse and the other places that are allowed"
            )
        return place

    def make_directories(self, location: str) -> None:
        """There are clients that write data and metadata only where directories for them exist."""
        self.resolve(location)
        for name in DIRECTORIES:
            directory = f"{location.rstrip('/')}/{name}"
            key = self._key(directory)
            with _usable(directory):
                self._files.make_directory(key)

    def _key(self, location: str) -> str:
        return self._files.key_of(self.resolve(location))


def _directory(metadata: Document) -> str:
    properties = metadata.get("properties") or {}
    directory: str = properties.get(METADATA_PATH) or f"{metadata['location'].rstrip('/')}/metadata"
    return directory.rstrip("/")


def _settled(location: str) -> str:
    local, uri = LOCAL_URI.fullmatch(location), URI.fullmatch(location)
    if local is None and uri is None and not location.startswith("/"):
        raise InvalidInput(
            "location", f"{location!r:.200} is relative; it has to be absolute: a path from / on, or a URI"
        )
    place = normalized_location(location, "")
    if local is not None:
        # Clients of Iceberg take a percent sign for itself, in a URI too.
        place = normalized_location(local[1], "")
    if place.startswith("file:") or HOST.match(location) is not None:
        raise InvalidInput("location", f"{location:.200} names a host; it has to be file:///path")
    if local is None and uri is not None and uri[2].rstrip("/") != place.partition("://")[2]:
        # Object stores take a//b and a/b for two things, and clients would look for the first.
        raise InvalidInput("location", f"{location:.200} has an empty name between slashes")
    return place


@contextmanager
def _usable(location: str) -> Iterator[None]:
    """Nothing was done yet: what another location would solve is the caller's mistake."""
    try:
        yield
    except OSError as error:
        problem = f"{location:.200} cannot be used: {error.strerror}"
        if error.errno in UNUSABLE:
            raise InvalidInput("location", problem) from error
        raise Unavailable(problem) from error


def _codec(name: str) -> str:
    if name.lower() not in ENDINGS:
        raise InvalidMetadata(f"Invalid codec name: {name:.100}; {CODEC} is one of {', '.join(ENDINGS)}")
    return name.lower()


def _number_after(previous: str | None) -> int:
    found = NUMBER.match((previous or "").rpartition("/")[2])
    return 0 if found is None else int(found[1]) + 1


def _encoded(metadata: Document) -> bytes:
    try:
        return orjson.dumps(metadata)
    except orjson.JSONEncodeError as error:
        raise InvalidMetadata(f"The metadata cannot be written as JSON: {error}") from error


def _decompressed(stored: bytes, location: str) -> bytes:
    """By content, because there are files whose names say otherwise."""
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
