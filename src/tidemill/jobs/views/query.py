"""Query views: one row per source row that passes the filter; expressions and functions make its columns.

`OneSourceViews` and `RowViews` are what query views share with table functions and chunkers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import TableKind
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.lineage import Link
from tidemill.jobs.model.plans import FragmentWork, TableSnapshot
from tidemill.jobs.model.views import (
    INTERNAL_COLUMNS,
    IS_SET,
    SOURCE_ROW_ID,
    GoneRows,
    MaterializedView,
    SourceQuery,
    WriteViewRows,
    frozen,
)
from tidemill.jobs.planning.refresh import ViewProgress
from tidemill.jobs.planning.tasks import view_tasks
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.behavior import (
    DeclaredView,
    SourceReading,
    StageRequest,
    ViewBehavior,
    ViewReading,
)
from tidemill.jobs.views.definitions import (
    ReadSource,
    SettledView,
    ViewDefinition,
    bound_columns,
    check_column_functions,
    checked_output,
)
from tidemill.jobs.views.lineage import DefinitionReader, SourceLinks

# Rows that are gone are searched if there are at most FEW_GONE of them, or a few per row to be made.
FEW_GONE: Final = 10_000
MOST_GONE: Final = 10


class OneSourceViews(ViewBehavior):
    def named_sources(self, definition: ViewDefinition) -> Sequence[tuple[str, ...]]:
        return (definition.query.source,)

    def settle(
        self,
        ident: TableIdent,
        definition: ViewDefinition,
        sources: Sequence[ReadSource],
        tables: SourceTables,
    ) -> SettledView:
        (source,) = sources
        inputs = self.bound_inputs(definition, source, tables)
        columns = bound_columns(definition, source)
        query = self.settled_query(definition, source)
        projected = tables.project(source.table, query, definition.query_field)
        output = checked_output(ident, definition, self.expected_output(definition, projected))
        return SettledView(query, output, inputs, columns)

    def bound_inputs(
        self, definition: ViewDefinition, source: ReadSource, tables: SourceTables
    ) -> tuple[str, ...]:
        """What the function that makes the rows reads."""
        return ()

    def settled_query(self, definition: ViewDefinition, source: ReadSource) -> SourceQuery:
        """A view without a projection has all columns of now, but not the internal ones of its source."""
        if source.table.kind is TableKind.VIEW:
            shown = [field for field in source.schema if field.name not in INTERNAL_COLUMNS]
            return frozen(definition.query, pa.schema(shown))
        return frozen(definition.query, source.schema)

    def expected_output(self, definition: ViewDefinition, projected: pa.Schema) -> pa.Schema:
        """The columns the definition yields."""
        return self.output(projected, definition.function, has_key=definition.is_partitioned)

    def read(
        self,
        declared: DeclaredView,
        versions: Sequence[int | None],
        coverages: Sequence[Coverage],
        tables: SourceTables,
    ) -> ViewReading:
        view, table = declared.view, declared.source
        snapshot = tables.snapshot(table, versions[0])
        _check_readable(declared, snapshot)
        columns = self.columns_read(declared, snapshot.version, tables)
        keys = () if view.partition_by is None else (view.partition_by,)
        reading = SourceReading(table, snapshot, coverages[0], columns, keys, self.rows_read(view))
        return ViewReading((reading,), self.whole_reason(view))

    def columns_read(self, declared: DeclaredView, version: int, tables: SourceTables) -> tuple[str, ...]:
        """The source columns whose values matter."""
        view = declared.view
        return tables.columns_read(declared.source, view.query, view.inputs_read, version)

    def rows_read(self, view: MaterializedView) -> str | None:
        """The filter, where rows that do not pass it have no part in the view."""
        return view.query.filter if view.query.is_window else None

    def whole_reason(self, view: MaterializedView) -> str | None:
        return None


class RowViews(OneSourceViews):
    """Views whose rows are made from one source row each."""

    def output(self, projected: pa.Schema, function: Function | None, *, has_key: bool = False) -> pa.Schema:
        made = [] if function is None else list(function.output)
        places = [] if self.place is None else [pa.field(self.place, pa.int32(), nullable=False)]
        return pa.schema([pa.field(SOURCE_ROW_ID, pa.int64(), nullable=False), *places, *projected, *made])

    def key(self, view: MaterializedView) -> str | None:
        return SOURCE_ROW_ID

    def stage(self, request: StageRequest, tables: SourceTables) -> WriteViewRows | None:
        declared, plan = request.declared, request.plan
        if not plan.work:
            return None
        query = declared.view.query
        return WriteViewRows(
            job_id=request.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            target=request.target,
            tasks=(plan.work,) if request.cap is not None else _tasks(request),
            calls=declared.calls,
            columns=query.columns or {},
            filter=query.filter,
            policy=request.policy(plan.rows),
            cap=request.cap,
            parallelism=request.options.concurrency,
            kept=request.kept,
            gone=_gone_rows(request),
        )

    def sample_columns(self, view: MaterializedView, progress: ViewProgress) -> Sequence[str] | None:
        return None


def _gone_rows(request: StageRequest) -> GoneRows | None:
    """Rows that an overwrite or a deletion took away, unless looking at them costs more than it saves."""
    source, rows = request.progress.first, request.plan.rows
    is_worth_it = 0 < len(source.deleted) <= max(FEW_GONE, MOST_GONE * rows)
    return GoneRows(source.coverage.watermark, source.deleted) if request.kept and is_worth_it else None


def _check_readable(declared: DeclaredView, snapshot: TableSnapshot) -> None:
    """The source may have lost columns since the view was defined."""
    known = snapshot.schema.names
    for name in declared.view.inputs_read:
        if name.split(".")[0].strip("`") not in known:
            raise TableColumnNotFound(declared.source.ident, name, tuple(known))


def _tasks(request: StageRequest) -> tuple[tuple[FragmentWork, ...], ...]:
    options, located = request.options, request.progress.first.located
    is_costly = bool(request.declared.calls)
    is_cut = options.source_task_size is not None or is_costly
    rows = located.by_fragment() if located is not None and is_cut else {}
    slots = options.concurrency or request.clusters.slots(options.cluster)
    return view_tasks(request.plan.work, rows, options.source_task_size, slots, is_costly=is_costly)


class QueryViews(RowViews):
    def check_function(self, definition: ViewDefinition) -> None:
        check_column_functions(definition)

    def expected_output(self, definition: ViewDefinition, projected: pa.Schema) -> pa.Schema:
        """With the columns that functions make; `__is_set` is there if the caller wants it."""
        fields = list(projected)
        for column in sorted(definition.columns, key=lambda column: column.index):
            fields.insert(column.index, pa.field(column.name, column.function.value_type))
        expected = self.output(pa.schema(fields), None)
        given = definition.output
        if given is not None and IS_SET in given.names:
            expected = expected.insert(1, pa.field(IS_SET, pa.bool_()))
        return expected

    def links(self, view: MaterializedView, reader: DefinitionReader) -> list[Link]:
        links = SourceLinks(view, reader)
        return [*links.filter(), *links.row_ids(), *links.projected(), *links.made_by_columns()]
