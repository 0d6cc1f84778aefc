"""Has a view's rows made: what a plan asks for, as stages for an executor."""

from __future__ import annotations

from dataclasses import dataclass

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
from tidemill.jobs.planning.refresh import ViewProgress
from tidemill.jobs.planning.tasks import view_tasks
from tidemill.jobs.ports import StageExecutor
from tidemill.jobs.views.assess import DeclaredView, ViewAssessor, unsigned
from tidemill.jobs.worker.running import RunningJob


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


@dataclass(frozen=True)
class _Asked:
    """What every kind of stage is made from."""

    running: RunningJob
    declared: DeclaredView
    progress: ViewProgress
    plan: RefreshPlan
    target: ViewTarget
    how: Evaluation


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
        asked = _Asked(running, declared, progress, plan, target, how)
        if declared.view.statement is not None:
            return self._run_sql(asked)
        if declared.view.kind is ViewKind.UDTF:
            return self._run_table_function(asked)
        return self._write_rows(asked) if plan.work else WrittenRows()

    def _write_rows(self, asked: _Asked) -> WrittenRows:
        declared, plan, how = asked.declared, asked.plan, asked.how
        query, is_costly = declared.view.query, bool(declared.calls)
        stage = WriteViewRows(
            job_id=asked.running.job.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            target=asked.target,
            tasks=(plan.work,) if how.cap is not None else self._tasks(asked, is_costly=is_costly),
            calls=declared.calls,
            columns=query.columns or {},
            filter=query.filter,
            policy=how.policy(plan.rows),
            cap=how.cap,
            parallelism=how.concurrency,
        )
        return self._executor.write_view_rows(stage, asked.running)

    def _tasks(self, asked: _Asked, *, is_costly: bool) -> tuple[tuple[FragmentWork, ...], ...]:
        how, located = asked.how, asked.progress.first.located
        is_cut = how.task_size is not None or is_costly
        rows = located.by_fragment() if located is not None and is_cut else {}
        slots = how.concurrency or self._clusters.slots(how.cluster)
        return view_tasks(asked.plan.work, rows, how.task_size, slots, is_costly=is_costly)

    def _run_table_function(self, asked: _Asked) -> WrittenRows:
        declared, plan, how = asked.declared, asked.plan, asked.how
        query, partitions = declared.view.query, self._partitions(declared, plan)
        if not partitions:
            return WrittenRows()
        stage = RunTableFunction(
            job_id=asked.running.job.job_id,
            source_location=declared.source.data_location,
            source_version=plan.source_version,
            target=asked.target,
            call=declared.calls[0],
            columns=query.columns or {},
            filter=query.filter,
            limit=query.limit,
            offset=query.offset,
            partitions=partitions,
            policy=how.policy(len(partitions)),
            parallelism=how.concurrency,
        )
        return self._executor.run_table_function(stage, asked.running)

    def _partitions(self, declared: DeclaredView, plan: RefreshPlan) -> tuple[Partition, ...]:
        found = self._assessor.partitions(declared, plan.source_version)
        return tuple(p for p in found if plan.keys is None or unsigned(p.key) in plan.keys)

    def _run_sql(self, asked: _Asked) -> WrittenRows:
        sql, plan = asked.progress.sql, asked.plan
        if sql is None or (plan.keys is not None and not plan.keys):
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
            for source, table, change in zip(sql.sources, asked.declared.sources, plan.changes, strict=True)
        )
        job_id = asked.running.job.job_id
        stage = RunSql(job_id, sql.statement, inputs, asked.target, asked.how.concurrency)
        return self._executor.run_sql(stage, asked.running)
