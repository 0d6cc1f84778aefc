"""Has a view's rows made: what a plan asks for, as stages for an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.environments import OWN_ENVIRONMENT, Environment
from tidemill.jobs.model.clusters import Clusters
from tidemill.jobs.model.derived import CHILD_INDEX, ViewKind
from tidemill.jobs.model.failures import FAIL_AT_ONCE, ErrorPolicy
from tidemill.jobs.model.jobs import RefreshRequest
from tidemill.jobs.model.plans import FragmentWork, RefreshPlan, TableSnapshot
from tidemill.jobs.model.stages import (
    CallPolicy,
    OutputCap,
    Partition,
    RunSql,
    RunTableFunction,
    SqlInput,
    ViewTarget,
    WriteViewRows,
    WrittenRows,
)
from tidemill.jobs.operations.assess_views import DeclaredView, ViewAssessor, unsigned
from tidemill.jobs.operations.running import RunningJob
from tidemill.jobs.planner.refresh import ViewProgress
from tidemill.jobs.planner.tasks import view_tasks
from tidemill.jobs.ports import StageExecutor


@dataclass(frozen=True)
class Evaluation:
    """How rows are to be made: by how many tasks, of which size, with which patience."""

    concurrency: int | None = None
    threads: int = 1
    task_size: int | None = None
    cluster: str | None = None
    on_error: ErrorPolicy = FAIL_AT_ONCE
    environment: Environment = OWN_ENVIRONMENT
    cap: OutputCap | None = None
    is_suspect: bool = False

    def policy(self, rows: int) -> CallPolicy:
        allowed = self.on_error.allowed_skips(rows)
        return CallPolicy(self.threads, self.on_error, allowed, self.environment, self.is_suspect)


def evaluation_of(declared: DeclaredView, request: RefreshRequest) -> Evaluation:
    """As the request says, and else the view."""
    view = declared.view
    return Evaluation(
        concurrency=request.concurrency,
        threads=request.intra_applier_concurrency or 1,
        task_size=request.source_task_size,
        cluster=request.cluster,
        on_error=view.on_error if request.on_error is None else request.on_error,
        environment=view.environment if request.environment is None else request.environment,
    )


class ViewEvaluator:
    def __init__(self, assessor: ViewAssessor, executor: StageExecutor, clusters: Clusters) -> None:
        self._assessor = assessor
        self._executor = executor
        self._clusters = clusters

    def target(
        self, declared: DeclaredView, there: TableSnapshot, max_rows: int | None, *, is_dry: bool = False
    ) -> ViewTarget:
        """The view as it is now; raises TableColumnNotFound when it has lost columns of its own."""
        output = self._assessor.output(declared)
        for name in output.names:
            if name not in there.schema.names:
                raise TableColumnNotFound(declared.table.ident, name, tuple(there.schema.names))
        return ViewTarget(
            location=declared.table.data_location,
            version=there.version,
            output=output,
            key=declared.view.key,
            place=CHILD_INDEX if declared.view.kind is ViewKind.CHUNKER else None,
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
        how: Evaluation,
    ) -> WrittenRows:
        """Makes the rows of the plan and compares them with what the view has."""
        running.check()
        running.begin_stage()
        if declared.view.statement is not None:
            return self._run_sql(running, declared, progress, plan, target, how)
        if declared.view.kind is ViewKind.UDTF:
            return self._run_table_function(running, declared, plan, target, how)
        if not plan.work:
            return WrittenRows()
        return self._write_rows(running, declared, progress, plan, target, how)

    def _write_rows(
        self,
        running: RunningJob,
        declared: DeclaredView,
        progress: ViewProgress,
        plan: RefreshPlan,
        target: ViewTarget,
        how: Evaluation,
    ) -> WrittenRows:
        query, located = declared.view.query, progress.first.located
        is_listed = how.task_size is not None or how.cap is not None or bool(declared.calls)
        rows = located.by_fragment() if located is not None and is_listed else {}
        slots = how.concurrency or self._clusters.slots(how.cluster)
        tasks = view_tasks(plan.work, rows, how.task_size, slots, is_costly=bool(declared.calls))
        stage = WriteViewRows(
            job_id=running.job.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            target=target,
            tasks=(_listed(plan.work, rows),) if how.cap is not None else tasks,
            calls=declared.calls,
            columns=query.columns or {},
            filter=query.filter,
            policy=how.policy(plan.rows),
            cap=how.cap,
            parallelism=how.concurrency,
        )
        return self._executor.write_view_rows(stage, running)

    def _run_table_function(
        self,
        running: RunningJob,
        declared: DeclaredView,
        plan: RefreshPlan,
        target: ViewTarget,
        how: Evaluation,
    ) -> WrittenRows:
        query = declared.view.query
        partitions = self._partitions(declared, plan)
        if not partitions:
            return WrittenRows()
        stage = RunTableFunction(
            job_id=running.job.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            target=target,
            call=declared.calls[0],
            columns=query.columns or {},
            filter=query.filter,
            limit=query.limit,
            offset=query.offset,
            partitions=partitions,
            policy=how.policy(len(partitions)),
            parallelism=how.concurrency,
        )
        return self._executor.run_table_function(stage, running)

    def _partitions(self, declared: DeclaredView, plan: RefreshPlan) -> tuple[Partition, ...]:
        found = self._assessor.partitions(declared, plan.source_version)
        return tuple(p for p in found if plan.keys is None or unsigned(p.key) in plan.keys)

    def _run_sql(
        self,
        running: RunningJob,
        declared: DeclaredView,
        progress: ViewProgress,
        plan: RefreshPlan,
        target: ViewTarget,
        how: Evaluation,
    ) -> WrittenRows:
        if progress.sql is None or (plan.keys is not None and not plan.keys):
            return WrittenRows()
        inputs = tuple(
            SqlInput(
                name=source.name,
                location=table.data_location,
                version=change.version,
                columns=source.columns,
                key_columns=source.key_columns,
                keys=plan.keys,
            )
            for source, table, change in zip(
                progress.sql.sources, declared.sources, plan.changes, strict=True
            )
        )
        stage = RunSql(running.job.job_id, progress.sql.statement, inputs, target, how.concurrency)
        return self._executor.run_sql(stage, running)


def _listed(work: tuple[FragmentWork, ...], rows: Mapping[int, BitMap64]) -> tuple[FragmentWork, ...]:
    """With the rows of whole fragments written out."""
    return tuple(
        FragmentWork(item.fragment_id, item.rows or rows[item.fragment_id], item.row_count) for item in work
    )
