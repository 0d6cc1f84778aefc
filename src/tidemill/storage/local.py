"""Table files in a local directory."""

from __future__ import annotations

import filecmp
import os
import shutil
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

from tidemill.errors import InvalidInput, Unavailable


class LocalTableFiles:
    """Files under one warehouse directory; nothing outside it is ever touched."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse.resolve()
        self._warehouse.mkdir(parents=True, exist_ok=True)

    def location_of(self, table_id: UUID) -> str:
        return str(self._warehouse / f"{table_id}.lance")

    def key_of(self, location: str) -> str:
        return location.removeprefix("/")

    def size_of(self, key: str) -> int | None:
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError:
            return None

    def read_tail(self, key: str, length: int) -> bytes:
        with self._path(key).open("rb") as file:
            file.seek(-length, os.SEEK_END)
            return file.read(length)

    def copy_if_absent(self, source_key: str, target_key: str) -> None:
        target = self._path(target_key)
        staging = target.with_name(f".{target.name}.{uuid4()}")
        try:
            shutil.copyfile(self._path(source_key), staging)
            with suppress(FileExistsError):
                os.link(staging, target)
        except FileNotFoundError:
            # A client may have finished the move for us.
            if not target.exists():
                raise
        finally:
            staging.unlink(missing_ok=True)

    def is_same(self, first_key: str, second_key: str) -> bool:
        try:
            return filecmp.cmp(self._path(first_key), self._path(second_key), shallow=False)
        except FileNotFoundError:
            return False

    def remove(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def remove_table(self, location: str) -> None:
        path = self._path(self.key_of(location))
        if path.parent != self._warehouse:
            raise InvalidInput("location", f"{location} is not a table of this warehouse")
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def check_writable(self) -> None:
        """Raises Unavailable when the warehouse cannot be written to."""
        probe = self._warehouse / f".probe-{uuid4()}"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise Unavailable(f"The warehouse {self._warehouse} is not writable: {error}") from error

    def _path(self, key: str) -> Path:
        """Refuses `..` and links: they lead out of the warehouse, or into the files of another table."""
        path = Path("/" + key)
        if path.resolve() != path or not path.is_relative_to(self._warehouse):
            raise InvalidInput("path", f"{key!r} is outside the warehouse, or a link")
        return path
