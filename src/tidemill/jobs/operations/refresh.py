"""Carries out a refresh: evaluates what changed and publishes it in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemill.catalog.ports import CatalogTransaction
from tidemill.jobs.model.derived import ViewKind, view_output
from tidemill.jobs.model.jobs import Part, RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan
from tidemill.jobs.model.stages import RunTableFunction, ViewFragments, WriteViewRows
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
        table = running.get_table()
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
        running.begin_stage()
        if declared.view.kind is ViewKind.UDTF:
            written = self._run_table_function(running, declared, plan, request)
        elif plan.work:
            written = self._write_rows(running, declared, plan, request)
        else:
            written = ViewFragments((), 0)
        running.progress = replace(
            running.progress, done=plan.rows, computed=plan.rows, written=written.rows, commits=1
        )
        return written

    def _write_rows(
        self, running: RunningJob, declared: DeclaredView, plan: RefreshPlan, request: RefreshRequest
    ) -> ViewFragments:
        query = declared.view.query
        stage = WriteViewRows(
            job_id=running.job.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            view_location=declared.table.data_location,
            output=self._output(declared),
            work=plan.work,
            calls=declared.calls,
            columns=query.columns or {},
            filter=query.filter,
            max_rows_per_fragment=request.max_rows_per_fragment,
            parallelism=request.concurrency,
        )
        return self._executor.write_view_rows(stage, running)

    def _run_table_function(
        self, running: RunningJob, declared: DeclaredView, plan: RefreshPlan, request: RefreshRequest
    ) -> ViewFragments:
        view, query = declared.view, declared.view.query
        partitions: Sequence[str | None] = (None,)
        if view.partition_by is not None:
            partitions = self._sources.partitions(
                declared.source, plan.source_version, view.partition_by, query.filter
            )
        stage = RunTableFunction(
            job_id=running.job.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            view_location=declared.table.data_location,
            output=self._output(declared),
            call=declared.calls[0],
            columns=query.columns or {},
            filter=query.filter,
            limit=query.limit,
            offset=query.offset,
            partitions=tuple(partitions),
            max_rows_per_fragment=request.max_rows_per_fragment,
            parallelism=request.concurrency,
        )
        return self._executor.run_table_function(stage, running)

    def _output(self, declared: DeclaredView) -> pa.Schema:
        view = declared.view
        if view.output is not None:
            return view.output
        function = declared.calls[0].function if declared.calls else None
        return view_output(view.kind, self._sources.project(declared.source, view.query), function)

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
