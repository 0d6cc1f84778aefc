"""Computed columns: what is declared, the stage that fills them, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID, uuid5

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.functions import (
    OWN_ENVIRONMENT,
    Environment,
    Function,
    FunctionEncoding,
    FunctionKey,
)
from tidemill.catalog.model.identifiers import ROOT_NAMESPACE_ID, TableIdent
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.errors import InvalidInput
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy, RowFailure
from tidemill.jobs.model.plans import FragmentWork

SHORTEST_FLUSH: Final = 0.5
LONGEST_FLUSH: Final = 10.0
LOST_SHARE: Final = 0.02
WRITTEN_PER_SECOND: Final = 200e6
SLOW_SECONDS_PER_ROW: Final = 0.01


@dataclass(frozen=True, slots=True)
class ColumnOutput:
    """A column and the field of a function's struct result that fills it; no field means the whole result."""

    name: str
    struct_field: str | None = None


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column filled by a function; `inputs` are bound to its parameters in order.

    A function whose result is unpacked fills several columns, together and never one alone: `siblings` are
    all of them, and `name` is the first. Values of the function versions in `kept_digests` count as fresh,
    like those of the current one. `field_ids` are the table's own ids of its inputs and outputs as of
    `bound_version`: a field keeps its id when it is renamed.

    `owner` has declared it, and must be allowed to use the function whenever it runs. None is the deployment
    itself, which is allowed everything.
    """

    column_id: UUID
    table_id: UUID
    name: str
    function_digest: str
    inputs: tuple[str, ...]
    siblings: tuple[ColumnOutput, ...] = ()
    has_auto_backfill: bool = False
    kept_digests: tuple[str, ...] = ()
    field_ids: Mapping[str, int] = field(default_factory=dict)
    bound_version: int = 0
    function_namespace_id: UUID = ROOT_NAMESPACE_ID
    owner: Caller | None = None

    @property
    def function_key(self) -> FunctionKey:
        return FunctionKey(self.function_namespace_id, self.function_digest)

    @property
    def outputs(self) -> tuple[ColumnOutput, ...]:
        return self.siblings or (ColumnOutput(self.name),)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @property
    def names_used(self) -> tuple[str, ...]:
        """What it reads and fills."""
        return tuple(dict.fromkeys([*self.inputs, *self.names]))

    def is_same_declaration(self, other: ComputedColumn) -> bool:
        """Whether only names have changed, if anything."""
        return (
            self.column_id == other.column_id
            and self.function_key == other.function_key
            and len(self.inputs) == len(other.inputs)
            and all(self._reads_same(other, *names) for names in zip(self.inputs, other.inputs, strict=True))
        )

    def _reads_same(self, other: ComputedColumn, name: str, other_name: str) -> bool:
        ids = self.field_ids.get(name), other.field_ids.get(other_name)
        return name == other_name if None in ids else ids[0] == ids[1]

    def renamed(self, names: Mapping[str, str]) -> ComputedColumn:
        """The column with other names for its inputs and outputs."""
        return replace(
            self,
            name=names.get(self.name, self.name),
            inputs=tuple(names.get(name, name) for name in self.inputs),
            siblings=tuple(
                replace(output, name=names.get(output.name, output.name)) for output in self.siblings
            ),
            field_ids={names.get(name, name): field_id for name, field_id in self.field_ids.items()},
        )


class Keep(StrEnum):
    """Which values a column keeps when it gets another function."""

    # Those that an earlier version computed without failing.
    COMPUTED = "computed"


def subject_of(column_id: UUID, branch: str) -> UUID:
    """What coverage, errors and jobs of a column are kept under: each branch has values of its own."""
    return column_id if branch == MAIN_BRANCH else uuid5(column_id, branch)


def bind_inputs(
    ident: TableIdent, schema: pa.Schema, function: Function, inputs: Sequence[str], field: str
) -> tuple[str, ...]:
    """The columns a function reads, checked to be there and to be as many as its parameters.

    One of Geneva's, whose parameters only its code tells, gets all columns unless it is bound to some.
    """
    is_open = function.encoding is FunctionEncoding.GENEVA
    bound = tuple(inputs) or (tuple(schema.names) if is_open else function.parameters)
    if not bound:
        raise InvalidInput(field, f"{function.name} needs at least one input column")
    if not is_open and len(bound) != len(function.parameters):
        parameters = ", ".join(function.parameters)
        raise InvalidInput(field, f"{function.name} takes ({parameters}), but got {len(bound)} columns")
    for name in bound:
        if name not in schema.names and name.split(".")[0] not in schema.names:
            raise TableColumnNotFound(ident, name, tuple(schema.names))
    return bound


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def path_of(column: str) -> str:
    """The expression that reads a column, or a field inside one by its dotted path."""
    return ".".join(quoted(part.strip("`")) for part in column.split("."))


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How many rows a function gets at a time, and how often results are checkpointed.

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
        """Whether to write a checkpoint, given the time since the last one and the time in all."""
        if self.flush_interval is not None:
            return unsaved_seconds >= self.flush_interval.total_seconds()
        return unsaved_seconds >= min(LONGEST_FLUSH, max(SHORTEST_FLUSH, total_seconds * LOST_SHARE))

    def is_worth_saving(self, seconds: float, size: int, rows: int) -> bool:
        """Whether values of that size, computed in that time, should be written just to be safe.

        Those of a slow function always are: a call may cost more than its time.
        """
        is_slow = seconds >= rows * SLOW_SECONDS_PER_ROW
        return self.flush_interval is not None or is_slow or size <= seconds * WRITTEN_PER_SECOND


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


def input_expressions(call: FunctionCall) -> tuple[str, ...]:
    """The expressions to scan for a function; the scan itself evaluates a SQL function."""
    if call.function.is_expression:
        return (call.function.payload.decode(),)
    return tuple(path_of(name) for name in call.inputs)


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
    # Where fingerprints of the results are kept; None if there can be none of the inputs.
    segment_location: str | None = None
    parallelism: int | None = None
    threads: int = 1
    batches: BatchPolicy = BatchPolicy()
    on_error: ErrorPolicy = FAIL_AT_ONCE
    allowed_skips: int | None = None
    environment: Environment = OWN_ENVIRONMENT
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class FileMarks:
    """The marks of a fragment's files: as they were read, and those of the inputs alone.

    Once a column file is about to be published: those right before, and those with it, which are known only
    if the inputs are still the same. Each state of a fragment has two, without and with its deletions.
    """

    read: tuple[int, ...]
    inputs: int
    before: tuple[int, ...] = ()
    published: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnFile:
    """A finished column file: a value per physical row; `rows` are those it brings up to date.

    `description` is how the table format names the file in a commit; it means nothing to us.
    `input_files` are those the values came from: while the fragment has them, the values fit its rows.
    `deletions` names the fragment's deleted rows when it was read, None if there were none. `gaps` are their
    offsets, for which the file has no values.
    `carried_files` are those that values of other rows were carried forward from, None if there are no such.
    `segment` has fingerprints of its rows. `expressions` yielded what the function was given, under the names
    that columns had then; none if no fingerprints are kept.
    """

    fragment_id: int
    input_files: frozenset[str]
    path: str
    description: Mapping[str, Any]
    physical_rows: int
    rows: BitMap64
    deletions: str | None = None
    gaps: BitMap = field(default_factory=BitMap)
    carried_files: frozenset[str] | None = None
    reused_rows: int = 0
    failures: tuple[RowFailure, ...] = ()
    segment: str | None = None
    marks: FileMarks | None = None
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComputedRows:
    """Rows whose values are checkpointed, and those on which the function failed."""

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


@dataclass(frozen=True, slots=True)
class FunctionRows:
    """How many rows hold a value of one version of a function, and whether that version's values are kept."""

    digest: str
    name: str
    rows: int
    is_current: bool
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class ColumnStatus:
    """The rows of a column at a version of its table: each is fresh, stale, missing or failed.

    Stale rows hold a value of another function version or of inputs that changed since; missing ones never
    had a value. Failed rows were skipped because the function failed, and have not been computed since.
    `reason` says why no row can be computed, because a column that the function reads is gone.
    """

    column: str
    branch: str
    version: int
    rows: int
    fresh: int
    stale: int
    missing: int
    failed: int
    functions: tuple[FunctionRows, ...]
    reason: str | None = None
