"""Plans: what would be done and why, decided before anything is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.jobs.model.coverage import key_mask, row_set


@dataclass(frozen=True, slots=True)
class FragmentInfo:
    """A fragment of a table: its rows as stored, and how many of them are alive."""

    fragment_id: int
    physical_rows: int
    live_rows: int


@dataclass(frozen=True)
class TableSnapshot:
    """A table at one version, without its rows; `field_ids` are those of all fields, by dotted paths."""

    version: int
    schema: pa.Schema
    fragments: tuple[FragmentInfo, ...]
    has_stable_row_ids: bool
    field_ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def live_rows(self) -> int:
        return sum(fragment.live_rows for fragment in self.fragments)


@dataclass(frozen=True)
class RowLocations:
    """Row ids and the fragment each is in, in the same order."""

    row_ids: npt.NDArray[np.uint64]
    fragment_ids: npt.NDArray[np.uint64]

    def by_fragment(self, wanted: BitMap64 | None = None) -> dict[int, BitMap64]:
        """The (wanted) row ids of each fragment that has any."""
        ids, fragment_ids = self.row_ids, self.fragment_ids
        if np.any(fragment_ids[1:] < fragment_ids[:-1]):
            order = np.argsort(fragment_ids, kind="stable")
            ids, fragment_ids = ids[order], fragment_ids[order]
        starts = np.flatnonzero(fragment_ids[1:] != fragment_ids[:-1]) + 1
        fragments = fragment_ids[np.concatenate([[0], starts])] if len(ids) else fragment_ids
        found: dict[int, BitMap64] = {}
        for fragment, rows in zip(fragments, np.split(ids, starts), strict=False):
            bitmap = row_set(rows) if wanted is None else row_set(rows) & wanted
            if bitmap:
                found[int(fragment)] = bitmap
        return found

    def window(self, offset: int | None, limit: int | None) -> RowLocations:
        """So many of the rows, in the order they are stored."""
        start = offset or 0
        end = None if limit is None else start + limit
        return RowLocations(self.row_ids[start:end], self.fragment_ids[start:end])

    def among(self, rows: BitMap64) -> RowLocations:
        """Those of these rows."""
        is_wanted = key_mask(self.row_ids, rows)
        return RowLocations(self.row_ids[is_wanted], self.fragment_ids[is_wanted])

    def all_rows(self) -> BitMap64:
        return row_set(self.row_ids)


@dataclass(frozen=True)
class FragmentWork:
    """The rows of one fragment that have to be computed; None means all that are alive.

    A `span` narrows that to so many of the live rows, from the given one on, in the order they are stored.
    """

    fragment_id: int
    rows: BitMap64 | None
    row_count: int
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class CommitGroup:
    """Fragments that are committed together, and the tasks that compute their rows.

    Work that is cut into pieces smaller than a fragment is computed first, by `pieces`, and then joined.
    """

    tasks: tuple[tuple[FragmentWork, ...], ...]
    pieces: tuple[tuple[FragmentWork, ...], ...] = ()

    @property
    def work(self) -> tuple[FragmentWork, ...]:
        """What is filled, fragment by fragment."""
        return tuple(item for task in self.tasks for item in task)

    @property
    def rows(self) -> int:
        return sum(item.row_count for item in self.work)


@dataclass(frozen=True)
class BackfillPlan:
    """Fragments to fill at `read_version`, in groups of one commit each."""

    read_version: int
    groups: tuple[CommitGroup, ...]
    reason: str
    rows_reused: int = 0

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def fragments(self) -> int:
        return sum(len(group.work) for group in self.groups)

    @property
    def tasks(self) -> int:
        """Tasks that call the function: pieces where work is cut, whole fragments elsewhere."""
        return sum(len(group.pieces) or len(group.tasks) for group in self.groups)

    @property
    def is_empty(self) -> bool:
        return not self.groups

    def summary(self) -> dict[str, int | str]:
        """The figures that are shown before a job and kept with it."""
        return {
            "read_version": self.read_version,
            "rows": self.rows,
            "rows_reused": self.rows_reused,
            "fragments": self.fragments,
            "tasks": self.tasks,
            "commits": len(self.groups),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class BackfillExplanation:
    """A plan with what is foreseen about carrying it out; no expected time where nothing is known."""

    plan: BackfillPlan
    expected_seconds: float | None
    conflicts: tuple[str, ...]


@dataclass(frozen=True)
class KeyedRows:
    """Rows of a view: the id and the key of each, in the same order."""

    row_ids: npt.NDArray[np.uint64]
    keys: npt.NDArray[np.uint64]

    def all_rows(self) -> BitMap64:
        return row_set(self.row_ids)

    def rows_of(self, keys: BitMap64 | None) -> BitMap64:
        """The ids of the rows with one of these keys; None: of all."""
        if keys is None:
            return self.all_rows()
        if not keys:
            return BitMap64()
        return row_set(self.row_ids[key_mask(self.keys, keys)])


@dataclass(frozen=True)
class ViewEdits:
    """What others did to a view's own columns: the keys of the rows concerned, or why that cannot be told."""

    version: int
    keys: BitMap64 = field(default_factory=BitMap64)
    lost_reason: str | None = None


class RefreshMode(StrEnum):
    """What a refresh comes to."""

    NO_OP = "no_op"
    INCREMENTAL = "incremental"
    FULL = "full"


@dataclass(frozen=True)
class SourceChange:
    """What happened to one source since the view was last refreshed; None where that cannot be told."""

    source: tuple[str, ...]
    from_version: int | None
    version: int
    inserted: int | None
    updated: int | None
    deleted: int | None


@dataclass(frozen=True)
class RefreshPlan:
    """What a refresh does, and with which versions of its sources.

    `work` are source rows to evaluate, `stale` those whose old results go if nothing new takes their place.
    `keys` are the groups, join keys or partitions to make anew; with neither, everything is.
    `rows` counts source rows to read for that, as far as it is known before.
    """

    mode: RefreshMode
    reason: str
    changes: tuple[SourceChange, ...]
    rows: int
    rows_reused: int = 0
    rows_replaced: int = 0
    rows_removed: int = 0
    work: tuple[FragmentWork, ...] = ()
    stale: BitMap64 = field(default_factory=BitMap64)
    keys: BitMap64 | None = None

    @property
    def source_version(self) -> int:
        """Of the first source; a view that cannot be read has none."""
        return self.changes[0].version if self.changes else 0

    @property
    def is_empty(self) -> bool:
        return self.mode is RefreshMode.NO_OP

    @property
    def is_full(self) -> bool:
        return self.mode is RefreshMode.FULL

    def summary(self) -> dict[str, Any]:
        """The figures that are shown before a job and kept with it."""
        return {
            "mode": self.mode.value,
            "reason": self.reason,
            "source_version": self.source_version,
            "rows": self.rows,
            "rows_reused": self.rows_reused,
            "rows_replaced": self.rows_replaced,
            "rows_removed": self.rows_removed,
            "keys": None if self.keys is None else len(self.keys),
            "sources": [{**asdict(change), "source": list(change.source)} for change in self.changes],
        }


@dataclass(frozen=True)
class RefreshExplanation:
    """A plan with what is foreseen about carrying it out; no expected time where nothing is known."""

    plan: RefreshPlan
    expected_seconds: float | None
    conflicts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A table that a statement reads: what the user calls it, and the name it has in the plan's statement.

    `columns` are those read, whole columns at the top level. `key_columns` are those that tell which rows of
    the result a row can have part in; all sources of a plan that is refreshed by keys have them, and their
    first ones correspond, and so on.
    """

    levels: tuple[str, ...]
    name: str
    columns: tuple[str, ...]
    key_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class SqlPlan:
    """A statement made ready for Spark: it reads sources by their names and yields `output`, `__key` first.

    `full_reason` says why the result can only be made as a whole; None means that rows with certain keys can
    be made from the source rows with these keys, and from no others.
    """

    statement: str
    sources: tuple[SqlSource, ...]
    output: pa.Schema
    full_reason: str | None = None
