"""Verifies a view: makes some or all of its rows again and tells where it holds something else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from pyroaring import BitMap64

from tidemill.errors import InvalidInput
from tidemill.jobs.model.derived import RefreshPolicy, ViewKind
from tidemill.jobs.model.jobs import VerifyRequest
from tidemill.jobs.model.plans import KeyedRows, RefreshPlan
from tidemill.jobs.model.stages import Difference, WrittenRows
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress, plan_refresh, work_of
from tidemill.jobs.ports import SourceTables
from tidemill.jobs.views.assess import DeclaredView, ViewAssessor, unsigned
from tidemill.jobs.worker.evaluate_views import Evaluation, ViewEvaluator
from tidemill.jobs.worker.running import RunningJob

EXAMPLES: Final = 10


@dataclass(frozen=True)
class _Sample:
    """What is made again: source rows, or keys, or everything; `left_out` are keys that are not."""

    plan: RefreshPlan
    wanted: BitMap64 | None
    rows: int
    left_out: BitMap64 = field(default_factory=BitMap64)


class VerifyRunner:
    def __init__(self, assessor: ViewAssessor, sources: SourceTables, evaluator: ViewEvaluator) -> None:
        self._assessor = assessor
        self._sources = sources
        self._evaluator = evaluator

    def run(self, running: RunningJob, request: VerifyRequest) -> dict[str, Any]:
        """Returns what the job's result says."""
        declared = self._assessor.get_view(running.get_table())
        progress = self._assessor.progress_consumed(declared)
        if any(source.is_new for source in progress.sources):
            raise InvalidInput(
                "id", f"{declared.table.ident} was never refreshed; there is nothing to verify"
            )
        sample = self._sample(declared, progress, request)
        running.progress = replace(running.progress, total=sample.rows)
        there = self._sources.snapshot(declared.table, None)
        target = self._evaluator.target(declared, there, None, is_dry=True)
        how = Evaluation(cluster=request.cluster, environment=declared.view.environment)
        made = self._evaluator.evaluate(running, declared, progress, sample.plan, target, how)
        running.progress = replace(running.progress, done=sample.rows, computed=sample.rows)
        rows = self._sources.keyed_rows(declared.table, there.version, declared.view.key, sample.wanted)
        return _result(progress, sample, made, rows)

    def _sample(self, declared: DeclaredView, progress: ViewProgress, request: VerifyRequest) -> _Sample:
        plan = plan_refresh(progress, RefreshPolicy.FULL)
        source = progress.first
        is_whole = progress.whole_reason is not None
        # What was skipped holds results of before, which nobody can make again.
        skipped = self._assessor.skipped(declared)
        if skipped and declared.view.kind is ViewKind.UDTF:
            return self._sample_partitions(declared, plan, skipped)
        covered = source.coverage.rows - skipped
        if covered != source.live and not is_whole:
            return self._sample_rows(source, plan, covered, request)
        if request.rows is None or is_whole or request.rows >= len(source.live):
            return _Sample(plan, None, plan.rows)
        return self._sample_of(declared, progress, plan, request)

    def _sample_of(
        self, declared: DeclaredView, progress: ViewProgress, plan: RefreshPlan, request: VerifyRequest
    ) -> _Sample:
        view, source = declared.view, progress.first
        if view.statement is None and not view.is_partitioned:
            return self._sample_rows(source, plan, source.live, request)
        if view.partition_index is not None:
            return _Sample(plan, None, plan.rows)
        picked = _picked(source.live, request)
        columns = _key_columns(view.partition_by, progress)
        keys = self._sources.key_hashes(declared.source, source.snapshot.version, picked, columns)
        return _Sample(replace(plan, keys=keys), keys, len(picked))

    def _sample_partitions(self, declared: DeclaredView, plan: RefreshPlan, skipped: BitMap64) -> _Sample:
        partitions = self._assessor.partitions(declared, plan.source_version)
        keys = BitMap64([unsigned(partition.key) for partition in partitions]) - skipped
        return _Sample(replace(plan, keys=keys), None, plan.rows, skipped)

    def _sample_rows(
        self, source: SourceProgress, plan: RefreshPlan, rows: BitMap64, request: VerifyRequest
    ) -> _Sample:
        picked = _picked(rows, request)
        located = {} if source.located is None else source.located.by_fragment(picked)
        return _Sample(
            replace(plan, work=work_of(source.snapshot, located), rows=len(picked)), picked, len(picked)
        )


def _key_columns(partition_by: str | None, progress: ViewProgress) -> Sequence[str]:
    if partition_by is not None:
        return (partition_by,)
    return () if progress.sql is None else progress.sql.sources[0].key_columns


def _result(progress: ViewProgress, sample: _Sample, made: WrittenRows, rows: KeyedRows) -> dict[str, Any]:
    unexpected = rows.all_rows() - made.kept - made.moved - rows.rows_of(sample.left_out)
    strangers = [Difference("unexpected", None, found={"_rowid": row_id}) for row_id in unexpected[:EXAMPLES]]
    examples = [*made.differences, *strangers][:EXAMPLES]
    return {
        "is_same": not (made.missing or made.different or unexpected),
        "rows_checked": sample.rows,
        "rows_same": len(made.kept),
        "rows_missing": made.missing,
        "rows_unexpected": len(unexpected),
        "rows_different": made.different,
        "source_versions": [source.snapshot.version for source in progress.sources],
        "differences": [asdict(example) for example in examples],
    }


def _picked(rows: BitMap64, request: VerifyRequest) -> BitMap64:
    if request.rows is None or request.rows >= len(rows):
        return rows
    chosen = random.Random(request.seed).sample(range(len(rows)), request.rows)  # no secret
    return BitMap64([rows[place] for place in chosen])
