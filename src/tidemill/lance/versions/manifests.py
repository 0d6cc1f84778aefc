"""Lance manifests in storage: names, checks, and publishing with put-if-absent.

A version exists once there is a manifest at its final name, and that name can be given only once. `publish`
therefore tries to copy the staged manifest there and, if the name is taken, finds out by digest whose
manifest it is. There are three possibilities: another writer was first, an earlier attempt of ours succeeded
and its response was lost, or another process has already published our row.

Staged manifests of clients are untrusted: they could name files of other tables. `check_request` and
`check_content` check path, size and content before a version is reserved.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final
from urllib.parse import quote

from tidemill.catalog.model.tables import MAIN_BRANCH, Table, TableVersion, VersionEntry
from tidemill.catalog.nonblocking import may_block
from tidemill.catalog.ports import TableFiles
from tidemill.errors import InvalidInput, Unavailable
from tidemill.lance.versions.manifest_format import check_staged

MAX_MANIFEST_BYTES: Final = 64 << 20
SMALL_MANIFEST_BYTES: Final = 64 << 10
MAX_U64: Final = (1 << 64) - 1
STAGED_NAME: Final = re.compile(r"\d{1,20}\.manifest-[0-9a-f-]{36}")
FINAL_NAME: Final = re.compile(r"(\d{1,20})\.manifest")
NAMING_SCHEMES: Final = ("V1", "V2")
DEFAULT_SCHEME: Final = "V2"
# A manifest that exists and then does not was cleaned up between the two checks.
PUBLISH_ATTEMPTS: Final = 3


class Publication(Enum):
    """Whose manifest has the final name of a version, after an attempt to publish ours."""

    OURS = "ours"
    FOREIGN = "foreign"
    MISSING = "missing"
    # Later versions exist, and they may be built on a manifest that had this name before and was cleaned up.
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True)
class StagedManifest:
    """The content of a staged manifest at the time it was read. This content is committed."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class StagedManifestMissing(InvalidInput):
    def __init__(self, entry: VersionEntry) -> None:
        super().__init__("manifest_path", f"there is no object at {entry.manifest_path}")


@dataclass(frozen=True, slots=True)
class Listing:
    """The keys of existing manifests: final ones by version, and staged ones."""

    final: Mapping[int, str]
    staged: frozenset[str]


class StoredManifests:
    """Reads and publishes the manifests of a table in storage."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files

    def directory(self, table: Table) -> str:
        return f"{self._files.key_of(table.data_location)}/_versions"

    def final_key(self, table: Table, version: int, scheme: str) -> str:
        return f"{self.directory(table)}/{manifest_name(version, scheme)}"

    def next_key(self, table: Table, version: TableVersion) -> str:
        """Where a writer by location would put the next version."""
        return self.final_key(table, version.version + 1, scheme_of(version))

    def has(self, key: str) -> bool:
        return self._files.size_of(key) is not None

    def size_of(self, key: str) -> int | None:
        return self._files.size_of(key)

    def find_all(self, table: Table) -> Listing:
        return self._list(self.directory(table))

    def _list(self, directory: str) -> Listing:
        names = self._files.list_names(directory)
        matches = (FINAL_NAME.fullmatch(name) for name in names)
        numbers = ((int(match[1]), match[0]) for match in matches if match is not None)
        return Listing(
            final={_version_of(number): f"{directory}/{name}" for number, name in numbers},
            staged=frozenset(f"{directory}/{name}" for name in names if STAGED_NAME.fullmatch(name)),
        )

    def has_branch(self, table: Table) -> bool:
        """Whether the reference of this branch exists in storage."""
        if table.branch == MAIN_BRANCH:
            return True
        root = self._files.key_of(table.location)
        return self.has(f"{root}/_refs/branches/{quote(table.branch, safe='')}.json")

    def resolved(self, table: Table, entry: VersionEntry) -> VersionEntry:
        """The entry with the key of its manifest: a path with a leading slash is relative to the table.

        It is not normalized, so a path that leaves the table is no path that `check_request` accepts.
        """
        if not entry.manifest_path.startswith("/"):
            return entry
        return replace(entry, manifest_path=self._files.key_of(table.location) + entry.manifest_path)

    def check_request(self, table: Table, entry: VersionEntry) -> None:
        """Checks the request only: the path must be a staged manifest of this branch of this table."""
        directory, _, name = entry.manifest_path.rpartition("/")
        if directory != self.directory(table) or not STAGED_NAME.fullmatch(name):
            raise InvalidInput(
                "manifest_path",
                f"{entry.manifest_path!r:.200} is not a staged manifest of this table; "
                f"it must be {self.directory(table)}/<number>.manifest-<uuid>, or the same path "
                "relative to the table with a leading slash",
            )
        if entry.naming_scheme not in (None, *NAMING_SCHEMES):
            raise InvalidInput("naming_scheme", f"must be 'V1' or 'V2', not {entry.naming_scheme!r:.60}")

    def check_content(self, table: Table, entry: VersionEntry) -> StagedManifest:
        """Reads the staged manifest of a client and rejects unsafe content."""
        staged = self.get_staged(entry)
        check_staged(
            staged.content, entry.version, table.branch, lambda path: self._is_part_of_table(table, path)
        )
        return staged

    def get_staged(self, entry: VersionEntry) -> StagedManifest:
        """Raises InvalidInput if the object is missing or does not have the size in the request."""
        staged = self.find_staged(entry)
        if staged is None:
            raise StagedManifestMissing(entry)
        return staged

    def find_staged(self, entry: VersionEntry) -> StagedManifest | None:
        """None if the object is missing; raises InvalidInput if it does not have the size in the request."""
        size = self._files.size_of(entry.manifest_path)
        if size is None:
            return None
        if entry.manifest_size not in (None, size):
            raise InvalidInput("manifest_size", f"is {entry.manifest_size}, but the object has {size} bytes")
        if size > MAX_MANIFEST_BYTES:
            raise InvalidInput(
                "manifest_path",
                f"is a manifest of {size:,} bytes; at most {MAX_MANIFEST_BYTES:,} are allowed",
            )
        if size > SMALL_MANIFEST_BYTES:
            may_block()
        try:
            return StagedManifest(self._files.read(entry.manifest_path))
        except FileNotFoundError:
            return None

    def publish(self, version: TableVersion, staged: StagedManifest | None = None) -> Publication:
        """Gives the staged manifest of a row its final name unless the name is taken; says whose it is.

        Any process may do this for any row, any number of times. The name is given only once: by this call,
        by an earlier one, or by a writer by location.
        """
        if version.was_found:
            size = self._files.size_of(version.manifest_path)
            if size is None:
                return Publication.MISSING
            return Publication.OURS if size == version.manifest_size else Publication.FOREIGN
        content = None if staged is None else staged.content
        for _ in range(PUBLISH_ATTEMPTS):
            try:
                if self._files.copy_if_absent(version.staged_path, version.manifest_path, content):
                    return self._check_first(version)
            except FileNotFoundError:
                # Another process published our manifest and removed the staged one.
                return self._identify(version)
            published = self._identify(version)
            if published is not Publication.MISSING:
                return published
        raise Unavailable(
            f"Storage reports that {version.manifest_path} exists, but does not return it; try again"
        )

    def _check_first(self, version: TableVersion) -> Publication:
        """Takes back a manifest that was published under a name which may have been used before.

        A name is free again once its version is cleaned up. Clean-ups remove older versions first and never
        the latest. So while the version before exists, or while none after exists, ours is the first with its
        name. Otherwise that cannot be told, and ours is as good as cleaned up: readers have later versions.
        """
        directory = version.manifest_path.rpartition("/")[0]
        before = f"{directory}/{manifest_name(version.version - 1, scheme_of(version))}"
        if self.has(before) or max(self._list(directory).final, default=0) <= version.version:
            return Publication.OURS
        self.remove(version.manifest_path)
        return Publication.OVERTAKEN

    def has_content(self, key: str, staged: StagedManifest) -> bool:
        """Whether the object exists and has the same content."""
        try:
            return self._files.size_of(key) == staged.size and self._files.read(key) == staged.content
        except FileNotFoundError:
            return False

    def _identify(self, version: TableVersion) -> Publication:
        try:
            published = StagedManifest(self._files.read(version.manifest_path))
            if version.digest is not None:
                is_ours = published.digest == version.digest
            else:
                # A row without a digest, from before digests were stored. If the final manifest is ours, the
                # staged one may be gone.
                size = self._files.size_of(version.staged_path)
                is_ours = size is None or self.has_content(version.staged_path, published)
        except FileNotFoundError:
            return Publication.MISSING
        return Publication.OURS if is_ours else Publication.FOREIGN

    def remove(self, key: str) -> None:
        self._files.remove(key)

    def _is_part_of_table(self, table: Table, path: str) -> bool:
        """A branch may read files of the table and its branches, which it shares with them, and no others."""
        root = self._files.key_of(table.location)
        base = self._files.key_of(path.removeprefix("file://")).rstrip("/")
        return base == root or (base.startswith(f"{root}/tree/") and ".." not in base.split("/"))


def manifest_name(version: int, scheme: str) -> str:
    return f"{version}.manifest" if scheme == "V1" else f"{MAX_U64 - version:020}.manifest"


def scheme_of(version: TableVersion) -> str:
    """The naming scheme of a manifest; the next version will use the same."""
    number = version.manifest_path.rpartition("/")[2].partition(".")[0]
    return "V1" if int(number) == version.version else "V2"


def scheme_for(table: Table, entry: VersionEntry, latest: TableVersion | None) -> str:
    """The naming scheme of a new manifest. Readers by path find the manifests of one scheme only."""
    if latest is None:
        return entry.naming_scheme or DEFAULT_SCHEME
    scheme = scheme_of(latest)
    if entry.naming_scheme not in (None, scheme):
        raise InvalidInput(
            "naming_scheme",
            f"is {entry.naming_scheme}, but the manifests of {table.ident} are named by {scheme}; "
            f"send {scheme} or leave it out",
        )
    return scheme


def _version_of(number: int) -> int:
    """V2 names count down from the largest number, so that the newest manifest is listed first."""
    return MAX_U64 - number if number > MAX_U64 >> 1 else number
