"""Blobs as files: only the ranges that a function reads are fetched."""

from __future__ import annotations

import io
import os
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class BlobSource(Protocol):
    """The bytes of a blob, wherever they are stored."""

    def size(self) -> int: ...

    def read_at(self, offset: int, length: int) -> bytes: ...


class FileSource:
    """A blob in an open file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = Lock()

    def size(self) -> int:
        known = getattr(self._file, "size", None)
        if callable(known):
            return int(known())
        with self._lock:
            return self._file.seek(0, os.SEEK_END)

    def read_at(self, offset: int, length: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            return self._file.read(length)


class Blob(io.RawIOBase):
    """A blob of the current row, as a file; it can be read only during the call."""

    def __init__(self, source: BlobSource) -> None:
        super().__init__()
        self._source = source
        self._position = 0
        self._size: int | None = None

    def size(self) -> int:
        self._check_open()
        if self._size is None:
            self._size = self._source.size()
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        starts = {os.SEEK_SET: lambda: 0, os.SEEK_CUR: self.tell, os.SEEK_END: self.size}
        if whence not in starts:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        position = starts[whence]() + offset
        if position < 0:
            raise ValueError(f"there is nothing before the start of a blob (position {position})")
        self._position = position
        return position

    def read(self, size: int | None = -1) -> bytes:
        rest = max(self.size() - self._position, 0)
        length = rest if size is None or size < 0 else min(size, rest)
        found = self._source.read_at(self._position, length) if length else b""
        self._position += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("a blob can be read only while the call it was given to lasts")
