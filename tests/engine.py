"""The engine without HTTP: real database, real Lance, and either Spark or this process to do the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar, assert_never

import cloudpickle
import lance
import pyarrow as pa

from tests.inline_sql import run_sql_inline
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import VALUE_FIELD, Function, FunctionKind
from tidemill.catalog.model.identifiers import CreateMode, NamespacePath, TableIdent
from tidemill.functions.api import FunctionRaised
from tidemill.functions.isolation.pool import FunctionHost, Isolation
from tidemill.jobs.model.columns import BatchPolicy, ColumnFile, ComputedRows, FillColumn, Published
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import (
    BackfillRequest,
    IndexRequest,
    PreviewRequest,
    RefreshRequest,
    VerifyRequest,
)
from tidemill.jobs.model.views import (
    RunSql,
    RunTableFunction,
    SourceQuery,
    ViewKind,
    ViewStage,
    WriteViewRows,
    WrittenRows,
    frozen,
)
from tidemill.jobs.ports import StageExecutor, StageWatch
from tidemill.jobs.service.columns import ColumnDeclaration, SqlExpression
from tidemill.jobs.service.views import ViewDefinition
from tidemill.jobs.stage_errors import RowFailed
from tidemill.jobs.views.kinds import BEHAVIORS
from tidemill.jobs.worker.backfill import BackfillRunner
from tidemill.jobs.worker.indexing import IndexRunner
from tidemill.jobs.worker.leases import JobWorker, LeasePolicy
from tidemill.jobs.worker.preview import PreviewRunner
from tidemill.jobs.worker.refresh import RefreshRunner, ViewEvaluator
from tidemill.jobs.worker.verify import VerifyRunner
from tidemill.lance.checkpoints import LanceCheckpoints
from tidemill.lance.datasets import CommittingNamespace
from tidemill.lance.indexes import LanceTableIndexes
from tidemill.lance.model.tables import InsertMode
from tidemill.lance.publisher import LancePublisher
from tidemill.lance.view_results import LanceViewResults
from tidemill.server.bootstrap import build_operations, open_adapters
from tidemill.server.settings import load_settings
from tidemill.spark.executor import allowed_skips, check_skips, combine_rows
from tidemill.spark.kernels import compute_pieces, fill_fragments
from tidemill.spark.task_reports import StageScratch, TaskReport
from tidemill.spark.views.rows import write_view_fragments
from tidemill.spark.views.table_functions import write_table_fragments
from tidemill.store.engine import SqlStore


class InlineStageExecutor:
    """Does in this process what tasks do; passes the same contract as the one on Spark.

    `view_batches` replaces the batches of refreshes, which no caller can choose.
    """

    def __init__(self, scratch_root: str, host: FunctionHost | None = None) -> None:
        self._scratch_root = scratch_root
        self._host = host or FunctionHost(Isolation.TASK)
        self.view_batches: BatchPolicy | None = None

    def fill_column(self, stage: FillColumn, watch: StageWatch) -> Sequence[ColumnFile]:
        return self._run(fill_fragments, stage, watch, [item for task in stage.tasks for item in task])

    def compute_rows(self, stage: FillColumn, watch: StageWatch) -> Sequence[ComputedRows]:
        return self._run(compute_pieces, stage, watch, [item for task in stage.tasks for item in task])

    def write_view(self, stage: ViewStage, watch: StageWatch) -> WrittenRows:
        if self.view_batches is not None and not isinstance(stage, RunSql):
            stage = replace(stage, batches=self.view_batches)
        match stage:
            case WriteViewRows():
                work = [item for task in stage.tasks for item in task]
                return combine_rows(self._run(write_view_fragments, stage, watch, work))
            case RunTableFunction():
                return combine_rows(self._run(write_table_fragments, stage, watch, stage.partitions))
            case RunSql():
                watch.check()
                return run_sql_inline(stage)
            case _:
                assert_never(stage)

    def _run(
        self, kernel: Callable[..., list[Any]], stage: Any, watch: StageWatch, work: Sequence[Any]
    ) -> list[Any]:
        scratch = StageScratch(self._scratch_root)
        watch.check()
        try:
            made = kernel(stage, work, TaskReport(scratch.location), self._host)
            check_skips(scratch, allowed_skips(stage))
            return made
        except FunctionRaised as raised:
            raise RowFailed(raised.failure) from raised
        finally:
            watch.rows_done(scratch.rows_done())
            scratch.remove()


Result = TypeVar("Result")


class Moment(Enum):
    """When a worker dies, as seen from a commit."""

    BEFORE = "before"
    AFTER = "after"


class Crash(BaseException):
    """The worker's process is gone: nothing catches this."""


class CallCounter:
    """Counts the calls of functions in this process, and does something in some of them.

    Functions of tests are pickled by reference and report to `FUNCTION_CALLS`.
    """

    def __init__(self) -> None:
        self._actions: dict[int, Callable[[], object]] = {}
        self._made = 0

    def watch(self, actions: Mapping[int, Callable[[], object]]) -> None:
        """From now on: what to do in the first, second, ... call."""
        self._actions = dict(actions)
        self._made = 0

    def called(self) -> None:
        self._made += 1
        action = self._actions.pop(self._made, None)
        if action is not None:
            action()


FUNCTION_CALLS: Final = CallCounter()


def die() -> None:
    raise Crash


class MortalPublisher:
    """A publisher in a process that may pause before its next commit, or die at it."""

    def __init__(self, inner: LancePublisher) -> None:
        self._inner = inner
        self.dies: Moment | None = None
        self.dies_of: BaseException = Crash()
        self.before_next: Callable[[], object] | None = None
        self.after_each: Callable[[], object] | None = None

    def replace_column(self, *arguments: Any) -> Published:
        return self._publish(self._inner.replace_column, arguments)

    def update_view(self, *arguments: Any) -> int:
        return self._publish(self._inner.update_view, arguments)

    def _publish(self, commit: Callable[..., Result], arguments: Sequence[Any]) -> Result:
        moment, self.dies = self.dies, None
        before, self.before_next = self.before_next, None
        if before is not None:
            before()
        if moment is Moment.BEFORE:
            raise self.dies_of
        published = commit(*arguments)
        if self.after_each is not None:
            self.after_each()
        if moment is Moment.AFTER:
            raise self.dies_of
        return published


class AbsentWorker:
    def state(self) -> Any:
        return "absent"


class Engine:
    """A lake under a folder, driven step by step."""

    def __init__(
        self,
        root: Path,
        executor: StageExecutor | None = None,
        database_url: str | None = None,
        store: SqlStore | None = None,
    ) -> None:
        self.settings = load_settings(root=root, database_url=database_url)
        self.lake = open_adapters(self.settings, store=store)
        self.operations = build_operations(self.lake, AbsentWorker(), lambda: None)
        self.inline_executor = InlineStageExecutor(f"{self.settings.job_files}/stages")
        self.executor = executor or self.inline_executor
        self.publisher = MortalPublisher(LancePublisher(self.lake.versions, self.lake.data))
        self.checkpoints = LanceCheckpoints(
            f"{self.settings.job_files}/checkpoints", self.lake.data, self.lake.sources
        )
        self.results = LanceViewResults(f"{self.settings.job_files}/fingerprints", self.checkpoints)
        self.worker = self.new_worker("first")

    def new_worker(self, owner: str, policy: LeasePolicy | None = None) -> JobWorker:
        lake = self.lake
        evaluator = ViewEvaluator(lake.view_assessor, lake.sources, self.executor, lake.clusters)
        return JobWorker(
            lake.store,
            owner,
            policy or LeasePolicy(),
            {
                BackfillRequest: BackfillRunner(
                    lake.store,
                    lake.assessor,
                    self.executor,
                    self.publisher,
                    self.checkpoints,
                    lake.clusters,
                ),
                PreviewRequest: PreviewRunner(lake.assessor, lake.sources, self.executor, self.checkpoints),
                RefreshRequest: RefreshRunner(
                    lake.store, lake.view_assessor, lake.sources, evaluator, self.publisher, self.results
                ),
                VerifyRequest: VerifyRunner(lake.view_assessor, lake.sources, evaluator),
                IndexRequest: IndexRunner(
                    lake.store, lake.versions, LanceTableIndexes(lake.versions, lake.data)
                ),
            },
        )

    def close(self) -> None:
        self.lake.store.close()

    def create_table(self, name: str, rows: pa.Table) -> TableIdent:
        ident = TableIdent(NamespacePath(), name)
        self.operations.tables.create(LOCAL_CALLER, ident, rows.to_reader(), CreateMode.CREATE, {})
        return ident

    def create_foreign_table(self, name: str, rows: pa.Table) -> TableIdent:
        """As a client writes one into a declared place: without stable row ids."""
        ident = TableIdent(NamespacePath(), name)
        table = self.operations.tables.declare(LOCAL_CALLER, ident, {})
        lance.write_dataset(rows, table.location)
        return ident

    def append(self, ident: TableIdent, rows: pa.Table) -> None:
        self.operations.rows.insert(LOCAL_CALLER, ident, rows.to_reader(), InsertMode.APPEND)

    def open(self, ident: TableIdent) -> lance.LanceDataset:
        """A handle as any writer has it: what it commits goes through the catalog."""
        with self.lake.store.transaction() as tx:
            table = tx.tables.get(ident)
        namespace = CommittingNamespace(self.lake.versions, table)
        return lance.dataset(namespace_client=namespace, table_id=namespace.table_id)

    def latest_version(self, ident: TableIdent) -> int:
        with self.lake.store.transaction() as tx:
            table = tx.tables.get(ident)
        return self.lake.versions.get_latest(table).version

    def rows(self, ident: TableIdent, columns: Sequence[str] | None = None) -> pa.Table:
        return self.open(ident).to_table(columns=None if columns is None else list(columns))

    def declare(self, ident: TableIdent, name: str, function: Function | SqlExpression, *inputs: str) -> None:
        self.operations.columns.declare(LOCAL_CALLER, ident, [ColumnDeclaration(name, function, inputs)])

    def backfill(self, ident: TableIdent, column: str, **request: Any) -> Job:
        job = self.operations.jobs.submit_backfill(
            LOCAL_CALLER, ident, BackfillRequest(column, **request), None
        )
        return self.run(job)

    def preview(self, ident: TableIdent, column: str, rows: int, **request: Any) -> Job:
        asked = PreviewRequest(column, rows, **request)
        return self.run(self.operations.jobs.submit_preview(LOCAL_CALLER, ident, asked, None))

    def create_view(
        self, name: str, source: TableIdent, function: Function | None, **query: Any
    ) -> TableIdent:
        kind = ViewKind.QUERY if function is None else ViewKind.CHUNKER
        asked = SourceQuery(source.levels, **query)
        with self.lake.store.transaction() as tx:
            table = tx.tables.get(source)
        schema = self.lake.data.schema(table, None)
        projected = self.lake.sources.project(table, frozen(asked, schema) if function is None else asked)
        definition = ViewDefinition(kind, asked, "{}", BEHAVIORS[kind].output(projected, function), function)
        return self.define_view(name, definition)

    def define_view(self, name: str, definition: ViewDefinition) -> TableIdent:
        ident = TableIdent(NamespacePath(), name)
        self.operations.views.create(LOCAL_CALLER, ident, definition)
        return ident

    def refresh(self, ident: TableIdent, **request: Any) -> Job:
        return self.run(
            self.operations.jobs.submit_refresh(LOCAL_CALLER, ident, RefreshRequest(**request), None)
        )

    def verify(self, ident: TableIdent, rows: int | None = None) -> dict[str, Any]:
        request = VerifyRequest(rows)
        return succeeded(self.run(self.operations.jobs.submit_verify(LOCAL_CALLER, ident, request, None)))

    def run(self, job: Job) -> Job:
        claimed = self.worker.claim()
        assert claimed is not None
        assert claimed.job_id == job.job_id
        self.worker.run(claimed)
        return self.operations.jobs.get(LOCAL_CALLER, job.job_id)

    def crash_and_take_over(self, job: Job, moment: Moment) -> Job:
        """Runs a job with a worker that dies at its first commit (if it has one), then with another."""
        claimed = self.worker.claim()
        assert claimed is not None
        self.publisher.dies = moment
        with suppress(Crash):
            self.worker.run(claimed)
        self.publisher.dies = None
        return self.take_over(claimed)

    def kill_and_take_over(self, call: int, meanwhile: Callable[[], object]) -> Job:
        """Runs the next job with a worker that dies inside a call of a function (if there are so many).

        Another one takes the job up, after `meanwhile`.
        """
        claimed = self.worker.claim()
        assert claimed is not None
        FUNCTION_CALLS.watch({call: die})
        with suppress(Crash):
            self.worker.run(claimed)
        FUNCTION_CALLS.watch({})
        return self.take_over(claimed, meanwhile)

    def take_over(self, job: Job, meanwhile: Callable[[], object] | None = None) -> Job:
        """Another worker does the job of one that died, unless the job has ended."""
        self.worker.release(job)
        successor = self.new_worker("second")
        left = successor.claim()
        if left is not None:
            assert left.epoch == job.epoch + 1
            if meanwhile is not None:
                meanwhile()
            successor.run(left)
        return self.operations.jobs.get(LOCAL_CALLER, job.job_id)


def succeeded(job: Job) -> dict[str, Any]:
    assert job.state is JobState.DONE, job.failure
    assert job.result is not None
    return job.result


def column_function(
    compute: Callable[..., Any],
    value_type: pa.DataType,
    *parameters: str,
    kind: FunctionKind = FunctionKind.ARRAYS,
    digest: str = "1",
) -> Function:
    return Function(
        name=compute.__name__,
        digest=f"sha256:{digest:0>64}",
        kind=kind,
        parameters=parameters,
        output=pa.schema([pa.field(VALUE_FIELD, value_type)]),
        payload=cloudpickle.dumps(compute),
        python="3.11",
    )


def chunker_function(compute: Callable[..., Any], output: pa.Schema, *parameters: str) -> Function:
    return Function(
        name=compute.__name__,
        digest=f"sha256:{'c':0>64}",
        kind=FunctionKind.CHUNKER,
        parameters=parameters,
        output=output,
        payload=cloudpickle.dumps(compute),
        python="3.11",
    )


def table_function(compute: Callable[..., Any], output: pa.Schema, digest: str = "d") -> Function:
    return Function(
        name=compute.__name__,
        digest=f"sha256:{digest:0>64}",
        kind=FunctionKind.TABLE,
        parameters=(),
        output=output,
        payload=cloudpickle.dumps(compute),
        python="3.11",
    )
