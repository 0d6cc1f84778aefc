"""Views given as SQL: Spark evaluates the statement, by keys where that is possible."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemill.catalog.model.functions import Function
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.errors import InvalidInput
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.lineage import Link, Through
from tidemill.jobs.model.plans import SqlPlan
from tidemill.jobs.model.views import KEY, MaterializedView, RunSql, SourceQuery, SqlInput, ViewSource
from tidemill.jobs.planning.refresh import ViewProgress
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
    check_column_functions,
    checked_output,
)
from tidemill.jobs.views.lineage import DefinitionReader
from tidemill.jobs.views.sql.lineage import statement_links
from tidemill.jobs.views.sql.plan import plan_sql, sql_sources


class SqlViews(ViewBehavior):
    through = Through.SQL

    def check_function(self, definition: ViewDefinition) -> None:
        check_column_functions(definition)

    def check_statement(self, definition: ViewDefinition) -> None:
        for column in definition.columns:
            raise InvalidInput(column.field, "must be left out of a view that is given as SQL")

    def named_sources(self, definition: ViewDefinition) -> Sequence[tuple[str, ...]]:
        named = sql_sources(definition.statement or "", definition.query_field)
        if not named:
            raise InvalidInput(definition.query_field, "reads no table; a view is made from at least one")
        return named

    def settle(
        self,
        ident: TableIdent,
        definition: ViewDefinition,
        sources: Sequence[ReadSource],
        tables: SourceTables,
    ) -> SettledView:
        known = [(source.ident.levels, source.schema) for source in sources]
        plan = plan_sql(definition.statement or "", known, definition.query_field)
        output = checked_output(ident, definition, plan.output)
        columns = tuple(tuple(source.schema.names) for source in sources)
        return SettledView(SourceQuery(sources[0].ident.levels), output, source_columns=columns)

    def output(self, projected: pa.Schema, function: Function | None, *, has_key: bool = False) -> pa.Schema:
        raise AssertionError("the columns of a statement are kept with its view")

    def key(self, view: MaterializedView) -> str | None:
        return KEY

    def read(
        self,
        declared: DeclaredView,
        versions: Sequence[int | None],
        coverages: Sequence[Coverage],
        tables: SourceTables,
    ) -> ViewReading:
        snapshots = [
            tables.snapshot(table, version) for table, version in zip(declared.sources, versions, strict=True)
        ]
        plan = _plan(declared.view, [snapshot.schema for snapshot in snapshots])
        readings = tuple(
            SourceReading(table, snapshot, coverage, source.columns, source.key_columns)
            for table, snapshot, coverage, source in zip(
                declared.sources, snapshots, coverages, plan.sources, strict=True
            )
        )
        return ViewReading(readings, plan.full_reason, plan)

    def stage(self, request: StageRequest, tables: SourceTables) -> RunSql | None:
        sql, plan = request.progress.sql, request.plan
        if sql is None or (plan.keys is not None and not plan.keys):
            return None
        inputs = tuple(
            SqlInput(
                name=source.name,
                location=table.data_location,
                version=change.version,
                columns=source.columns,
                key_columns=source.key_columns,
                keys=plan.keys,
            )
            for source, table, change in zip(sql.sources, request.declared.sources, plan.changes, strict=True)
        )
        return RunSql(request.job_id, sql.statement, inputs, request.target, request.options.concurrency)

    def sample_columns(self, view: MaterializedView, progress: ViewProgress) -> Sequence[str] | None:
        return () if progress.sql is None else progress.sql.sources[0].key_columns

    def links(self, view: MaterializedView, reader: DefinitionReader) -> list[Link]:
        """None when a source was dropped, or has lost what the statement reads: nobody can say any more."""
        schemas = reader.source_schemas(view)
        if schemas is None:
            return []
        known = [(source.levels, schema) for source, schema in zip(view.sources, schemas, strict=True)]
        try:
            plan = plan_sql(view.statement or "", known, "source_query")
        except InvalidInput:
            return []
        return statement_links(view, plan)


def _plan(view: MaterializedView, schemas: Sequence[pa.Schema]) -> SqlPlan:
    known = [
        (source.levels, _known_columns(schema, source))
        for source, schema in zip(view.sources, schemas, strict=True)
    ]
    return plan_sql(view.statement or "", known, "source_query")


def _known_columns(schema: pa.Schema, source: ViewSource) -> pa.Schema:
    """Without those added since the view was defined."""
    return pa.schema([field for field in schema if not source.columns or field.name in source.columns])
