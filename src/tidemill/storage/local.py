"""Table files in a local directory."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final
from urllib.parse import unquote
from uuid import UUID, uuid4

from tidemill.catalog.model.callers import StorageAccess
from tidemill.catalog.storage_failures import storage_failure
from tidemill.errors import InvalidInput, StorageFull, Unavailable
from tidemill.storage.warehouse import check_removable

STAGING: Final = ".staging"
MIN_FREE_BYTES: Final = 1 << 20
PROBE_BYTES: Final = 4096
LINK_UNSUPPORTED: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK})
# The caller's path is at fault, not the disk. A NUL byte in a path raises ValueError instead.
INVALID_PATH: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP})


class LocalTableFiles:
    """Files under a warehouse directory, and under other directories that may contain registered tables.

    Nothing outside these directories is ever touched, and tables are only removed inside the warehouse.
    """

    def __init__(self, warehouse: Path, allowed: Sequence[Path] = ()) -> None:
        self._warehouse = warehouse.resolve()
        self._warehouse.mkdir(parents=True, exist_ok=True)
        self._prefixes = tuple(f"{root.resolve()}/" for root in (warehouse, *allowed))

    def location_of(self, table_id: UUID) -> str:
        return str(self._warehouse / f"{table_id}.lance")

    def key_of(self, location: str) -> str:
        path = unquote(location.removeprefix("file://")) if location.startswith("file://") else location
        return path.removeprefix("/")

    def key_of_file(self, location: str) -> str:
        return location.removeprefix("/")

    def is_inside(self, location: str) -> bool:
        try:
            path = self._checked(self.key_of(location))
        except InvalidInput:
            return False
        with suppress(FileNotFoundError):
            # Raises NotADirectoryError if a parent of the path is a file.
            os.lstat(path)
        return f"{path}/" not in self._prefixes

    def size_of(self, key: str) -> int | None:
        status = self._lstat(key)
        return None if status is None else status.st_size

    def list_names(self, key: str) -> Sequence[str]:
        try:
            names = [entry.name for entry in self._path(key).iterdir() if entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.endswith(STAGING))

    def read(self, key: str) -> bytes:
        with open(self._checked(key), "rb") as file:
            return file.read()

    def write(self, key: str, data: bytes) -> None:
        self.check_reachable()
        target = self._path(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = _staging_path(target)
        try:
            staging.write_bytes(data)
            staging.replace(target)
        finally:
            staging.unlink(missing_ok=True)

    def copy_if_absent(self, source_key: str, target_key: str, content: bytes | None = None) -> bool:
        source, target = self._checked(source_key), self._checked(target_key)
        try:
            # Staged files are never modified, so a hard link is as good as a copy.
            os.link(source, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in LINK_UNSUPPORTED:
                raise
            return _copy_without_links(source, target)
        return True

    def remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._checked(key))

    def check_reachable(self) -> None:
        if not self._warehouse.is_dir():
            raise Unavailable(f"The warehouse directory {self._warehouse} is missing; is it mounted?")

    def make_directory(self, key: str) -> None:
        self.check_reachable()
        self._path(key).mkdir(parents=True, exist_ok=True)

    def remove_table(self, location: str) -> None:
        path = self._path(self.key_of(location))
        check_removable(location, path.relative_to(self._warehouse).parts)
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def vend(self, location: str, access: StorageAccess = StorageAccess.WRITE) -> Mapping[str, str]:
        """No options: any client that can reach the directory can open the table."""
        return {}

    def check_readable(self) -> None:
        self.check_reachable()
        try:
            with os.scandir(self._warehouse) as entries:
                next(entries, None)
        except OSError as error:
            raise Unavailable(f"The warehouse {self._warehouse} cannot be read: {error.strerror}") from error

    def check_writable(self) -> None:
        check_directory_writable(self._warehouse, f"to the warehouse {self._warehouse}")

    def _path(self, key: str) -> Path:
        return Path(self._checked(key))

    def _checked(self, key: str) -> str:
        """Raises InvalidInput for `..` and links, which may leave the warehouse or enter another table."""
        path = os.path.normpath("/" + key) if "//" in key or "/./" in key or key.endswith("/") else "/" + key
        self._lstat(path[1:])
        return path

    def _lstat(self, key: str) -> os.stat_result | None:
        """The status of a file or directory, or None if it does not exist. Raises InvalidInput for links.

        Every path segment below the warehouse is checked on each call, because it may have been replaced by a
        link. The warehouse itself is resolved once, when it is opened.
        """
        path = "/" + key
        if f"{path}/" in self._prefixes:
            return os.lstat(path)
        parent = next((prefix for prefix in self._prefixes if path.startswith(prefix)), None)
        names = [] if parent is None else path[len(parent) :].split("/")
        if parent is None or ".." in names:
            raise InvalidInput("path", f"{key!r} is outside the warehouse, or a link")
        status = None
        for name in names:
            try:
                status = os.lstat(parent + name)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno not in INVALID_PATH:
                    raise
                raise InvalidInput("path", f"{key!r:.200} cannot be the path of a file: {error}") from error
            if stat.S_ISLNK(status.st_mode):
                raise InvalidInput("path", f"{key!r} is outside the warehouse, or a link")
            parent += name + "/"
        return status


def _staging_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid4()}{STAGING}")


def _copy_without_links(source: str, target: str) -> bool:
    """For file systems without hard links: creates an empty file to claim the name, then replaces it.

    A claim left behind by a crash is taken over. That is safe: Lance itself commits with hard links, so on
    such a file system only servers write, and the database has already chosen one of them.
    """
    staging = _staging_path(Path(target))
    try:
        shutil.copyfile(source, staging)
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            if os.stat(target).st_size:
                return False
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)
    return True


def check_directory_writable(directory: Path, what: str) -> None:
    """Raises Unavailable if no file can be written in the directory, StorageFull if there is no room.

    The probe is a file without a name, so nothing remains of it even if this process is killed.
    """
    try:
        space = os.statvfs(directory)
        # What is free for root alone does not help others.
        free = (space.f_bfree if os.geteuid() == 0 else space.f_bavail) * space.f_frsize
        # File systems that do not know their size report none.
        if space.f_blocks and free < MIN_FREE_BYTES:
            raise StorageFull(what, f"{free:,} bytes are free")
        with TemporaryFile(dir=directory, buffering=0) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        reason = f"{directory} is not writable: {error.strerror or error}"
        raise storage_failure(error, what) or Unavailable(reason) from error
