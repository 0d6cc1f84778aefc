"""Carries out a refresh: evaluates what changed and publishes it in one commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemill.catalog.ports import CatalogTransaction
from tidemill.jobs.model.derived import view_output
from tidemill.jobs.model.jobs import Part, RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan
from tidemill.jobs.model.stages import ViewFragments, WriteViewRows
from tidemill.jobs.operations.assess import Assessor, DeclaredView
from tidemill.jobs.operations.columns import job_transaction
from tidemill.jobs.operations.running import RunningJob
from tidemill.jobs.planner.refresh import ViewProgress, covered_after, plan_refresh
from tidemill.jobs.ports import JobStore, Publisher, SourceTables, StageExecutor


class RefreshRunner:
    def __init__(
        self,
        store: JobStore,
        assessor: Assessor,
        sources: SourceTables,
        executor: StageExecutor,
        publisher: Publisher,
    ) -> None:
        self._store = store
        self._assessor = assessor
        self._sources = sources
        self._executor = executor
        self._publisher = publisher

    def run(self, running: RunningJob, request: RefreshRequest) -> dict[str, Any]:
        """Returns what the job's result says."""
        with self._store.transaction() as tx:
            table = tx.tables.get(running.job.table)
        declared = self._assessor.get_view(table)
        progress = self._assessor.view_progress(declared, request.source_version)
        plan = plan_refresh(progress, is_full=request.is_full)
        running.progress = replace(
            running.progress,
            total=plan.rows,
            reused=plan.rows_reused,
            replaced=plan.rows_replaced,
            removed=plan.rows_removed,
        )
        running.tell("planned", {"rows": plan.rows, "version": plan.source_version, "reason": plan.reason})
        if plan.is_empty:
            self._settle(running, declared, progress, plan)
            return _result("no_op", running, plan, self._sources.snapshot(table, None).version)
        written = self._evaluate(running, declared, plan, request)
        running.check()
        version = self._publish(running, declared, progress, plan, written)
        return _result("full" if plan.is_full else "incremental", running, plan, version)

    def _evaluate(
        self,
        running: RunningJob,
        declared: DeclaredView,
        plan: RefreshPlan,
        request: RefreshRequest,
    ) -> ViewFragments:
        if not plan.work:
            return ViewFragments((), 0)
        view = declared.view
        running.begin_stage()
        stage = WriteViewRows(
            job_id=running.job.job_id,
            source_location=declared.source.location,
            source_version=plan.source_version,
            view_location=declared.table.location,
            output=view_output(
                view.kind, self._sources.project(declared.source, view.query), declared.function
            ),
            work=plan.work,
            function=declared.function,
            inputs=view.inputs,
            columns=view.query.columns or {},
            filter=view.query.filter,
            max_rows_per_fragment=request.max_rows_per_fragment,
            parallelism=request.concurrency,
        )
        written = self._executor.write_view_rows(stage, running)
        running.progress = replace(
            running.progress, done=plan.rows, computed=plan.rows, written=written.rows, commits=1
        )
        return written

    def _publish(
        self,
        running: RunningJob,
        declared: DeclaredView,
        progress: ViewProgress,
        plan: RefreshPlan,
        written: ViewFragments,
    ) -> int:
        covered = covered_after(plan, progress)

        def effect(catalog: CatalogTransaction, version: int) -> None:
            tx = job_transaction(catalog)
            epoch = running.lease.epoch
            rows = plan.stale.serialize()
            running.record(
                tx, Part(running.job.job_id, f"e{epoch}", epoch, declared.table.table_id, version, rows)
            )
            tx.coverage.put(declared.view.view_id, covered)

        stale = None if plan.is_full else plan.stale
        return self._publisher.update_view(declared.table, written, stale, effect)

    def _settle(
        self, running: RunningJob, declared: DeclaredView, progress: ViewProgress, plan: RefreshPlan
    ) -> None:
        """Nothing changed: only remembers up to which version that is known."""
        with self._store.transaction() as tx:
            tx.leases.check(running.lease)
            if progress.coverage.watermark != plan.source_version:
                tx.coverage.put(declared.view.view_id, covered_after(plan, progress))


def _result(mode: str, running: RunningJob, plan: RefreshPlan, version: int) -> dict[str, Any]:
    return {
        "mode": mode,
        "reason": plan.reason,
        "rows_written": running.progress.written,
        "rows_computed": running.progress.computed,
        "rows_reused": plan.rows_reused,
        "rows_replaced": plan.rows_replaced,
        "rows_removed": plan.rows_removed,
        "source_version": plan.source_version,
        "version": version,
    }
