"""Carries out a refresh: evaluates what changed and publishes it in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.jobs.model.coverage import Coverage
from tidemill.jobs.model.failures import RowError, RowFailure
from tidemill.jobs.model.jobs import Clusters, Part
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan, TableSnapshot
from tidemill.jobs.model.views import OutputCap, RefreshPolicy, ViewTarget, WrittenRows, source_subject
from tidemill.jobs.planning.refresh import Trimmed, ViewProgress, covered_after, output_cap, trimmed
from tidemill.jobs.ports import (
    JobStore,
    JobTransaction,
    Publisher,
    SourceTables,
    StageExecutor,
)
from tidemill.jobs.stage_errors import (
    RefreshWouldBeFull,
    RowFailed,
    TaskProcessLost,
    TooManyRowsSkipped,
    ViewRowsChanged,
)
from tidemill.jobs.views.behavior import DeclaredView, StageRequest
from tidemill.jobs.views.kinds import behavior_of
from tidemill.jobs.views.progress import ViewAssessor
from tidemill.jobs.worker.leases import RunningJob

# So often a refresh is done again because others wrote into rows at hand, or a task's process was killed.
MAX_TRIES: Final = 5


class ViewEvaluator:
    """Has a view's rows made: what a plan asks for, as stages for an executor."""

    def __init__(
        self,
        assessor: ViewAssessor,
        sources: SourceTables,
        executor: StageExecutor,
        clusters: Clusters,
    ) -> None:
        self._assessor = assessor
        self._sources = sources
        self._executor = executor
        self._clusters = clusters

    def target(
        self, declared: DeclaredView, there: TableSnapshot, max_rows: int | None, *, is_dry: bool = False
    ) -> ViewTarget:
        """The view as it is now; raises TableColumnNotFound when it has lost columns of its own."""
        output, behavior = self._assessor.output(declared), behavior_of(declared.view)
        for name in output.names:
            if name not in there.schema.names:
                raise TableColumnNotFound(declared.table.ident, name, tuple(there.schema.names))
        return ViewTarget(
            location=declared.table.data_location,
            version=there.version,
            output=output,
            key=behavior.key(declared.view),
            place=behavior.place,
            carried=tuple(name for name in there.schema.names if name not in output.names),
            is_empty=there.live_rows == 0,
            max_rows_per_fragment=max_rows,
            is_dry=is_dry,
        )

    def evaluate(
        self,
        running: RunningJob,
        declared: DeclaredView,
        progress: ViewProgress,
        plan: RefreshPlan,
        target: ViewTarget,
        options: RefreshRequest,
        *,
        cap: OutputCap | None = None,
        is_suspect: bool = False,
    ) -> WrittenRows:
        """Makes the rows of the plan and compares them with what the view has."""
        running.check()
        running.begin_stage()
        request = StageRequest(
            job_id=running.job.job_id,
            declared=declared,
            progress=progress,
            plan=plan,
            target=target,
            options=options,
            clusters=self._clusters,
            cap=cap,
            is_suspect=is_suspect,
        )
        stage = behavior_of(declared.view).stage(request, self._sources)
        return WrittenRows() if stage is None else self._executor.write_view(stage, running)


@dataclass(frozen=True)
class _Refresh:
    """One refresh at work."""

    running: RunningJob
    request: RefreshRequest
    declared: DeclaredView
    progress: ViewProgress
    plan: RefreshPlan


@dataclass(frozen=True)
class _Outcome:
    """What a refresh comes to: rows made and removed, and the coverage that follows."""

    base: int
    written: WrittenRows
    removed: BitMap64
    coverage: tuple[Coverage, ...]


class RefreshRunner:
    def __init__(
        self,
        store: JobStore,
        assessor: ViewAssessor,
        sources: SourceTables,
        evaluator: ViewEvaluator,
        publisher: Publisher,
    ) -> None:
        self._store = store
        self._assessor = assessor
        self._sources = sources
        self._evaluator = evaluator
        self._publisher = publisher

    def run(self, running: RunningJob, request: RefreshRequest) -> dict[str, Any]:
        """Returns what the job's result says."""
        declared = self._assessor.get_view(running.get_table())
        try:
            return self._tried(running, request, declared)
        except RowFailed as error:
            self._note_errors(running, declared, [error.failure])
            raise
        except TooManyRowsSkipped as error:
            self._note_errors(running, declared, error.failures)
            raise

    def _tried(self, running: RunningJob, request: RefreshRequest, declared: DeclaredView) -> dict[str, Any]:
        is_suspect = False
        for attempt in range(1, MAX_TRIES + 1):
            try:
                return self._refresh(running, request, declared, is_suspect=is_suspect)
            except ViewRowsChanged:
                if attempt == MAX_TRIES:
                    raise
                running.tell("view_changed", {"attempt": attempt})
            except TaskProcessLost:
                if attempt == MAX_TRIES:
                    raise
                is_suspect = True
                running.tell("task_process_lost", {"attempt": attempt})
        raise AssertionError("the last attempt returns or raises")

    def _refresh(
        self, running: RunningJob, request: RefreshRequest, declared: DeclaredView, *, is_suspect: bool
    ) -> dict[str, Any]:
        policy = declared.policy(request)
        progress = self._assessor.progress(declared, request.source_version, policy)
        plan = self._assessor.plan_of(declared, request, progress)
        one = _Refresh(running, request, declared, progress, plan)
        self._check_policy(one, policy)
        running.progress = replace(
            running.progress,
            total=plan.rows,
            done=0,
            reused=plan.rows_reused,
            replaced=plan.rows_replaced,
            removed=plan.rows_removed,
        )
        running.tell("planned", plan.summary())
        if plan.is_empty and request.output_limit is None:
            self._settle(one, covered_after(progress, None, None))
            return _result(one, self._sources.snapshot(declared.table, None).version)
        outcome = self._make(one, is_suspect=is_suspect)
        running.check()
        return _result(one, self._publish(one, outcome), outcome.written)

    def _check_policy(self, one: _Refresh, policy: RefreshPolicy) -> None:
        """The first filling of a view is not what anybody wants to be spared."""
        is_first = any(source.is_new for source in one.progress.sources)
        if policy is RefreshPolicy.INCREMENTAL and one.plan.is_full and not is_first:
            raise RefreshWouldBeFull(one.declared.table.ident, one.plan.reason)

    def _make(self, one: _Refresh, *, is_suspect: bool) -> _Outcome:
        if one.request.output_limit is not None:
            return self._make_capped(one, one.request.output_limit, is_suspect=is_suspect)
        declared, plan = one.declared, one.plan
        there = self._sources.snapshot(declared.table, None)
        target = self._evaluator.target(declared, there, one.request.max_rows_per_fragment)
        written = self._evaluator.evaluate(
            one.running, declared, one.progress, plan, target, one.request, is_suspect=is_suspect
        )
        wanted = None if plan.is_full else plan.keys if plan.keys is not None else plan.stale
        rows = self._sources.keyed_rows(declared.table, there.version, target.key, wanted)
        removed = rows.all_rows() - written.kept - rows.rows_of(written.skipped)
        self._count(one, written, plan.rows)
        return _Outcome(there.version, written, removed, covered_after(one.progress, None, None))

    def _make_capped(self, one: _Refresh, limit: int, *, is_suspect: bool) -> _Outcome:
        """As much as is shown, and no more than is needed for that."""
        declared, source = one.declared, one.progress.first
        there = self._sources.snapshot(declared.table, None)
        target = self._evaluator.target(declared, there, one.request.max_rows_per_fragment)
        rows = self._sources.keyed_rows(declared.table, there.version, target.key, None)
        kept = BitMap64() if one.plan.is_full else source.kept
        cap = output_cap(limit, kept, rows)
        written = self._evaluator.evaluate(
            one.running, declared, one.progress, one.plan, target, one.request, cap=cap, is_suspect=is_suspect
        )
        trim = trimmed(cap, written.made or (cap.kept[:0], cap.counts[:0]), rows)
        made_anew = rows.rows_of(None if one.plan.is_full else source.coverage.held - kept)
        # Of rows that were skipped nothing stays: it would count for others.
        removed = (made_anew - written.kept) | trim.removed
        self._count(one, written, one.plan.rows)
        return _Outcome(there.version, written, removed, _capped_coverage(one.progress, trim, written))

    def _count(self, one: _Refresh, written: WrittenRows, rows: int) -> None:
        one.running.progress = replace(
            one.running.progress,
            done=rows,
            computed=rows,
            written=written.rows,
            skipped=len(written.failures),
        )

    def _publish(self, one: _Refresh, outcome: _Outcome) -> int:
        """One commit for rows, removals and bookkeeping; none if the rows are what they were."""
        if not outcome.written.fragments and not outcome.removed:
            self._settle(one, outcome.coverage, outcome.written)
            return outcome.base
        one.running.progress = replace(one.running.progress, commits=1)

        def effect(tx: JobTransaction, version: int) -> None:
            running, epoch = one.running, one.running.lease.epoch
            rows = outcome.removed.serialize()
            table_id = one.declared.table.table_id
            running.record(tx, Part(running.job.job_id, f"e{epoch}", epoch, table_id, version, rows))
            published = tuple(replace(each, published=version) for each in outcome.coverage)
            self._remember(tx, one, published, outcome.written)

        return self._publisher.update_view(
            one.declared.table, outcome.base, outcome.written, outcome.removed, effect
        )

    def _settle(
        self, one: _Refresh, coverage: tuple[Coverage, ...], written: WrittenRows | None = None
    ) -> None:
        """Nothing to publish: only remembers up to which versions that is known."""
        sources = one.progress.sources
        is_known = all(
            before.coverage.revision
            and (before.coverage.watermark, before.coverage.held) == (after.watermark, after.held)
            for before, after in zip(sources, coverage, strict=True)
        )
        if is_known and written is None:
            return
        kept = tuple(
            replace(after, published=before.coverage.published)
            for before, after in zip(sources, coverage, strict=True)
        )
        with self._store.transaction() as tx:
            tx.leases.check(one.running.lease)
            self._remember(tx, one, kept, written or WrittenRows())

    def _remember(
        self, tx: JobTransaction, one: _Refresh, coverage: Sequence[Coverage], written: WrittenRows
    ) -> None:
        view = one.declared.view
        for place, (source, each) in enumerate(zip(view.sources, coverage, strict=True)):
            tx.coverage.put(source_subject(view.view_id, source.table_id, place), each)
        errors = [_error(one.running, one.declared, f, skipped=True) for f in written.failures]
        tx.errors.settle(view.view_id, _done(one), errors)

    def _note_errors(
        self, running: RunningJob, declared: DeclaredView, failures: Sequence[RowFailure]
    ) -> None:
        errors = [_error(running, declared, f, skipped=False) for f in failures if f.row_id is not None]
        with self._store.transaction() as tx:
            tx.leases.check(running.lease)
            tx.errors.settle(declared.view.view_id, BitMap64(), errors)


def _error(running: RunningJob, declared: DeclaredView, failure: RowFailure, *, skipped: bool) -> RowError:
    view = declared.view
    return RowError(view.view_id, view.digest, running.job.job_id, failure, is_skipped=skipped)


def _done(one: _Refresh) -> BitMap64 | None:
    """What was made anew, or is gone: errors of before do not count for it any more; None: everything."""
    if one.plan.is_full:
        return None
    if one.plan.keys is not None:
        return one.plan.keys
    source = one.progress.first
    return (source.live | source.before) - source.kept


def _capped_coverage(progress: ViewProgress, trim: Trimmed, written: WrittenRows) -> tuple[Coverage, ...]:
    covered = trim.covered | (written.covered or BitMap64())
    return covered_after(progress, covered, written.cut if trim.cut is None else trim.cut)


def _result(one: _Refresh, version: int, written: WrittenRows | None = None) -> dict[str, Any]:
    plan, progress = one.plan, one.running.progress
    return {
        **plan.summary(),
        "rows_written": progress.written,
        "rows_computed": progress.computed,
        "rows_skipped": progress.skipped,
        "rows_kept": 0 if written is None else len(written.kept),
        "version": version,
    }
