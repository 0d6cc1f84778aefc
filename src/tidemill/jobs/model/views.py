"""Materialized views: what is declared, the stages that make their rows, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias
from uuid import UUID, uuid5

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.callers import Caller
from tidemill.catalog.model.functions import OWN_ENVIRONMENT, Environment, FunctionKey
from tidemill.catalog.model.identifiers import ROOT_NAMESPACE_ID
from tidemill.jobs.model.columns import BatchPolicy, CheckpointRef, FunctionCall, quoted
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy, RowFailure
from tidemill.jobs.model.plans import FragmentWork

SOURCE_ROW_ID: Final = "__source_row_id"
CHILD_INDEX: Final = "__child_index"
# Geneva's clients declare it in their query views; a row that is there has been set.
IS_SET: Final = "__is_set"
# Which rows are made, and replaced, together: those of one group, join key or partition have the same.
KEY: Final = "__key"
INTERNAL_COLUMNS: Final = frozenset({SOURCE_ROW_ID, CHILD_INDEX, IS_SET, KEY})


class ViewKind(StrEnum):
    QUERY = "query"
    CHUNKER = "chunker"
    UDTF = "udtf"


@dataclass(frozen=True, slots=True)
class SourceQuery:
    """The rows and columns of the source that a view is made from; no columns means all of them.

    `offset` and `limit` count the matching rows in the order the source stores them.
    """

    source: tuple[str, ...]
    columns: Mapping[str, str] | None = None
    filter: str | None = None
    limit: int | None = None
    offset: int | None = None

    @property
    def is_window(self) -> bool:
        return self.limit is not None or bool(self.offset)


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view that a function makes from columns of the source."""

    name: str
    function_digest: str
    inputs: tuple[str, ...]


class RefreshPolicy(StrEnum):
    """How a view is brought up to date."""

    # Incrementally where that is possible and cheaper.
    AUTO = "auto"
    # Or not at all: a refresh that would have to compute everything fails.
    INCREMENTAL = "incremental"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ViewSource:
    """A table or view that a view is made from, and what its definition calls it.

    `columns` are those that a statement has to do with, none meaning any: what is added later is no part of
    a `*` that was written before.
    """

    table_id: UUID
    levels: tuple[str, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """A view's definition; its rows are in the table of the same id.

    `raw_query` is what the client sent, byte for byte. `digest` identifies the definition, code included.
    `output` are the columns as declared, in their order; a view defined before they were kept has None.
    `columns` are those that functions make in a query view; `function_digest` and `inputs` are a chunker's
    or a table function's. A view that Spark SQL evaluates has a `statement`, and may have several sources.
    One without sources was defined in a form that nobody here can read. Its functions are registered in the
    namespace in which it was created.

    `owner` must be allowed to read the sources and to use the functions whenever it is refreshed. None is the
    deployment itself, which is allowed everything.
    """

    view_id: UUID
    sources: tuple[ViewSource, ...]
    kind: ViewKind
    query: SourceQuery
    raw_query: str
    digest: str
    function_digest: str | None = None
    inputs: tuple[str, ...] = ()
    has_auto_refresh: bool = False
    output: pa.Schema | None = None
    columns: tuple[ViewColumn, ...] = ()
    partition_by: str | None = None
    # The column whose IVF index parts the rows.
    partition_index: str | None = None
    statement: str | None = None
    policy: RefreshPolicy = RefreshPolicy.AUTO
    on_error: ErrorPolicy = FAIL_AT_ONCE
    environment: Environment = OWN_ENVIRONMENT
    function_namespace_id: UUID = ROOT_NAMESPACE_ID
    owner: Caller | None = None

    @property
    def function_keys(self) -> tuple[FunctionKey, ...]:
        """Each function once."""
        made = () if self.function_digest is None else (self.function_digest,)
        digests = dict.fromkeys([*made, *(column.function_digest for column in self.columns)])
        return tuple(FunctionKey(self.function_namespace_id, digest) for digest in digests)

    @property
    def inputs_read(self) -> tuple[str, ...]:
        """Every source column that a function of the view reads."""
        others = [name for column in self.columns for name in column.inputs]
        keys = [] if self.partition_by is None else [self.partition_by]
        return tuple(dict.fromkeys([*self.inputs, *others, *keys]))

    @property
    def is_partitioned(self) -> bool:
        return self.partition_by is not None or self.partition_index is not None

    @property
    def internal_columns(self) -> frozenset[str]:
        """The columns that the view has for itself. Clients see them only if they ask for them by name.

        A column with the name of another kind's internal column is the user's, who has selected it.
        """
        if self.statement is not None:
            return frozenset({KEY})
        match self.kind:
            case ViewKind.QUERY:
                return frozenset({SOURCE_ROW_ID, IS_SET})
            case ViewKind.CHUNKER:
                return frozenset({SOURCE_ROW_ID, CHILD_INDEX})
            case ViewKind.UDTF:
                return frozenset({KEY}) if self.is_partitioned else frozenset()


def source_subject(view_id: UUID, source_id: UUID, place: int) -> UUID:
    """What the coverage of one of a view's sources is kept under; the first one's under the view itself."""
    return view_id if place == 0 else uuid5(view_id, str(source_id))


def function_subject(view_id: UUID, column: str | None) -> UUID:
    """What the results of a view's function are kept under: that of a column, or the one that makes rows."""
    return uuid5(view_id, f"function {column or ''}")


def frozen(query: SourceQuery, schema: pa.Schema) -> SourceQuery:
    """The query with its columns written out: columns added to the source later do not join the view."""
    if query.columns is not None:
        return query
    return replace(query, columns={name: quoted(name) for name in schema.names})


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
class KeptResults:
    """What earlier calls of one of a stage's functions returned, and where tasks put more of it.

    `segments` hold the fingerprints of inputs and results: a value that the view holds needs no call if its
    fingerprint is among them. `checkpoints` hold results that are not published yet, each with a fingerprint
    of its inputs, so they are valid whatever version the inputs are read at.
    """

    segment_location: str
    checkpoint_location: str
    segments: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointRef, ...] = ()


@dataclass(frozen=True)
class OutputCap:
    """At most so many rows in the order of the source rows; `kept` of them have `counts` rows already."""

    limit: int
    kept: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.int64]


@dataclass(frozen=True)
class GoneRows:
    """Source rows that are gone, but not their results in the view: rows with the same inputs can have these.

    They are read at the `version` of the source that the view was made from.
    """

    version: int
    rows: BitMap64


@dataclass(frozen=True)
class WriteViewRows:
    """Evaluate a view for rows of its source and write those that differ from what the view has.

    `tasks` say what each task does; at most `parallelism` of them run at a time. With a `cap` there is one
    task, which goes through the source rows in the order of their ids. `kept` has an entry for each of the
    `calls`; without any, every result is computed and none is kept. Results of `gone` rows can be used.
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
    kept: tuple[KeptResults, ...] = ()
    batches: BatchPolicy = field(default_factory=BatchPolicy)
    gone: GoneRows | None = None


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
    """Give a function the rows of a view's source, partition by partition, and write what it yields.

    Without `kept` the function is called for every partition, and nothing is kept.
    """

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
    kept: KeptResults | None = None
    batches: BatchPolicy = field(default_factory=BatchPolicy)


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
    source rows and how many rows came of each, if the stage had a cap; then `evaluated` is how many source
    rows were looked at. For `reused` source rows no function was called. `segments` are new files of
    fingerprints, each with the number of the call that they are of.
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
    evaluated: int | None = None
    reused: int = 0
    segments: tuple[tuple[int, str], ...] = ()
