"""Coverage: which source rows have an up-to-date result, as of which source version."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64


@dataclass(frozen=True)
class Coverage:
    """Rows whose result equals function(inputs at `watermark`); `revision` guards against lost updates.

    A stored coverage has revision 1 or more; revision 0 means nothing has been stored yet. `published` is the
    latest version of the table that holds results of it. The `outdated` rows hold results, too, but of values
    that have changed since.

    `files` are marks of the data files that the values lie in at the watermark, one for each fragment: in a
    fragment with one of these marks nothing has changed, whatever happened to the table. Elsewhere the
    fingerprints in `segments` tell which values are right.
    """

    digest: str
    watermark: int = 0
    rows: BitMap64 = field(default_factory=BitMap64)
    revision: int = 0
    published: int = 0
    outdated: BitMap64 = field(default_factory=BitMap64)
    files: BitMap64 = field(default_factory=BitMap64)
    segments: tuple[str, ...] = ()

    @property
    def held(self) -> BitMap64:
        """Every row that holds a result, up to date or not."""
        return self.rows | self.outdated


@dataclass(frozen=True)
class Changes:
    """What happened to a table's rows between two versions, as far as some columns are concerned.

    `updated` may hold rows that were added too; `is_total` means nothing of before can be relied upon.
    `regained` are rows that hold a right result again, whether they were covered or not. `files` are the
    marks of all fragments at the later version; None if they were not looked at.
    """

    updated: BitMap64 = field(default_factory=BitMap64)
    is_total: bool = False
    reason: str | None = None
    regained: BitMap64 = field(default_factory=BitMap64)
    files: BitMap64 | None = None


@dataclass(frozen=True)
class Watched:
    """The columns whose values matter: what a function reads, and what it fills.

    `own_versions` are those in which jobs filled the outputs; what they wrote there is right. `expressions`
    yield what the function is given, whose fingerprints are kept; there are none for what it reads itself.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    own_versions: frozenset[int] = frozenset()
    expressions: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Top-level columns: those are written as a whole."""
        return tuple(dict.fromkeys(top_level(name) for name in (*self.inputs, *self.outputs)))


def top_level(path: str) -> str:
    """The column that a dotted path leads into."""
    return path.split(".")[0].strip("`")


def advance(coverage: Coverage, changes: Changes, version: int) -> Coverage:
    """The same coverage seen from a later version: what changed since is no longer covered."""
    rows = BitMap64() if changes.is_total else (coverage.rows - changes.updated) | changes.regained
    files = BitMap64() if changes.files is None else changes.files
    return replace(coverage, watermark=version, rows=rows, outdated=coverage.held - rows, files=files)


def is_ascending(row_ids: npt.NDArray[np.uint64] | npt.NDArray[np.int64]) -> bool:
    """Whether each id is greater than the one before."""
    return bool(np.all(row_ids[1:] > row_ids[:-1]))


def row_set(row_ids: npt.NDArray[np.uint64]) -> BitMap64:
    """The ids as a set. Ids mostly come as one ascending run, which takes neither sorting nor adding each."""
    if not len(row_ids):
        return BitMap64()
    if not is_ascending(row_ids):
        row_ids = np.sort(row_ids)
    first, last = int(row_ids[0]), int(row_ids[-1])
    if last - first + 1 == len(row_ids) and bool(np.all(np.diff(row_ids) == 1)):
        rows = BitMap64()
        rows.add_range(first, last + 1)
        return rows
    return BitMap64(array("Q", np.ascontiguousarray(row_ids, dtype=np.uint64).tobytes()))


def key_mask(keys: npt.NDArray[np.uint64], wanted: BitMap64) -> npt.NDArray[np.bool_]:
    """Which of the keys are wanted; there may be many keys, and the same ones again."""
    members = np.array(wanted.to_array(), dtype=np.uint64)
    if not len(members):
        return np.zeros(len(keys), dtype=np.bool_)
    found: npt.NDArray[np.bool_] = (
        members[np.minimum(np.searchsorted(members, keys), len(members) - 1)] == keys
    )
    return found


def member_mask(row_ids: npt.NDArray[np.uint64], rows: BitMap64) -> npt.NDArray[np.bool_]:
    """Which of the ids are in the set."""
    members = np.array(rows.to_array(), dtype=np.uint64)
    return np.isin(row_ids, members, assume_unique=True)
