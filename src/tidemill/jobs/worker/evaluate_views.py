"""Has a view's rows made: what a plan asks for, as stages for an executor."""

from __future__ import annotations

from tidemill.catalog.errors import TableColumnNotFound
from tidemill.jobs.model.clusters import Clusters
from tidemill.jobs.model.jobs import RefreshRequest
from tidemill.jobs.model.plans import RefreshPlan, TableSnapshot
from tidemill.jobs.model.views import ViewTarget, WrittenRows
from tidemill.jobs.planning.refresh import ViewProgress
from tidemill.jobs.ports import SourceTables, StageExecutor
from tidemill.jobs.views.assess import ViewAssessor
from tidemill.jobs.views.behavior import DeclaredView, Evaluation, StageRequest
from tidemill.jobs.views.kinds import behavior_of
from tidemill.jobs.worker.running import RunningJob


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
        how: Evaluation,
    ) -> WrittenRows:
        """Makes the rows of the plan and compares them with what the view has."""
        running.check()
        running.begin_stage()
        request = StageRequest(running.job.job_id, declared, progress, plan, target, how, self._clusters)
        stage = behavior_of(declared.view).stage(request, self._sources)
        return WrittenRows() if stage is None else self._executor.write_view(stage, running)
