"""Verifies a view: makes some or all of its rows again and tells where it holds something else."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from pyroaring import BitMap64

from tidemill.errors import InvalidInput
from tidemill.jobs.model.failures import FAIL_AT_ONCE
from tidemill.jobs.model.options import RefreshRequest, VerifyRequest
from tidemill.jobs.model.plans import KeyedRows, RefreshPlan
from tidemill.jobs.model.views import Difference, RefreshPolicy, WrittenRows
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress, plan_refresh, work_of
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.behavior import DeclaredView
from tidemill.jobs.views.kinds import behavior_of
from tidemill.jobs.views.progress import ViewAssessor
from tidemill.jobs.worker.leases import RunningJob
from tidemill.jobs.worker.refresh import ViewEvaluator

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
        options = RefreshRequest(cluster=request.cluster, on_error=FAIL_AT_ONCE)
        made = self._evaluator.evaluate(running, declared, progress, sample.plan, target, options)
        running.progress = replace(running.progress, done=sample.rows, computed=sample.rows)
        rows = self._sources.keyed_rows(declared.table, there.version, target.key, sample.wanted)
        return _result(progress, sample, made, rows)

    def _sample(self, declared: DeclaredView, progress: ViewProgress, request: VerifyRequest) -> _Sample:
        plan = plan_refresh(progress, RefreshPolicy.FULL)
        source = progress.first
        is_whole = progress.whole_reason is not None
        # What was skipped holds results of before, which nobody can make again.
        skipped = self._assessor.skipped(declared)
        if skipped:
            version, behavior = plan.source_version, behavior_of(declared.view)
            keys = behavior.keys_without(declared, version, skipped, self._sources)
            if keys is not None:
                return _Sample(replace(plan, keys=keys), None, plan.rows, skipped)
        covered = source.coverage.rows - skipped
        if covered != source.live and not is_whole:
            return self._sample_rows(source, plan, covered, request)
        if request.rows is None or is_whole or request.rows >= len(source.live):
            return _Sample(plan, None, plan.rows)
        return self._sample_of(declared, progress, plan, request)

    def _sample_of(
        self, declared: DeclaredView, progress: ViewProgress, plan: RefreshPlan, request: VerifyRequest
    ) -> _Sample:
        source, columns = progress.first, behavior_of(declared.view).sample_columns(declared.view, progress)
        if columns is None:
            return self._sample_rows(source, plan, source.live, request)
        if not columns:
            return _Sample(plan, None, plan.rows)
        picked = _picked(source.live, request)
        keys = self._sources.key_hashes(declared.source, source.snapshot.version, picked, columns)
        return _Sample(replace(plan, keys=keys), keys, len(picked))

    def _sample_rows(
        self, source: SourceProgress, plan: RefreshPlan, rows: BitMap64, request: VerifyRequest
    ) -> _Sample:
        picked = _picked(rows, request)
        located = {} if source.located is None else source.located.by_fragment(picked)
        return _Sample(
            replace(plan, work=work_of(source.snapshot, located), rows=len(picked)), picked, len(picked)
        )


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
