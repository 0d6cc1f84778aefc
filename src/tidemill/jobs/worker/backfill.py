"""Carries out a backfill: what is stale when it begins, and then what others have written meanwhile.

A table with a steady writer always has stale rows, so catching up is bounded (see `_is_worth_a_pass`). The
rows that still need work when the job ends are in its result as `rows_left`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.errors import ConcurrentModification, TableColumnNotFound
from tidemill.catalog.model.functions import Environment
from tidemill.catalog.model.tables import MAIN_BRANCH
from tidemill.jobs.model.columns import BatchPolicy, CheckpointRef, ColumnFile, FillColumn
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.failures import RowError, RowFailure, is_on_row_of
from tidemill.jobs.model.jobs import Clusters, Part, Progress
from tidemill.jobs.model.options import BackfillRequest, PreviewRequest
from tidemill.jobs.model.plans import BackfillPlan, CommitGroup
from tidemill.jobs.planning.backfill import ColumnProgress, plan_backfill
from tidemill.jobs.planning.column_progress import Assessor, DeclaredColumn
from tidemill.jobs.planning.tasks import commit_group
from tidemill.jobs.ports import (
    Checkpoints,
    JobStore,
    JobTransaction,
    Publisher,
    StageExecutor,
    TransactionEffect,
)
from tidemill.jobs.stage_errors import RowFailed, TaskProcessLost, TooManyRowsSkipped
from tidemill.jobs.worker.leases import RunningJob

# Passes after the first one. A table that changes faster than we can follow is left to the next backfill.
MAX_CATCH_UPS: Final = 5
# A pass with so few rows to compute is cheap, whatever the one before had.
SMALL_PASS_ROWS: Final = 1000
# So often a stage is done again whose tasks' processes were killed.
LOST_PROCESSES: Final = 3


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
    done: BitMap64 | None = None
    orphans: int = 0
    orphaned_rows: int = 0
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
        clusters: Clusters,
    ) -> None:
        self._store = store
        self._assessor = assessor
        self._executor = executor
        self._publisher = publisher
        self._checkpoints = checkpoints
        self._clusters = clusters

    def run(self, running: RunningJob, request: BackfillRequest) -> dict[str, Any]:
        """Returns what the job's result says."""
        table = running.get_table().on(request.branch or MAIN_BRANCH)
        declared = self._assessor.get_subject(table, running.job.subject_id, request.column)
        try:
            return self._run(running, request, declared)
        except RowFailed as error:
            self._note_errors(running, declared, [error.failure])
            raise
        except TooManyRowsSkipped as error:
            self._note_errors(running, declared, error.failures)
            raise

    def _run(self, running: RunningJob, request: BackfillRequest, declared: DeclaredColumn) -> dict[str, Any]:
        scope = running.job.job_id if _is_filtered(request) else "shared"
        location = self._checkpoints.location(declared.subject_id, declared.function.digest, scope)
        is_once = request.read_version is not None or request.num_frags is not None
        version: int | None = None
        rows_before = 0
        for number in count():
            one = self._look(running, request, declared, location, f"e{running.lease.epoch}.p{number}")
            rows_left = one.plan.rows
            if one.plan.is_empty:
                self._settle(one)
                break
            rows_to_compute = self._rows_to_compute(one) if number else rows_left
            if not _is_worth_a_pass(number, rows_to_compute, rows_before):
                running.progress = replace(running.progress, total=running.progress.done)
                break
            rows_before = rows_to_compute
            self._run_pass(one)
            version = one.version or version
            rows_left = one.orphaned_rows + self._rows_not_planned(one)
            if is_once or one.is_last:
                break
        if _is_filtered(request) or not (is_once or rows_left):
            self._checkpoints.clear(location)
        return _result(running.progress, one, one.version or version, rows_left)

    def _run_pass(self, one: _Pass) -> None:
        for place, group in enumerate(one.plan.groups):
            self._run_group(one, one.plan.read_version, group, f"{one.name}.g{place}")
        if one.request.read_version is not None:
            self._place_orphans(one)

    def _rows_to_compute(self, one: _Pass) -> int:
        """Rows of the plan whose value is not checkpointed; placing values that exist is quick."""
        waiting = BitMap64()
        for ref in self._usable(one, one.plan.read_version):
            waiting |= ref.rows
        work = [item for group in one.plan.groups for item in group.work]
        known = sum(len(item.rows - waiting) for item in work if item.rows is not None)
        whole = sum(item.row_count for item in work if item.rows is None)
        return known + max(whole - len(waiting), 0)

    def _rows_not_planned(self, one: _Pass) -> int:
        """Rows that need work and that `num_frags` has left out."""
        if one.request.num_frags is None:
            return 0
        every = plan_backfill(one.progress, replace(one.request, num_frags=None), 1, one.done)
        return every.rows - one.plan.rows

    def _look(
        self,
        running: RunningJob,
        request: BackfillRequest,
        declared: DeclaredColumn,
        location: str,
        name: str,
    ) -> _Pass:
        declared = self._assessor.followed(declared, request.read_version)
        progress = self._assessor.column_progress(declared, request)
        self._assessor.check_readable(declared, progress.snapshot)
        # A selection is carried out once: rows published before, also by an earlier run, are done.
        done = self._rows_published(running) if _is_filtered(request) else None
        plan = plan_backfill(progress, request, self._clusters.slots(request.cluster), done)
        if not running.progress.total:
            skipped = self._rows_skipped(running, declared)
            running.progress = replace(running.progress, reused=plan.rows_reused, skipped=skipped)
            running.tell("planned", dict(plan.summary()))
        running.progress = replace(running.progress, total=running.progress.done + plan.rows)
        coverage = progress.current if plan.is_empty else self._with_few_segments(declared, progress)
        return _Pass(running, request, declared, progress, plan, coverage, location, name, done)

    def _with_few_segments(self, declared: DeclaredColumn, progress: ColumnProgress) -> Coverage:
        location, coverage = self._segment_location(declared), progress.current
        if location is None:
            return coverage
        rows = progress.snapshot.live_rows
        return replace(coverage, segments=self._checkpoints.merge_segments(location, coverage.segments, rows))

    def _place_orphans(self, one: _Pass) -> None:
        """A pinned version cannot be looked at again later: values whose rows were moved are put where
        those are now, unless they are no longer right there."""
        for number in range(MAX_CATCH_UPS + 1):
            if not one.orphans:
                return
            if not one.progress.snapshot.has_stable_row_ids:
                raise ConcurrentModification(
                    f"{one.declared.table.ident} was rewritten during the job and has no stable row ids, so "
                    f"the rows of version {one.plan.read_version} cannot be found again; start it anew"
                )
            one.orphans = one.orphaned_rows = 0
            # Where the rows were when they were read, they do not hold the values that are about to count.
            one.coverage = replace(one.coverage, files=BitMap64())
            version = self._assessor.latest_version(one.declared.table)
            waiting = BitMap64()
            for ref in self._usable(one, version):
                waiting |= ref.rows
            left = waiting - self._rows_published(one.running)
            work = self._assessor.layout(one.declared.table, version, left)
            if work and number == MAX_CATCH_UPS:
                one.orphaned_rows = len(left)
            elif work:
                group = commit_group(work, replace(one.request, task_size=None, concurrency=1), 1)
                self._run_group(one, version, group, f"{one.name}.o{number}")

    def _run_group(self, one: _Pass, version: int, group: CommitGroup, part: str) -> None:
        """A task whose process was killed costs what it had not checkpointed, not the job."""
        for attempt in range(LOST_PROCESSES + 1):
            try:
                files, computed = self._compute(one, version, group, is_suspect=attempt > 0)
                break
            except TaskProcessLost:
                if attempt == LOST_PROCESSES:
                    raise
                one.running.tell("task_process_lost", {"part": part})
        one.running.check()
        one.running.progress = _after_stage(one.running.progress, files, computed)
        self._publish(one, version, files, part)

    def _compute(
        self, one: _Pass, version: int, group: CommitGroup, *, is_suspect: bool
    ) -> tuple[Sequence[ColumnFile], int]:
        """The group's column files, and how many rows were computed before those were put together."""
        running = one.running
        running.check()
        running.begin_stage()
        declared = self._at(one, version)
        columns = [
            one.progress.snapshot.schema.field(read).with_name(name)
            for read, name in zip(one.declared.column.names, declared.column.names, strict=True)
        ]
        stage = replace(
            fill_stage(running, declared, one.request, version, columns),
            checkpoint_location=one.checkpoint_location,
            segment_location=self._segment_location(one.declared),
            checkpoints=tuple(self._usable(one, version)),
            allowed_skips=self._skips_left(one),
            is_suspect=is_suspect,
        )
        computed = 0
        if group.pieces:
            made = self._executor.compute_rows(replace(stage, tasks=group.pieces), running)
            computed = sum(len(piece.rows) - piece.reused_rows for piece in made)
            running.check()
            stage = replace(stage, checkpoints=tuple(self._usable(one, version)))
        return self._executor.fill_column(replace(stage, tasks=group.tasks), running), computed

    def _publish(self, one: _Pass, version: int, files: Sequence[ColumnFile], part: str) -> None:
        running, table = one.running, one.declared.table
        watched, effect = one.declared.watched(), lambda kept: self._bookkeeping(one, part, kept)
        try:
            published = self._publisher.replace_column(table, watched, files, effect)
        except TableColumnNotFound:
            # It may have been renamed since it was read.
            renamed = self._assessor.followed(one.declared).watched()
            published = self._publisher.replace_column(table, renamed, files, effect)
        for file in published.orphans:
            self._checkpoints.keep(one.checkpoint_location, table, version, file)
        one.orphans += len(published.orphans)
        one.orphaned_rows += sum(len(file.rows) for file in published.orphans)
        if published.version is not None:
            one.version = published.version
            one.commits += 1
            running.progress = replace(
                running.progress,
                commits=running.progress.commits + 1,
                skipped=running.progress.skipped + len(_failures(published.files)),
            )
            one.coverage = _covering(one, published.files, published.version, one.coverage.revision + 1)

    def _bookkeeping(self, one: _Pass, name: str, kept: Sequence[ColumnFile]) -> TransactionEffect:
        """What becomes true together with the commit: the lease held, the part done, the rows covered."""
        running, subject_id = one.running, one.declared.subject_id
        rows = _rows(kept)
        errors = [self._error(running, one.declared, failure, skipped=True) for failure in _failures(kept)]

        def effect(tx: JobTransaction, version: int) -> None:
            table_id = one.declared.table.table_id
            epoch = running.lease.epoch
            _check_declared(tx, one.declared)
            running.record(tx, Part(running.job.job_id, name, epoch, table_id, version, rows.serialize()))
            tx.coverage.put(subject_id, _covering(one, kept, version, one.coverage.revision))
            column = one.declared.column
            tx.coverage.withdraw(subject_id, column.function_digest, rows, column.kept_digests)
            tx.errors.settle(subject_id, rows, errors)

        return effect

    def _segment_location(self, declared: DeclaredColumn) -> str | None:
        """One place for all branches: what is right on one is right on every other."""
        if not declared.watched().expressions:
            return None
        return self._checkpoints.segment_location(declared.column.column_id, declared.function.digest)

    def _usable(self, one: _Pass, version: int) -> Sequence[CheckpointRef]:
        declared = self._at(one, version)
        return self._checkpoints.find_usable(
            one.checkpoint_location, declared.table, version, declared.watched()
        )

    def _at(self, one: _Pass, version: int) -> DeclaredColumn:
        """The column under the names it has at a version."""
        is_read = version == one.plan.read_version
        return one.declared if is_read else self._assessor.followed(one.declared, version)

    def _settle(self, one: _Pass) -> None:
        """Nothing to do: only remembers up to which version that is known."""
        if one.coverage.watermark == one.progress.coverage.watermark:
            return
        with self._store.transaction() as tx:
            tx.leases.check(one.running.lease)
            tx.coverage.put(one.declared.subject_id, one.coverage)

    def _skips_left(self, one: _Pass) -> int | None:
        allowed = one.request.on_error.allowed_skips(one.running.progress.total)
        return None if allowed is None else allowed - one.running.progress.skipped

    def _note_errors(
        self, running: RunningJob, declared: DeclaredColumn, failures: Sequence[RowFailure]
    ) -> None:
        errors = [
            self._error(running, declared, failure, skipped=False)
            for failure in failures
            if failure.row_id is not None
        ]
        with self._store.transaction() as tx:
            tx.leases.check(running.lease)
            tx.errors.settle(declared.subject_id, BitMap64(), errors)

    def _error(
        self, running: RunningJob, declared: DeclaredColumn, failure: RowFailure, *, skipped: bool
    ) -> RowError:
        digest = declared.function.digest
        return RowError(declared.subject_id, digest, running.job.job_id, failure, is_skipped=skipped)

    def _rows_published(self, running: RunningJob) -> BitMap64:
        rows = BitMap64()
        with self._store.transaction() as tx:
            for part in tx.parts.list_of(running.job.job_id):
                rows |= BitMap64.deserialize(part.rows)
        return rows

    def _rows_skipped(self, running: RunningJob, declared: DeclaredColumn) -> int:
        """By an earlier run of the same job."""
        if running.job.epoch <= 1:
            return 0
        with self._store.transaction() as tx:
            return tx.errors.count_of(declared.subject_id, running.job.job_id)


def _is_worth_a_pass(number: int, rows: int, rows_before: int) -> bool:
    """Whether to go on: the first catch-up always, further ones while the work halves or is small.

    One large write during the job is followed, a writer that writes as much as we compute is not.
    """
    is_converging = rows <= max(rows_before // 2, SMALL_PASS_ROWS)
    return number <= 1 or (number <= MAX_CATCH_UPS and is_converging)


def _is_filtered(request: BackfillRequest) -> bool:
    """Whether it is for certain rows, whatever they hold: results of others must not stand in for theirs."""
    return request.where is not None or request.only is not None


def _check_declared(tx: JobTransaction, declared: DeclaredColumn) -> None:
    """Values of a function that fills the column no longer must not count for the one that does."""
    columns = tx.derived.list_columns(declared.table.table_id)
    if not any(column.is_same_declaration(declared.column) for column in columns):
        raise ConcurrentModification(
            f"Column '{declared.column.name}' of {declared.table.ident} was declared anew during the job"
        )


def _rows(files: Sequence[ColumnFile]) -> BitMap64:
    rows = BitMap64()
    for file in files:
        rows |= file.rows
    return rows


def _failures(files: Sequence[ColumnFile]) -> list[RowFailure]:
    return [failure for file in files for failure in file.failures if is_on_row_of(failure, file.rows)]


def _covering(one: _Pass, files: Sequence[ColumnFile], version: int, revision: int) -> Coverage:
    covered = one.progress.after(one.coverage, _rows(files))
    segments = dict.fromkeys(file.segment for file in files if file.segment is not None)
    return replace(
        covered,
        revision=revision,
        published=max(version, one.coverage.published),
        files=_files_after(one.coverage.files, files),
        segments=tuple(dict.fromkeys([*covered.segments, *segments])),
    )


def _files_after(known: BitMap64, files: Sequence[ColumnFile]) -> BitMap64:
    """The marks of fragments in which nothing has to be looked at.

    Of a fragment that has been filled in part only, the rest must have been known before.
    """
    marks = known.copy()
    for file in files:
        if file.marks is not None:
            seen = BitMap64([*file.marks.read, *file.marks.before])
            marks -= seen
            if seen <= known or file.carried_files is None:
                marks.update(file.marks.published)
    return marks


def _after_stage(progress: Progress, files: Sequence[ColumnFile], computed: int) -> Progress:
    """`computed` of the rows were computed by this stage before their files were put together."""
    rows = sum(len(file.rows) for file in files)
    reused = sum(file.reused_rows for file in files) - computed
    return replace(
        progress,
        done=max(progress.done, progress.written + rows),
        written=progress.written + rows,
        computed=progress.computed + rows - reused,
        reused=progress.reused + reused,
    )


def _result(progress: Progress, one: _Pass, version: int | None, rows_left: int) -> dict[str, Any]:
    return {
        "rows_computed": progress.computed,
        "rows_reused": progress.reused,
        "rows_skipped": progress.skipped,
        "rows_left": rows_left,
        "commits": progress.commits,
        "source_version": one.plan.read_version,
        "published_version": version,
    }


def fill_stage(
    running: RunningJob,
    declared: DeclaredColumn,
    request: BackfillRequest | PreviewRequest,
    version: int,
    columns: Sequence[pa.Field],
) -> FillColumn:
    """A stage without tasks: those, and where checkpoints are, are the caller's to say."""
    column = declared.column
    stage = FillColumn(
        job_id=running.job.job_id,
        location=declared.table.data_location,
        version=version,
        columns=pa.schema(list(columns)),
        struct_fields=tuple(output.struct_field for output in column.outputs),
        call=declared.call,
        tasks=(),
        checkpoint_location="",
        environment=request.environment or Environment(),
    )
    if isinstance(request, PreviewRequest):
        return stage
    return replace(
        stage,
        parallelism=request.concurrency,
        threads=request.intra_applier_concurrency or 1,
        batches=batch_policy(request),
        on_error=request.on_error,
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
        flush_interval=None if flush is None else timedelta(seconds=flush),
    )
