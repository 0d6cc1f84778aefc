"""What kinds of views differ in: each is an object that answers these questions for views of its kind.

Checks, progress, publishing and verification are the same for all of them and ask here. `kinds.py` has the
list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import FunctionCall
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import Clusters
from tidemill.jobs.model.lineage import Link, Through
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan, SqlPlan, TableSnapshot
from tidemill.jobs.model.views import (
    CallPolicy,
    KeptResults,
    MaterializedView,
    OutputCap,
    RefreshPolicy,
    ViewStage,
    ViewTarget,
)
from tidemill.jobs.planning.refresh import ViewProgress
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.definitions import (
    ReadSource,
    SettledView,
    ViewDefinition,
    check_expressions,
    check_opaque,
    check_partitioning,
)
from tidemill.jobs.views.lineage import DefinitionReader


@dataclass(frozen=True)
class DeclaredView:
    """A materialized view with its table, its sources and its functions: its columns', or its maker."""

    table: Table
    view: MaterializedView
    sources: tuple[Table, ...]
    calls: tuple[FunctionCall, ...]

    @property
    def source(self) -> Table:
        return self.sources[0]

    def policy(self, request: RefreshRequest) -> RefreshPolicy:
        return request.policy or self.view.policy


@dataclass(frozen=True)
class SourceReading:
    """A source at the version it is read at, and what of it matters."""

    table: Table
    snapshot: TableSnapshot
    coverage: Coverage
    columns: tuple[str, ...]
    key_columns: tuple[str, ...] = ()
    where: str | None = None


@dataclass(frozen=True)
class ViewReading:
    """What a view reads; `whole_reason` says why its rows can only be made all together."""

    sources: tuple[SourceReading, ...]
    whole_reason: str | None = None
    sql: SqlPlan | None = None


@dataclass(frozen=True)
class StageRequest:
    """What every kind of stage is made from: the plan, and how its rows are to be made.

    `kept` are results of the view's functions that can be used; without any, none are kept either. A suspect
    stage has lost a task's process before, and its function may be the reason.
    """

    job_id: str
    declared: DeclaredView
    progress: ViewProgress
    plan: RefreshPlan
    target: ViewTarget
    options: RefreshRequest
    clusters: Clusters
    cap: OutputCap | None = None
    is_suspect: bool = False
    kept: tuple[KeptResults, ...] = ()

    def policy(self, rows: int) -> CallPolicy:
        """As the request says, and else the view."""
        view, options = self.declared.view, self.options
        on_error = view.on_error if options.on_error is None else options.on_error
        return CallPolicy(
            threads=options.intra_applier_concurrency or 1,
            on_error=on_error,
            allowed_skips=on_error.allowed_skips(rows),
            environment=view.environment if options.environment is None else options.environment,
            is_suspect=self.is_suspect,
        )


class ViewBehavior(ABC):
    can_be_capped = False
    can_be_partitioned = False
    # The column that numbers the rows of one source row.
    place: str | None = None
    # How a view is linked to its sources as a whole; None: the links of its columns tell.
    through: Through | None = None

    def check(self, definition: ViewDefinition) -> None:
        """What can be said without looking at any table; raises InvalidInput."""
        self.check_function(definition)
        check_partitioning(definition, is_allowed=self.can_be_partitioned)
        self.check_statement(definition)
        if definition.is_opaque:
            check_opaque(definition)
        check_expressions(definition)

    @abstractmethod
    def check_function(self, definition: ViewDefinition) -> None: ...

    def check_statement(self, definition: ViewDefinition) -> None:
        if definition.statement is not None:
            raise InvalidInput(
                definition.query_field,
                "has to read one table without grouping or joining its rows "
                f"in a view of kind {definition.kind}",
            )

    @abstractmethod
    def named_sources(self, definition: ViewDefinition) -> Sequence[tuple[str, ...]]:
        """The tables that the definition names, in its order."""

    @abstractmethod
    def settle(
        self,
        ident: TableIdent,
        definition: ViewDefinition,
        sources: Sequence[ReadSource],
        tables: SourceTables,
    ) -> SettledView:
        """What the definition means, given its sources; raises InvalidInput or InvalidTableSchema."""

    @abstractmethod
    def output(self, projected: pa.Schema, function: Function | None, *, has_key: bool = False) -> pa.Schema:
        """The view's columns: where each row comes from, what it inherits, what the function made."""

    @abstractmethod
    def key(self, view: MaterializedView) -> str | None:
        """The column that says which rows are replaced together; None: only all of them are."""

    @abstractmethod
    def read(
        self,
        declared: DeclaredView,
        versions: Sequence[int | None],
        coverages: Sequence[Coverage],
        tables: SourceTables,
    ) -> ViewReading:
        """What the view reads at these versions of its sources."""

    def is_capped(self, source: SourceReading) -> bool:
        """Whether an earlier refresh left rows out, so that there is more to see at the same version."""
        return False

    def touched_keys(
        self, declared: DeclaredView, progress: ViewProgress, reading: ViewReading, tables: SourceTables
    ) -> BitMap64:
        """The keys that the changes have to do with; for views with keys."""
        keys = BitMap64()
        for source, one in zip(progress.sources, reading.sources, strict=True):
            now, then = source.inserted | source.updated, source.deleted | source.updated
            keys |= tables.key_hashes(one.table, one.snapshot.version, now, one.key_columns)
            keys |= tables.key_hashes(one.table, source.coverage.watermark, then, one.key_columns)
        return keys

    @abstractmethod
    def stage(self, request: StageRequest, tables: SourceTables) -> ViewStage | None:
        """What an executor has to do for the plan; None: nothing."""

    def keys_without(
        self, declared: DeclaredView, version: int, skipped: BitMap64, tables: SourceTables
    ) -> BitMap64 | None:
        """All keys but those skipped; None for views that skip source rows."""
        return None

    @abstractmethod
    def sample_columns(self, view: MaterializedView, progress: ViewProgress) -> Sequence[str] | None:
        """The columns whose keys a sample consists of: None for one of rows, none if it has to be all."""

    @abstractmethod
    def links(self, view: MaterializedView, reader: DefinitionReader) -> list[Link]:
        """What the view's columns depend on."""


def unsigned(key: int) -> int:
    """A key as sets of keys hold it."""
    return key % (1 << 64)
