"""Table function views: a function is given the source, or one partition of it at a time, and yields rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.errors import InvalidInput
from tidemill.jobs.model.lineage import Link, Through
from tidemill.jobs.model.views import KEY, MaterializedView, Partition, RunTableFunction
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.behavior import DeclaredView, StageRequest, ViewReading, unsigned
from tidemill.jobs.views.definitions import (
    PARTITION_BY,
    PARTITION_INDEX,
    ReadSource,
    ViewDefinition,
    check_row_function,
)
from tidemill.jobs.views.lineage import DefinitionReader, SourceLinks
from tidemill.jobs.views.query import OneSourceViews

# Types whose values can be written into a condition, and of which no two are equal by accident.
KEY_TYPES: Final[Sequence[Callable[[pa.DataType], bool]]] = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_boolean,
    pa.types.is_date32,
)


class TableFunctionViews(OneSourceViews):
    can_be_partitioned = True

    def check_function(self, definition: ViewDefinition) -> None:
        check_row_function(definition, FunctionKind.TABLE)

    def bound_inputs(
        self, definition: ViewDefinition, source: ReadSource, tables: SourceTables
    ) -> tuple[str, ...]:
        _check_partitions(definition, source)
        known = {*source.schema.names, *(definition.query.columns or {})}
        for name in definition.inputs:
            if name not in known and name.split(".")[0].strip("`") not in known:
                raise TableColumnNotFound(source.ident, name, tuple(source.schema.names))
        if definition.partition_index is not None:
            version = tables.snapshot(source.table, None).version
            tables.index_partitions(source.table, version, definition.partition_index)
        return definition.inputs

    def output(self, projected: pa.Schema, function: Function | None, *, has_key: bool = False) -> pa.Schema:
        made = [] if function is None else list(function.output)
        return pa.schema([*([pa.field(KEY, pa.int64(), nullable=False)] if has_key else []), *made])

    def key(self, view: MaterializedView) -> str | None:
        return KEY if view.is_partitioned else None

    def columns_read(self, declared: DeclaredView, version: int, tables: SourceTables) -> tuple[str, ...]:
        """What the function is given, and what decides which rows those are; all columns if it takes all."""
        view = declared.view
        if not view.inputs:
            return super().columns_read(declared, version, tables)
        projected = view.query.columns or {}
        given = {name: projected[name] for name in view.inputs if name in projected}
        inputs = [name for name in view.inputs_read if name not in given]
        return tables.columns_read(declared.source, replace(view.query, columns=given), inputs, version)

    def rows_read(self, view: MaterializedView) -> str | None:
        return view.query.filter

    def whole_reason(self, view: MaterializedView) -> str | None:
        return None if view.is_partitioned else "its function takes the source as a whole"

    def touched_keys(
        self, declared: DeclaredView, progress: ViewProgress, reading: ViewReading, tables: SourceTables
    ) -> BitMap64:
        column = declared.view.partition_index
        if column is None:
            return super().touched_keys(declared, progress, reading, tables)
        return _touched_partitions(declared, progress.first, column, tables)

    def stage(self, request: StageRequest, tables: SourceTables) -> RunTableFunction | None:
        declared, plan = request.declared, request.plan
        query = declared.view.query
        found = _partitions(declared, plan.source_version, tables)
        partitions = tuple(p for p in found if plan.keys is None or unsigned(p.key) in plan.keys)
        if not partitions:
            return None
        return RunTableFunction(
            job_id=request.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            target=request.target,
            call=declared.calls[0],
            columns=query.columns or {},
            filter=query.filter,
            limit=query.limit,
            offset=query.offset,
            partitions=partitions,
            policy=request.policy(len(partitions)),
            parallelism=request.options.concurrency,
            kept=request.kept[0] if request.kept else None,
        )

    def keys_without(
        self, declared: DeclaredView, version: int, skipped: BitMap64, tables: SourceTables
    ) -> BitMap64 | None:
        partitions = _partitions(declared, version, tables)
        return BitMap64([unsigned(partition.key) for partition in partitions]) - skipped

    def sample_columns(self, view: MaterializedView, progress: ViewProgress) -> Sequence[str] | None:
        return () if view.partition_by is None else (view.partition_by,)

    def links(self, view: MaterializedView, reader: DefinitionReader) -> list[Link]:
        """Its columns depend on all that the function can see of its source."""
        links = SourceLinks(view, reader)
        keys = [name for name in (view.partition_by, view.partition_index) if name is not None]
        parted = links.links(KEY, keys, Through.PROJECTION)
        return [*links.filter(), *parted, *links.made_by_function(Through.TABLE_FUNCTION, links.all_read())]


def _partitions(declared: DeclaredView, version: int, tables: SourceTables) -> Sequence[Partition]:
    """What the function is called for, each by itself."""
    view = declared.view
    if view.partition_index is not None:
        return tables.index_partitions(declared.source, version, view.partition_index)
    if view.partition_by is not None:
        return tables.partitions(declared.source, version, view.partition_by, view.query.filter)
    return (Partition(0, "the whole source"),)


def _touched_partitions(
    declared: DeclaredView, source: SourceProgress, column: str, tables: SourceTables
) -> BitMap64:
    """Partitions that have other rows than before, or other values in them."""
    if source.located is None:
        return BitMap64()
    now = tables.index_partitions(declared.source, source.snapshot.version, column)
    then = tables.index_partitions(declared.source, source.coverage.watermark, column)
    before = {partition.key: partition.rows for partition in then}
    touched = {
        partition.key
        for partition in now
        if partition.rows != before.get(partition.key)
        or not source.updated.isdisjoint(partition.rows or BitMap64())
    }
    touched |= before.keys() - {partition.key for partition in now}
    return BitMap64([unsigned(key) for key in touched])


def _check_partitions(definition: ViewDefinition, source: ReadSource) -> None:
    name = PARTITION_BY if definition.partition_by is not None else PARTITION_INDEX
    column = definition.partition_by or definition.partition_index
    if column is None:
        return
    if column not in source.schema.names:
        raise TableColumnNotFound(source.ident, column, tuple(source.schema.names))
    if definition.query.is_window:
        raise InvalidInput(name, "cannot be combined with a limit or offset of the query")
    value_type = source.schema.field(column).type
    if definition.partition_by is not None and not any(is_one(value_type) for is_one in KEY_TYPES):
        raise InvalidInput(name, f"'{column}' is {value_type}; it must be integer, text, boolean or date")
