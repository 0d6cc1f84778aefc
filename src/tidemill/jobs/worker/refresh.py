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
from tidemill.jobs.model.views import (
    KeptResults,
    OutputCap,
    RefreshPolicy,
    ViewTarget,
    WrittenRows,
    function_subject,
    source_subject,
)
from tidemill.jobs.planning.refresh import Trimmed, ViewProgress, covered_after, output_cap, trimmed
from tidemill.jobs.ports import JobStore, JobTransaction, Publisher, StageExecutor, ViewResults
from tidemill.jobs.stage_errors import (
    RefreshWouldBeFull,
    RowFailed,
    TaskProcessLost,
    TooManyRowsSkipped,
    ViewRowsChanged,
)
from tidemill.jobs.table_ports import SourceTables
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
        kept: tuple[KeptResults, ...] = (),
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
            kept=kept,
        )
        stage = behavior_of(declared.view).stage(request, self._sources)
        return WrittenRows() if stage is None else self._executor.write_view(stage, running)


@dataclass(frozen=True)
class _Refresh:
    """One refresh at work.

    `functions` are the records of the fingerprints that are kept for the view's functions, in the order of
    its calls, and `kept` is what of their results can be used.
    """

    running: RunningJob
    request: RefreshRequest
    declared: DeclaredView
    progress: ViewProgress
    plan: RefreshPlan
    functions: tuple[Coverage, ...] = ()
    kept: tuple[KeptResults, ...] = ()


@dataclass(frozen=True)
class _Outcome:
    """What a refresh comes to: rows made and removed, and the coverage that follows."""

    base: int
    written: WrittenRows
    removed: BitMap64
    coverage: tuple[Coverage, ...]
    functions: tuple[Coverage, ...] = ()


class RefreshRunner:
    def __init__(
        self,
        store: JobStore,
        assessor: ViewAssessor,
        sources: SourceTables,
        evaluator: ViewEvaluator,
        publisher: Publisher,
        results: ViewResults,
    ) -> None:
        self._store = store
        self._assessor = assessor
        self._sources = sources
        self._evaluator = evaluator
        self._publisher = publisher
        self._results = results

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
            except ViewRowsChanged as error:
                if attempt == MAX_TRIES:
                    raise ViewRowsChanged(declared.table.ident, attempt) from error
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
        one = self._with_results(one, policy)
        outcome = self._with_segments(one, self._make(one, is_suspect=is_suspect))
        running.check()
        version = self._publish(one, outcome)
        self._tidy_up(one, outcome)
        return _result(one, version, outcome.written)

    def _with_results(self, one: _Refresh, policy: RefreshPolicy) -> _Refresh:
        """Looks up what is kept of the functions' results.

        A full refresh that was asked for calls them for everything, and uses nothing but its own checkpoints.
        """
        view, calls = one.declared.view, one.declared.calls
        if not calls:
            return one
        is_anew = policy is RefreshPolicy.FULL
        scope = one.running.job.job_id if is_anew else "shared"
        subjects = [function_subject(view.view_id, call.name) for call in calls]
        with self._store.reading() as tx:
            functions = tuple(
                tx.coverage.find(subject, call.function.digest) or Coverage(call.function.digest)
                for subject, call in zip(subjects, calls, strict=True)
            )
        kept = tuple(
            self._results.find(subject, each.digest, scope, () if is_anew else each.segments)
            for subject, each in zip(subjects, functions, strict=True)
        )
        return replace(one, functions=functions, kept=kept)

    def _with_segments(self, one: _Refresh, outcome: _Outcome) -> _Outcome:
        """With the fingerprints of what was computed, where there are new ones."""
        rows = len(one.progress.first.live)
        functions = []
        for number, (each, kept) in enumerate(zip(one.functions, one.kept, strict=True)):
            new = tuple(path for call, path in outcome.written.segments if call == number)
            segments = (
                self._results.merge_segments(kept, (*each.segments, *new), rows) if new else each.segments
            )
            functions.append(replace(each, segments=segments))
        return replace(outcome, functions=tuple(functions))

    def _tidy_up(self, one: _Refresh, outcome: _Outcome) -> None:
        """Removes what the refresh has no more use for.

        Results that a limit kept from being shown stay, for the refresh that lifts it; but those of a full
        refresh are found by no other.
        """
        is_anew = one.declared.policy(one.request) is RefreshPolicy.FULL
        for before, after, kept in zip(one.functions, outcome.functions, one.kept, strict=True):
            if before.segments != after.segments:
                self._results.keep_only(kept, after.segments)
            if one.request.output_limit is None or is_anew:
                self._results.clear_checkpoints(kept)

    def _check_policy(self, one: _Refresh, policy: RefreshPolicy) -> None:
        """The first filling of a view is not what anybody wants to be spared."""
        is_first = any(source.is_new for source in one.progress.sources)
        if policy is RefreshPolicy.INCREMENTAL and one.plan.is_full and not is_first:
            raise RefreshWouldBeFull(one.declared.table.ident, one.plan.reason)

    def _make(self, one: _Refresh, *, is_suspect: bool) -> _Outcome:
        if one.request.output_limit is not None:
            return self._make_capped(one, one.request.output_limit, is_suspect=is_suspect)
        declared, plan = one.declared, one.plan
        there = self._there(one)
        target = self._evaluator.target(declared, there, one.request.max_rows_per_fragment)
        written = self._evaluator.evaluate(
            one.running,
            declared,
            one.progress,
            plan,
            target,
            one.request,
            is_suspect=is_suspect,
            kept=one.kept,
        )
        wanted = None if plan.is_full else plan.keys if plan.keys is not None else plan.stale
        rows = self._sources.keyed_rows(declared.table, there.version, target.key, wanted)
        removed = rows.all_rows() - written.kept - rows.rows_of(written.skipped)
        self._count(one, written, plan.rows)
        return _Outcome(there.version, written, removed, covered_after(one.progress, None, None))

    def _make_capped(self, one: _Refresh, limit: int, *, is_suspect: bool) -> _Outcome:
        """As much as is shown, and no more than is needed for that."""
        declared, source = one.declared, one.progress.first
        there = self._there(one)
        target = self._evaluator.target(declared, there, one.request.max_rows_per_fragment)
        rows = self._sources.keyed_rows(declared.table, there.version, target.key, None)
        kept = BitMap64() if one.plan.is_full else source.kept
        cap = output_cap(limit, kept, rows)
        written = self._evaluator.evaluate(
            one.running,
            declared,
            one.progress,
            one.plan,
            target,
            one.request,
            cap=cap,
            is_suspect=is_suspect,
            kept=one.kept,
        )
        trim = trimmed(cap, written.made or (cap.kept[:0], cap.counts[:0]), rows)
        made_anew = rows.rows_of(None if one.plan.is_full else source.coverage.held - kept)
        # Of rows that were skipped nothing stays: it would count for others.
        removed = (made_anew - written.kept) | trim.removed
        self._count(one, written, one.plan.rows)
        return _Outcome(there.version, written, removed, _capped_coverage(one.progress, trim, written))

    def _there(self, one: _Refresh) -> TableSnapshot:
        """The view at the version up to which it is known what others did to it."""
        return self._sources.snapshot(one.declared.table, one.progress.edits.version or None)

    def _count(self, one: _Refresh, written: WrittenRows, rows: int) -> None:
        evaluated = rows if written.evaluated is None else written.evaluated
        # A plan by keys counts the rows that changed, a task all rows of a partition.
        reused = min(written.reused, evaluated)
        one.running.progress = replace(
            one.running.progress,
            done=rows,
            computed=evaluated - reused,
            reused=one.plan.rows_reused + reused,
            written=written.rows,
            skipped=len(written.failures),
        )

    def _publish(self, one: _Refresh, outcome: _Outcome) -> int:
        """One commit for rows, removals and bookkeeping; none if the rows are what they were."""
        if not outcome.written.fragments and not outcome.removed:
            self._settle(one, outcome.coverage, outcome)
            return outcome.base
        one.running.progress = replace(one.running.progress, commits=1)

        def effect(tx: JobTransaction, version: int) -> None:
            running, epoch = one.running, one.running.lease.epoch
            rows = outcome.removed.serialize()
            table_id = one.declared.table.table_id
            running.record(tx, Part(running.job.job_id, f"e{epoch}", epoch, table_id, version, rows))
            published = tuple(replace(each, published=version) for each in outcome.coverage)
            self._remember(tx, one, published, outcome)

        columns = self._assessor.output(one.declared).names
        return self._publisher.update_view(
            one.declared.table, outcome.base, columns, outcome.written, outcome.removed, effect
        )

    def _settle(self, one: _Refresh, coverage: tuple[Coverage, ...], outcome: _Outcome | None = None) -> None:
        """Nothing to publish: only remembers up to which versions that is known."""
        sources = one.progress.sources
        # Whatever others did to the view up to here, it is as it should be.
        kept = tuple(
            replace(after, published=max(before.coverage.published, one.progress.edits.version))
            for before, after in zip(sources, coverage, strict=True)
        )
        is_known = all(
            before.coverage.revision
            and (before.coverage.watermark, before.coverage.held, before.coverage.published)
            == (after.watermark, after.held, after.published)
            for before, after in zip(sources, kept, strict=True)
        )
        if is_known and outcome is None:
            return
        with self._store.transaction() as tx:
            tx.leases.check(one.running.lease)
            self._remember(tx, one, kept, outcome)

    def _remember(
        self, tx: JobTransaction, one: _Refresh, coverage: Sequence[Coverage], outcome: _Outcome | None
    ) -> None:
        view = one.declared.view
        for place, (source, each) in enumerate(zip(view.sources, coverage, strict=True)):
            tx.coverage.put(source_subject(view.view_id, source.table_id, place), each)
        if outcome is not None:
            self._remember_functions(tx, one, outcome)
        failures = () if outcome is None else outcome.written.failures
        errors = [_error(one.running, one.declared, f, skipped=True) for f in failures]
        tx.errors.settle(view.view_id, _done(one), errors)

    def _remember_functions(self, tx: JobTransaction, one: _Refresh, outcome: _Outcome) -> None:
        for call, before, after in zip(one.declared.calls, one.functions, outcome.functions, strict=True):
            if after != before:
                tx.coverage.put(function_subject(one.declared.view.view_id, call.name), after)

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
        "rows_reused": progress.reused,
        "rows_skipped": progress.skipped,
        "rows_kept": 0 if written is None else len(written.kept),
        "version": version,
    }
