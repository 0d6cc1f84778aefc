"""Stages: pieces of work for an executor, as data, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.environments import OWN_ENVIRONMENT, Environment
from tidemill.catalog.model.functions import Function
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy, RowFailure
from tidemill.jobs.model.plans import FragmentWork

SHORTEST_FLUSH: Final = 0.5
LONGEST_FLUSH: Final = 10.0
LOST_SHARE: Final = 0.02
WRITTEN_PER_SECOND: Final = 200e6


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How many rows a function gets at a time, and how often results are put in safety.

    The first batch is small: how slow the function is, is not known yet, and nothing is safe before it ends.
    The interval counts the time spent in the function. Without one it follows how much there is to lose:
    a fiftieth of what the task has computed so far, within bounds; values that are quicker computed than
    written are not worth it.
    """

    initial_rows: int = 64
    min_rows: int = 1
    max_rows: int = 65536
    target: timedelta = timedelta(seconds=0.25)
    flush_interval: timedelta | None = None

    def is_due(self, unsaved_seconds: float, total_seconds: float) -> bool:
        """Whether results should be put in safety after so much time since the last time, and in all."""
        if self.flush_interval is not None:
            return unsaved_seconds >= self.flush_interval.total_seconds()
        return unsaved_seconds >= min(LONGEST_FLUSH, max(SHORTEST_FLUSH, total_seconds * LOST_SHARE))

    def is_worth_saving(self, seconds: float, size: int) -> bool:
        """Whether values of that size, computed in that time, should be written just to be safe."""
        return self.flush_interval is not None or size <= seconds * WRITTEN_PER_SECOND


@dataclass(frozen=True)
class CheckpointRef:
    """A file of values computed before, and the rows whose values in it still hold."""

    path: str
    rows: BitMap64


@dataclass(frozen=True)
class FunctionCall:
    """A function bound to columns of a table; `name` is the view's column it makes, if it makes just one."""

    function: Function
    inputs: tuple[str, ...]
    name: str | None = None


@dataclass(frozen=True)
class FillColumn:
    """Compute columns for rows of some fragments and write one column file per fragment.

    One column gets the function's result; several get one field of it each, those named by `struct_fields`.
    `tasks` say what each task does; at most `parallelism` of them run at a time, and each calls the function
    from `threads` places at once. `allowed_skips` is how many rows of the whole stage may be skipped. A
    suspect stage has lost a task's process before, and its function may be the reason.
    """

    job_id: str
    location: str
    version: int
    columns: pa.Schema
    struct_fields: tuple[str | None, ...]
    call: FunctionCall
    tasks: tuple[tuple[FragmentWork, ...], ...]
    checkpoint_location: str
    checkpoints: tuple[CheckpointRef, ...] = ()
    parallelism: int | None = None
    threads: int = 1
    batches: BatchPolicy = BatchPolicy()
    on_error: ErrorPolicy = FAIL_AT_ONCE
    allowed_skips: int | None = None
    environment: Environment = OWN_ENVIRONMENT
    is_suspect: bool = False


@dataclass(frozen=True)
class ColumnFile:
    """A finished column file: a value per physical row; `rows` are those it brings up to date.

    `description` is how the table format names the file in a commit; it means nothing to us.
    `input_files` are those the values came from: while the fragment has them, the values fit its rows.
    `live_rows` is how many rows the fragment had when it was read: with fewer, some have left it since.
    `carried_files` are those that values of other rows were carried forward from, None if there are no such.
    """

    fragment_id: int
    input_files: frozenset[str]
    path: str
    description: Mapping[str, Any]
    physical_rows: int
    live_rows: int
    rows: BitMap64
    carried_files: frozenset[str] | None = None
    reused_rows: int = 0
    failures: tuple[RowFailure, ...] = ()


@dataclass(frozen=True)
class ComputedRows:
    """Rows whose values are in safety as checkpoints, and those on which the function failed."""

    rows: BitMap64
    reused_rows: int
    seconds: float
    failures: tuple[RowFailure, ...] = ()


@dataclass(frozen=True)
class Published:
    """The files a commit put in place (and its version), with the rows that are there; the others as orphans.

    A row may be gone, or another writer may have moved it: then its value is in no place where it is read.
    """

    version: int | None
    files: tuple[ColumnFile, ...]
    orphans: tuple[ColumnFile, ...]


@dataclass(frozen=True)
class ViewTarget:
    """The view that a stage writes rows of, at the version they are compared with.

    Rows with the same value of `key` are replaced together; `place` numbers those of one key. `carried` are
    columns that others have added: a row that changes keeps what it has in them. With `is_dry` nothing is
    written: the stage only tells what differs.
    """

    location: str
    version: int
    output: pa.Schema
    key: str | None
    place: str | None = None
    carried: tuple[str, ...] = ()
    is_empty: bool = False
    max_rows_per_fragment: int | None = None
    is_dry: bool = False


@dataclass(frozen=True)
class CallPolicy:
    """How the functions of a stage are called.

    `allowed_skips` is how many rows of the whole stage may be skipped. A suspect stage has lost a task's
    process before, and its function may be the reason.
    """

    threads: int = 1
    on_error: ErrorPolicy = FAIL_AT_ONCE
    allowed_skips: int | None = None
    environment: Environment = OWN_ENVIRONMENT
    is_suspect: bool = False


@dataclass(frozen=True)
class OutputCap:
    """At most so many rows in the order of the source rows; `kept` of them have `counts` rows already."""

    limit: int
    kept: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]


@dataclass(frozen=True)
class WriteViewRows:
    """Evaluate a view for rows of its source and write those that differ from what the view has.

    `tasks` say what each task does; at most `parallelism` of them run at a time. With a `cap` there is one
    task, which goes through the source rows in the order of their ids.
    """

    job_id: str
    source_location: str
    source_version: int
    target: ViewTarget
    tasks: tuple[tuple[FragmentWork, ...], ...]
    calls: tuple[FunctionCall, ...]
    columns: Mapping[str, str]
    filter: str | None
    policy: CallPolicy = CallPolicy()
    cap: OutputCap | None = None
    parallelism: int | None = None


@dataclass(frozen=True)
class Partition:
    """Rows that a table function gets together; None means all.

    `key` is what the rows made from them have as `__key`; `name` is for messages.
    """

    key: int
    name: str
    rows: BitMap64 | None = None


@dataclass(frozen=True)
class RunTableFunction:
    """Give a function the rows of a view's source, partition by partition, and write what it yields."""

    job_id: str
    source_location: str
    source_version: int
    target: ViewTarget
    call: FunctionCall
    columns: Mapping[str, str]
    filter: str | None
    limit: int | None
    offset: int | None
    partitions: tuple[Partition, ...]
    policy: CallPolicy = CallPolicy()
    parallelism: int | None = None


@dataclass(frozen=True)
class SqlInput:
    """A table as a statement sees it: under a name, with some columns, and of those keys only.

    `key_columns` are those that `__key` is made from, as `tidemill.lance.key_hashes` makes it; without any
    there is no such column. `keys` are those wanted (as unsigned numbers), None for all.
    """

    name: str
    location: str
    version: int
    columns: tuple[str, ...]
    key_columns: tuple[str, ...] = ()
    keys: BitMap64 | None = None


@dataclass(frozen=True)
class RunSql:
    """Evaluate a statement over tables with Spark SQL and write the rows that differ from the view's.

    The statement yields the target's columns, `__key` among them.
    """

    job_id: str
    statement: str
    inputs: tuple[SqlInput, ...]
    target: ViewTarget
    parallelism: int | None = None


ViewStage: TypeAlias = WriteViewRows | RunTableFunction | RunSql


@dataclass(frozen=True)
class Difference:
    """A row that is not as the definition has it: missing, unexpected, or with other values in `columns`."""

    kind: str
    key: int | None
    columns: tuple[str, ...] = ()
    expected: Mapping[str, Any] | None = None
    found: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class WrittenRows:
    """What a stage made of a view, not committed yet: new fragments, as JSON, with `rows` rows.

    `kept` are rows of the view that are as they should be and stay where they are. `moved` are those that
    have other values now: the fragments hold them under the same row ids. `skipped` are keys whose rows
    could not be computed: what the view has of them stays. `covered` are the source rows that are wholly
    represented, and `cut` is the one that is so only in part; None: all that the stage was for. `made` are
    source rows and how many rows came of each, if the stage had a cap.
    """

    fragments: tuple[str, ...] = ()
    rows: int = 0
    kept: BitMap64 = field(default_factory=BitMap64)
    moved: BitMap64 = field(default_factory=BitMap64)
    skipped: BitMap64 = field(default_factory=BitMap64)
    failures: tuple[RowFailure, ...] = ()
    covered: BitMap64 | None = None
    cut: int | None = None
    made: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]] | None = None
    differences: tuple[Difference, ...] = ()
    missing: int = 0
    different: int = 0
