"""Parses Lance manifests, so that a staged manifest is checked before the catalog accepts it.

A client that commits through the catalog uploads a manifest and names it in the request. The server must not
trust it: the manifest could belong to another version or branch, need features that this server does not
support, or reference files outside the table. This module reads the few protobuf fields that matter, and
bounds sizes and counts, because the bytes come from outside.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from tidemill.errors import InvalidInput

MAGIC: Final = b"LANC"
# u64 position of the manifest, u16 major version, u16 minor version, magic.
TAIL: Final = struct.Struct("<QHH4s")
LENGTH: Final = struct.Struct("<I")
MAX_MANIFEST_BYTES: Final = 64 * 1024 * 1024
MAX_WIRE_FIELDS: Final = 5_000_000
MAX_PATH_BYTES: Final = 4096
MAX_INTEGER: Final = 2**64 - 1
MAX_VARINT_BYTES: Final = 10
CONTINUATION_BIT: Final = 0x80
MIN_FIELD_KEY: Final = 8
MAIN: Final = "main"
FRAGMENT_REUSE: Final = b"fragmentreuseindexdetails"
# A scheme would select another store, a drive letter another disk.
SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*:")


class FeatureFlag(IntFlag):
    """Features that a reader or writer must support; manifests with other bits are rejected."""

    DELETION_FILES = 1
    STABLE_ROW_IDS = 2
    V2_FORMAT = 4
    TABLE_CONFIG = 8
    BASE_PATHS = 16
    NO_TRANSACTION_FILE = 32
    COVERING_INDEXES = 128
    MIXED_FILE_VERSIONS = 256


KNOWN_FLAGS: Final = sum(FeatureFlag)


class ManifestField(IntEnum):
    """Field numbers of `Manifest` in Lance's table.proto that matter here."""

    FIELDS = 1
    FRAGMENTS = 2
    VERSION = 3
    INDEX_SECTION = 6
    TIMESTAMP = 7
    READER_FLAGS = 9
    WRITER_FLAGS = 10
    TRANSACTION_FILE = 12
    NEXT_ROW_ID = 14
    BASE_PATHS = 18
    BRANCH = 20


class FragmentField(IntEnum):
    FILES = 2
    EXTERNAL_ROW_IDS = 6
    EXTERNAL_LAST_UPDATED = 8
    EXTERNAL_CREATED = 10
    OVERLAYS = 11


EXTERNAL_FILES: Final = frozenset(
    {
        FragmentField.EXTERNAL_ROW_IDS,
        FragmentField.EXTERNAL_LAST_UPDATED,
        FragmentField.EXTERNAL_CREATED,
    }
)
FIELD_NAME: Final = 2
FIELD_ID: Final = 3
FIELD_PARENT: Final = 4
# -1 as a number of 64 bits.
NO_PARENT: Final = 2**64 - 1
# `DataFile.path`, `ExternalFile.path` and `IndexFile.path` share this field number.
FILE_PATH: Final = 1
BASE_PATH: Final = 4
SECTION_INDICES: Final = 1
INDEX_DETAILS: Final = 6
INDEX_FILES: Final = 10
ANY_TYPE: Final = 1
ANY_VALUE: Final = 2
REUSE_EXTERNAL: Final = 2
TIMESTAMP_SECONDS: Final = 1
TIMESTAMP_NANOS: Final = 2

WireValue = int | bytes


class DamagedManifest(ValueError):
    """The bytes are not a valid Lance manifest."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the catalog needs to know about a version; `branch` is None for the main branch."""

    version: int
    reader_flags: int
    writer_flags: int
    branch: str | None
    data_paths: tuple[str, ...]
    other_paths: tuple[str, ...]
    base_paths: tuple[str, ...]
    next_row_id: int
    timestamp_millis: int
    has_overlays: bool
    transaction_file: str

    @property
    def is_start_of_branch(self) -> bool:
        """Whether this is the first version of a branch: a copy, with the number of what was copied.

        A transaction's file is called `<version that was read>-<uuid>.txn`. Every other transaction reads an
        earlier version than the one it makes. A manifest may do without the file; then this cannot be told.
        """
        read_version = self.transaction_file.partition("-")[0]
        return not self.transaction_file or read_version == str(self.version)

    @property
    def has_stable_row_ids(self) -> bool:
        return bool(self.reader_flags & FeatureFlag.STABLE_ROW_IDS)

    @property
    def flags(self) -> int:
        return self.reader_flags | self.writer_flags


def check_staged(data: bytes, version: int, branch: str, may_use_base: Callable[[str], bool]) -> None:
    """Raises InvalidInput unless this is a manifest of that version and branch with allowed paths only."""
    try:
        manifest = read_manifest(data)
    except DamagedManifest as error:
        raise InvalidInput("manifest_path", f"is not a Lance manifest ({error})") from error
    problem = (
        _identity_problem(manifest, version, branch)
        or _feature_problem(manifest)
        or _path_problem(manifest, may_use_base)
    )
    if problem:
        raise InvalidInput("manifest_path", problem)


def read_manifest(data: bytes) -> Manifest:
    """Parses a manifest. Raises DamagedManifest, and nothing else, for invalid bytes."""
    content, message = _parts(data)
    return _ManifestReader(content).read(message)


def read_field_ids(data: bytes) -> Mapping[str, int]:
    """The ids of the columns' fields by name. Raises DamagedManifest."""
    content, message = _parts(data)
    return _ManifestReader(content).read_field_ids(message)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """What is before the footer, and the message of the manifest in it."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise DamagedManifest(f"it is larger than {MAX_MANIFEST_BYTES:,} bytes")
    if len(data) < TAIL.size:
        raise DamagedManifest("it is shorter than the footer")
    position, _, _, magic = TAIL.unpack_from(data, len(data) - TAIL.size)
    if magic != MAGIC:
        raise DamagedManifest("it does not end with the magic bytes")
    content = data[: len(data) - TAIL.size]
    message = _message_at(content, position)
    if position + LENGTH.size + len(message) != len(content):
        raise DamagedManifest("its length does not match its contents")
    return content, message


def _identity_problem(manifest: Manifest, version: int, branch: str) -> str | None:
    if manifest.version != version:
        return f"is a manifest of version {manifest.version}, not of version {version}"
    actual = MAIN if manifest.branch is None else manifest.branch
    return (
        None if actual == branch else f"is a manifest of branch {actual!r:.80}, not of branch {branch!r:.80}"
    )


def _feature_problem(manifest: Manifest) -> str | None:
    unknown = manifest.flags & ~KNOWN_FLAGS
    if unknown:
        return f"needs features that are not supported here (feature flags {unknown})"
    return "has overlay files, which are not supported here" if manifest.has_overlays else None


def _path_problem(manifest: Manifest, may_use_base: Callable[[str], bool]) -> str | None:
    for path in (*manifest.data_paths, *manifest.other_paths):
        if not _is_inside(path):
            return f"names the file {path!r:.120}; files must be given relative to the table"
    for base in manifest.base_paths:
        if not may_use_base(base):
            return f"reads from {base!r:.120}, which this table may not access"
    return None


def _is_inside(path: str) -> bool:
    if not path or path.startswith("/") or SCHEME.match(path) or not path.isprintable() or "\\" in path:
        return False
    # Object stores decode percent-encoded characters.
    return "%" not in path and not any(part in ("", ".", "..") for part in path.split("/"))


class _ManifestReader:
    """Walks the messages of one manifest and collects what the catalog needs."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._fields_left = MAX_WIRE_FIELDS
        self._data_paths: list[str] = []
        self._other_paths: list[str] = []
        self._base_paths: list[str] = []
        self._numbers: dict[int, int] = {}
        self._branch: str | None = None
        self._timestamp_millis = 0
        self._has_overlays = False
        self._transaction_file = ""

    def read(self, message: bytes) -> Manifest:
        for number, value in self._fields(message):
            self._read_field(number, value)
        index_section = self._numbers.get(ManifestField.INDEX_SECTION)
        if index_section is not None:
            self._read_indices(_message_at(self._content, index_section))
        return Manifest(
            version=self._numbers.get(ManifestField.VERSION, 0),
            reader_flags=self._numbers.get(ManifestField.READER_FLAGS, 0),
            writer_flags=self._numbers.get(ManifestField.WRITER_FLAGS, 0),
            branch=self._branch,
            data_paths=tuple(self._data_paths),
            other_paths=tuple(self._other_paths),
            base_paths=tuple(self._base_paths),
            next_row_id=self._numbers.get(ManifestField.NEXT_ROW_ID, 0),
            timestamp_millis=self._timestamp_millis,
            has_overlays=self._has_overlays,
            transaction_file=self._transaction_file,
        )

    def read_field_ids(self, message: bytes) -> Mapping[str, int]:
        ids: dict[str, int] = {}
        for number, value in self._fields(message):
            if number != ManifestField.FIELDS:
                continue
            name, numbers = "", {FIELD_ID: 0, FIELD_PARENT: 0}
            for part, content in self._fields(_bytes(value)):
                if part == FIELD_NAME:
                    name = _bytes(content).decode(errors="replace")
                elif part in numbers:
                    numbers[part] = _integer(content)
            if numbers[FIELD_PARENT] == NO_PARENT:
                ids[name] = numbers[FIELD_ID]
        return ids

    def _read_field(self, number: int, value: WireValue) -> None:
        match number:
            case ManifestField.FRAGMENTS:
                self._read_fragment(_bytes(value))
            case (
                ManifestField.VERSION
                | ManifestField.INDEX_SECTION
                | ManifestField.READER_FLAGS
                | ManifestField.WRITER_FLAGS
                | ManifestField.NEXT_ROW_ID
            ):
                self._numbers[number] = _integer(value)
            case ManifestField.TIMESTAMP:
                self._read_timestamp(_bytes(value))
            case ManifestField.TRANSACTION_FILE:
                self._transaction_file = _path(value) if len(_bytes(value)) else ""
                if self._transaction_file:
                    self._other_paths.append(self._transaction_file)
            case ManifestField.BASE_PATHS:
                self._base_paths.append(self._path_in(_bytes(value), BASE_PATH))
            case ManifestField.BRANCH:
                self._branch = _path(value)
            case _:
                pass

    def _read_fragment(self, message: bytes) -> None:
        for number, value in self._fields(message):
            if number == FragmentField.FILES:
                self._data_paths.append(self._path_in(_bytes(value), FILE_PATH))
            elif number in EXTERNAL_FILES:
                self._other_paths.append(self._path_in(_bytes(value), FILE_PATH))
            elif number == FragmentField.OVERLAYS:
                self._has_overlays = True

    def _read_indices(self, section: bytes) -> None:
        for number, index in self._fields(section):
            if number != SECTION_INDICES:
                continue
            details: list[bytes] = []
            for part, value in self._fields(_bytes(index)):
                if part == INDEX_FILES:
                    self._other_paths.append(self._path_in(_bytes(value), FILE_PATH))
                elif part == INDEX_DETAILS:
                    details.append(_bytes(value))
            # Protobuf merges a message field that occurs several times.
            self._read_details(b"".join(details))

    def _read_details(self, message: bytes) -> None:
        """Only the fragment-reuse index, which records compactions, references a file in its details."""
        kind = details = b""
        for number, value in self._fields(message):
            if number == ANY_TYPE:
                kind = _bytes(value).lower()
            elif number == ANY_VALUE:
                details = _bytes(value)
        if not kind.endswith(FRAGMENT_REUSE):
            return
        for number, value in self._fields(details):
            if number == REUSE_EXTERNAL:
                self._other_paths.append(self._path_in(_bytes(value), FILE_PATH))

    def _read_timestamp(self, message: bytes) -> None:
        seconds = nanos = 0
        for number, value in self._fields(message):
            if number == TIMESTAMP_SECONDS:
                seconds = _integer(value)
            elif number == TIMESTAMP_NANOS:
                nanos = _integer(value)
        self._timestamp_millis = seconds * 1000 + nanos // 1_000_000

    def _path_in(self, message: bytes, wanted: int) -> str:
        path = ""
        for number, value in self._fields(message):
            if number == wanted:
                path = _path(value)
        return path

    def _fields(self, message: bytes) -> Iterator[tuple[int, WireValue]]:
        """The fields of a protobuf message in order; a repeated field occurs several times."""
        position = 0
        while position < len(message):
            self._fields_left -= 1
            if self._fields_left < 0:
                raise DamagedManifest(f"it has more than {MAX_WIRE_FIELDS:,} fields")
            key, position = _varint(message, position)
            wire_type = key & 7
            if key < MIN_FIELD_KEY:
                raise DamagedManifest("a field has the number 0")
            if wire_type == 0:
                value, position = _varint(message, position)
                yield key >> 3, value
                continue
            length, position = _length(message, position, wire_type)
            if position + length > len(message):
                raise DamagedManifest("a field ends outside its message")
            yield key >> 3, message[position : position + length]
            position += length


def _message_at(content: bytes, position: int) -> bytes:
    start = position + LENGTH.size
    if start > len(content):
        raise DamagedManifest("a section starts outside the file")
    (length,) = LENGTH.unpack_from(content, position)
    if start + length > len(content):
        raise DamagedManifest("a section ends outside the file")
    return content[start : start + length]


def _length(message: bytes, position: int, wire_type: int) -> tuple[int, int]:
    match wire_type:
        case 1:
            return 8, position
        case 2:
            return _varint(message, position)
        case 5:
            return 4, position
        case _:
            raise DamagedManifest(f"a field has the unknown wire type {wire_type}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    # The fast path: nearly all have one byte, and a large table has millions of them.
    if position < len(message) and message[position] < CONTINUATION_BIT:
        return message[position], position + 1
    result = shift = 0
    for byte in message[position : position + MAX_VARINT_BYTES]:
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < CONTINUATION_BIT and result <= MAX_INTEGER:
            return result, position
        if byte < CONTINUATION_BIT:
            break
    raise DamagedManifest("a number is truncated or too large")


def _integer(value: WireValue) -> int:
    if not isinstance(value, int):
        raise DamagedManifest("a number has the wrong wire type")
    return value


def _bytes(value: WireValue) -> bytes:
    if isinstance(value, int):
        raise DamagedManifest("a string or message has the wrong wire type")
    return value


def _path(value: WireValue) -> str:
    raw = _bytes(value)
    if len(raw) > MAX_PATH_BYTES:
        raise DamagedManifest(f"a path is longer than {MAX_PATH_BYTES:,} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DamagedManifest("a path is not UTF-8") from error
