"""Computes a few rows of a column to be looked at; nothing is published, and a backfill can use them."""

from __future__ import annotations

import base64
from dataclasses import asdict, replace
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.tables import MAIN_BRANCH, Table
from tidemill.jobs.model.columns import ComputedRows
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.options import PreviewRequest
from tidemill.jobs.model.plans import RowLocations
from tidemill.jobs.planning.backfill import ColumnProgress
from tidemill.jobs.planning.column_progress import Assessor, DeclaredColumn
from tidemill.jobs.ports import Checkpoints, StageExecutor
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.worker.backfill import fill_stage
from tidemill.jobs.worker.leases import RunningJob

# What a job says of its result is kept with it, so large values are left out.
LARGEST_RESULT: Final = 4 << 20


class PreviewRunner:
    def __init__(
        self,
        assessor: Assessor,
        sources: SourceTables,
        executor: StageExecutor,
        checkpoints: Checkpoints,
    ) -> None:
        self._assessor = assessor
        self._sources = sources
        self._executor = executor
        self._checkpoints = checkpoints

    def run(self, running: RunningJob, request: PreviewRequest) -> dict[str, Any]:
        """Returns what the job's result says."""
        table = running.get_table().on(request.branch or MAIN_BRANCH)
        declared = self._assessor.get_column(table, request.column)
        progress = self._assessor.column_progress(declared, request)
        self._assessor.check_readable(declared, progress.snapshot)
        version = progress.snapshot.version
        rows = self._some_rows(table, progress, request)
        running.progress = replace(running.progress, total=len(rows))
        location = self._checkpoints.location(declared.subject_id, declared.function.digest, "shared")
        made = self._compute(running, declared, request, progress, rows, location)
        refs = self._checkpoints.find_usable(location, table, version, declared.watched())
        values = self._checkpoints.read(refs, rows)
        running.progress = replace(running.progress, done=len(rows), computed=len(rows))
        return {**self._shown(declared, version, values), **_figures(made, version)}

    def _some_rows(self, table: Table, progress: ColumnProgress, request: PreviewRequest) -> BitMap64:
        """The first that need work; if there are too few, any."""
        located: RowLocations | None = progress.located
        if located is None:
            located = self._sources.locate(table, progress.snapshot.version, request.where)
        needy = located.by_fragment(located.all_rows() - progress.current.rows)
        rows = BitMap64()
        for fragment_rows in (*needy.values(), *located.by_fragment().values()):
            missing = request.rows - len(rows)
            if missing <= 0:
                break
            rows |= (fragment_rows - rows)[:missing]
        return rows

    def _compute(
        self,
        running: RunningJob,
        declared: DeclaredColumn,
        request: PreviewRequest,
        progress: ColumnProgress,
        rows: BitMap64,
        location: str,
    ) -> list[ComputedRows]:
        version = progress.snapshot.version
        columns = [progress.snapshot.schema.field(name) for name in declared.column.names]
        work = self._assessor.layout(declared.table, version, rows)
        if not work:
            return []
        stage = replace(
            fill_stage(running, declared, request, version, columns),
            tasks=(work,),
            checkpoint_location=location,
            checkpoints=tuple(
                self._checkpoints.find_usable(location, declared.table, version, declared.watched())
            ),
            on_error=ErrorPolicy(ErrorAction.SKIP),
        )
        running.begin_stage()
        return list(self._executor.compute_rows(stage, running))

    def _shown(self, declared: DeclaredColumn, version: int, values: pa.Table) -> dict[str, Any]:
        """Inputs and values side by side, as many rows as fit."""
        inputs = self._sources.take(
            declared.table, version, values["row_id"].to_numpy(), declared.column.inputs
        )
        table = inputs.append_column("_rowid", values["row_id"])
        for name, column in _named(declared, values["value"]):
            table = table.append_column(name, column)
        table = table.select(["_rowid", *(name for name in table.column_names if name != "_rowid")])
        shown, is_truncated = _fitting(table)
        return {"arrow": base64.b64encode(shown).decode(), "truncated": is_truncated}


def _named(declared: DeclaredColumn, values: pa.ChunkedArray) -> list[tuple[str, pa.ChunkedArray]]:
    if not declared.column.siblings or not pa.types.is_struct(values.type):
        return [(declared.column.name, values)]
    fields = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    return [(output.name, fields[output.struct_field or ""]) for output in declared.column.outputs]


def _fitting(table: pa.Table) -> tuple[bytes, bool]:
    rows = table.num_rows
    while True:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(0, rows).combine_chunks())
        content = sink.getvalue().to_pybytes()
        if len(content) <= LARGEST_RESULT or not rows:
            return content, rows < table.num_rows
        rows //= 2


def _figures(made: list[ComputedRows], version: int) -> dict[str, Any]:
    rows = sum(len(piece.rows) for piece in made)
    reused = sum(piece.reused_rows for piece in made)
    seconds = sum(piece.seconds for piece in made)
    return {
        "rows_previewed": rows,
        "rows_reused": reused,
        "rows_per_second": (rows - reused) / seconds if seconds > 0 and rows > reused else None,
        "source_version": version,
        "errors": [asdict(failure) for piece in made for failure in piece.failures],
    }
