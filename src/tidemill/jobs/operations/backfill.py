"""Carries out a backfill: pass after pass, until no row needs work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.errors import ConcurrentModification
from tidemill.catalog.ports import CatalogTransaction, TransactionEffect
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.jobs import BackfillRequest, Part, Progress
from tidemill.jobs.model.plans import BackfillPlan, FragmentWork
from tidemill.jobs.model.stages import BatchPolicy, CheckpointRef, ColumnFile, FillColumn, FunctionCall
from tidemill.jobs.operations.assess import Assessor, DeclaredColumn
from tidemill.jobs.operations.columns import job_transaction
from tidemill.jobs.operations.running import RunningJob
from tidemill.jobs.planner.backfill import ColumnProgress, plan_backfill
from tidemill.jobs.ports import Checkpoints, JobStore, JobTransaction, Publisher, StageExecutor

# A table that changes faster than we can follow is left to the next backfill.
MAX_PASSES: Final = 100


@dataclass
class _Pass:
    """One look at the table and the work it led to; `coverage` grows with every commit of it."""

    running: RunningJob
    request: BackfillRequest
    declared: DeclaredColumn
    progress: ColumnProgress
    plan: BackfillPlan
    coverage: Coverage
    checkpoint_location: str
    name: str
    orphans: int = 0
    commits: int = 0
    version: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether all was done and nobody else wrote meanwhile: then a further look would find nothing."""
        return not self.orphans and self.version == self.plan.read_version + self.commits


class BackfillRunner:
    def __init__(
        self,
        store: JobStore,
        assessor: Assessor,
        executor: StageExecutor,
        publisher: Publisher,
        checkpoints: Checkpoints,
    ) -> None:
        self._store = store
        self._assessor = assessor
        self._executor = executor
        self._publisher = publisher
        self._checkpoints = checkpoints

    def run(self, running: RunningJob, request: BackfillRequest) -> dict[str, Any]:
        """Returns what the job's result says."""
        table = running.get_table()
        declared = self._assessor.get_column(table, request.column)
        scope = "shared" if request.where is None else running.job.job_id
        location = self._checkpoints.location(declared.column.column_id, declared.function.digest, scope)
        version: int | None = None
        for number in range(MAX_PASSES):
            one = self._look(running, request, declared, location, f"e{running.lease.epoch}.p{number}")
            if one.plan.is_empty:
                self._settle(one)
                break
            self._run_pass(one)
            version = one.version or version
            if request.read_version is not None:
                self._place_orphans(one)
            if request.read_version is not None or request.num_frags is not None or one.is_last:
                break
        self._checkpoints.clear(location)
        return {
            "rows_computed": running.progress.computed,
            "rows_reused": running.progress.reused,
            "commits": running.progress.commits,
            "source_version": one.plan.read_version,
            "published_version": one.version or version,
        }

    def _look(
        self,
        running: RunningJob,
        request: BackfillRequest,
        declared: DeclaredColumn,
        location: str,
        name: str,
    ) -> _Pass:
        progress = self._assessor.column_progress(declared, request)
        self._assessor.check_readable(declared, progress.snapshot)
        plan = plan_backfill(progress, request)
        if request.where is not None:
            # A filter is carried out once: rows published before, also by an earlier run, are done.
            plan = _leaving_out(plan, self._rows_published(running))
        if not running.progress.total:
            running.progress = replace(running.progress, reused=plan.rows_reused)
            running.tell("planned", {"rows": plan.rows, "version": plan.read_version, "reason": plan.reason})
        running.progress = replace(running.progress, total=running.progress.done + plan.rows)
        return _Pass(running, request, declared, progress, plan, progress.current, location, name)

    def _run_pass(self, one: _Pass) -> None:
        for number, work in enumerate(one.plan.groups):
            self._run_group(one, one.plan.read_version, work, f"{one.name}.g{number}")

    def _place_orphans(self, one: _Pass) -> None:
        """A pinned version cannot be looked at again later: values whose fragments were moved are put where
        their rows are now."""
        for number in range(MAX_PASSES):
            if not one.orphans:
                return
            if not one.progress.snapshot.has_stable_row_ids:
                raise ConcurrentModification(
                    f"{one.declared.table.ident} was rewritten during the job and has no stable row ids, so "
                    f"the rows of version {one.plan.read_version} cannot be found again; start it anew"
                )
            one.orphans = 0
            waiting = BitMap64()
            for ref in self._usable(one):
                waiting |= ref.rows
            layout = self._assessor.layout(one.declared.table, waiting - self._rows_published(one.running))
            if layout.work:
                self._run_group(one, layout.version, layout.work, f"{one.name}.o{number}")

    def _run_group(self, one: _Pass, version: int, work: Sequence[FragmentWork], part: str) -> None:
        running, table, column = one.running, one.declared.table, one.declared.column
        running.check()
        running.begin_stage()
        stage = FillColumn(
            job_id=running.job.job_id,
            location=table.data_location,
            version=version,
            columns=pa.schema([one.progress.snapshot.schema.field(name) for name in column.names]),
            struct_fields=tuple(output.struct_field for output in column.outputs),
            call=FunctionCall(one.declared.function, column.inputs),
            work=tuple(work),
            checkpoint_location=one.checkpoint_location,
            checkpoints=tuple(self._usable(one)),
            parallelism=one.request.concurrency,
            batches=batch_policy(one.request),
        )
        files = self._executor.fill_column(stage, running)
        running.check()
        running.progress = _after_stage(running.progress, files)
        published = self._publisher.replace_column(
            table, column.names, files, lambda kept: self._bookkeeping(one, part, kept)
        )
        for file in published.orphans:
            self._checkpoints.keep(one.checkpoint_location, table, version, file)
        one.orphans += len(published.orphans)
        if published.version is not None:
            one.version = published.version
            one.commits += 1
            running.progress = replace(running.progress, commits=running.progress.commits + 1)
            one.coverage = _covering(one.coverage, published.files, one.coverage.revision + 1)

    def _bookkeeping(self, one: _Pass, name: str, kept: Sequence[ColumnFile]) -> TransactionEffect:
        """What becomes true together with the commit: the lease held, the part done, the rows covered."""
        running = one.running
        covered = _covering(one.coverage, kept, one.coverage.revision)
        rows = _rows(kept)

        def effect(catalog: CatalogTransaction, version: int) -> None:
            tx = job_transaction(catalog)
            table_id = one.declared.table.table_id
            epoch = running.lease.epoch
            _check_declared(tx, one.declared)
            running.record(tx, Part(running.job.job_id, name, epoch, table_id, version, rows.serialize()))
            tx.coverage.put(one.declared.column.column_id, covered)

        return effect

    def _usable(self, one: _Pass) -> Sequence[CheckpointRef]:
        declared = one.declared
        return self._checkpoints.find_usable(
            one.checkpoint_location, declared.table, one.plan.read_version, declared.column.inputs
        )

    def _settle(self, one: _Pass) -> None:
        """Nothing to do: only remembers up to which version that is known."""
        if one.coverage.watermark == one.progress.coverage.watermark:
            return
        with self._store.transaction() as tx:
            tx.leases.check(one.running.lease)
            tx.coverage.put(one.declared.column.column_id, one.coverage)

    def _rows_published(self, running: RunningJob) -> BitMap64:
        rows = BitMap64()
        with self._store.transaction() as tx:
            for part in tx.parts.list_of(running.job.job_id):
                rows |= BitMap64.deserialize(part.rows)
        return rows


def _check_declared(tx: JobTransaction, declared: DeclaredColumn) -> None:
    """Values of a function that fills the column no longer must not count for the one that does."""
    current = tx.derived.find_column(declared.table.table_id, declared.column.name)
    if current != declared.column:
        raise ConcurrentModification(
            f"Column '{declared.column.name}' of {declared.table.ident} was declared anew during the job"
        )


def batch_policy(request: BackfillRequest) -> BatchPolicy:
    default = BatchPolicy()
    low = request.min_checkpoint_size or default.min_rows
    high = request.max_checkpoint_size or max(default.max_rows, low)
    initial = request.checkpoint_size or default.initial_rows
    flush = request.flush_interval_seconds
    return BatchPolicy(
        initial_rows=min(max(initial, low), high),
        min_rows=low,
        max_rows=high,
        target=default.target,
        flush_interval=default.flush_interval if flush is None else timedelta(seconds=flush),
    )


def _leaving_out(plan: BackfillPlan, done: BitMap64) -> BackfillPlan:
    groups = []
    for group in plan.groups:
        left = [(work, (work.rows or BitMap64()) - done) for work in group]
        kept = tuple(replace(work, rows=rows, row_count=len(rows)) for work, rows in left if rows)
        if kept:
            groups.append(kept)
    return replace(plan, groups=tuple(groups))


def _rows(files: Sequence[ColumnFile]) -> BitMap64:
    rows = BitMap64()
    for file in files:
        rows |= file.rows
    return rows


def _covering(coverage: Coverage, files: Sequence[ColumnFile], revision: int) -> Coverage:
    return Coverage(coverage.digest, coverage.watermark, coverage.rows | _rows(files), revision)


def _after_stage(progress: Progress, files: Sequence[ColumnFile]) -> Progress:
    rows = sum(len(file.rows) for file in files)
    reused = sum(file.reused_rows for file in files)
    return replace(
        progress,
        done=max(progress.done, progress.written + rows),
        written=progress.written + rows,
        computed=progress.computed + rows - reused,
        reused=progress.reused + reused,
    )
