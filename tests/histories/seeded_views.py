"""Bugs of views to be planted one at a time: each takes one clause out of the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from pyroaring import BitMap64

from tests.histories.view_machine import ViewHistory
from tests.histories.views import (
    AggregateHistory,
    ChunkerHistory,
    FunctionColumnHistory,
    JoinHistory,
    PartitionHistory,
    QueryHistory,
    TableFunctionHistory,
)
from tidemill.jobs.model.columns import BatchPolicy
from tidemill.jobs.model.coverage import Changes
from tidemill.jobs.model.plans import ViewEdits
from tidemill.jobs.model.views import WrittenRows
from tidemill.jobs.planning import refresh as planner
from tidemill.jobs.views import progress as view_progress
from tidemill.jobs.worker import refresh
from tidemill.lance import checkpoint_files, freshness, publisher, row_matching, view_writer
from tidemill.lance.fragments import with_row_ids
from tidemill.lance.sources import LanceSourceTables
from tidemill.lance.view_writer import ViewWriter
from tidemill.spark.views import partitions, results
from tidemill.spark.views import rows as view_kernels

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def updates_are_ignored(patch: pytest.MonkeyPatch) -> None:
    changed = LanceSourceTables.changed_rows

    def blind(*arguments: Any) -> Changes:
        return replace(changed(*arguments), updated=BitMap64())

    patch.setattr(LanceSourceTables, "changed_rows", blind)


def deletions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publisher, "_remove_rows", lambda *_: ([], []))


def restored_rows_look_like_those_that_were_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(freshness, "with_deletions", lambda mark, _: mark)


def names_always_stand_for_the_same_fields(patch: pytest.MonkeyPatch) -> None:
    fields = freshness.watched_fields

    def unnamed(dataset: Any, *names: Any) -> Any:
        every = fields(dataset, dataset.schema.names, ())
        return replace(fields(dataset, *names), inputs=every.inputs, shape="")

    patch.setattr(freshness, "watched_fields", unnamed)


def edits_of_others_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    def unseen(self: Any, view: Any, *_: Any) -> ViewEdits:
        return ViewEdits(self.snapshot(view, None).version)

    patch.setattr(LanceSourceTables, "view_edits", unseen)


def columns_of_others_are_lost(patch: pytest.MonkeyPatch) -> None:
    change = ViewWriter._change

    def forgetful(self: Any, batch: Any, old: pa.RecordBatch, row_ids: Any) -> None:
        names = self._target.carried
        columns = [
            pa.nulls(len(old), c.type) if name in names else c
            for name, c in zip(old.schema.names, old.columns, strict=True)
        ]
        change(self, batch, pa.record_batch(columns, names=old.schema.names), row_ids)

    patch.setattr(ViewWriter, "_change", forgetful)


def unchanged_rows_are_written_again(patch: pytest.MonkeyPatch) -> None:
    """Which loses what others wrote beside them, unless they are taken for the rows they were."""

    def nothing(new: Any, *_: Any) -> row_matching.Match:
        return row_matching.Match(np.full(len(new), -1), np.zeros(len(new), dtype=np.bool_))

    patch.setattr(view_writer, "match_rows", nothing)


def rows_that_yield_nothing_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    after = planner.covered_after

    def only_shown(progress: Any, covered: Any, cut: Any) -> Any:
        done = after(progress, covered, cut)
        return tuple(replace(each, rows=BitMap64(list(each.rows)[::2])) for each in done)

    patch.setattr(refresh, "covered_after", only_shown)


def a_capped_view_counts_as_whole(patch: pytest.MonkeyPatch) -> None:
    after = planner.covered_after
    patch.setattr(refresh, "_capped_coverage", lambda progress, *_: after(progress, None, None))


def a_cap_forgets_what_was_kept(patch: pytest.MonkeyPatch) -> None:
    fitting = planner.rows_fitting

    def without_kept(cap: Any, *more: Any) -> Any:
        return fitting(replace(cap, kept=cap.kept[:0], counts=cap.counts[:0]), *more)

    patch.setattr(view_kernels, "rows_fitting", without_kept)


def _keys_only_at(patch: pytest.MonkeyPatch, *, latest: bool) -> None:
    hashes = LanceSourceTables.key_hashes

    def some(self: Any, table: Any, version: int, *more: Any) -> BitMap64:
        is_latest = version == self.snapshot(table, None).version
        return hashes(self, table, version, *more) if is_latest is latest else BitMap64()

    patch.setattr(LanceSourceTables, "key_hashes", some)


def old_keys_are_ignored(patch: pytest.MonkeyPatch) -> None:
    _keys_only_at(patch, latest=True)


def new_keys_are_ignored(patch: pytest.MonkeyPatch) -> None:
    _keys_only_at(patch, latest=False)


def the_second_source_is_ignored(patch: pytest.MonkeyPatch) -> None:
    progress = view_progress.ViewAssessor._source_progress

    def first_only(self: Any, declared: Any, number: int, *more: Any, **options: Any) -> Any:
        found = progress(self, declared, number, *more, **options)
        return found if number == 0 or found.is_new else replace(found, located=None, changes=Changes())

    patch.setattr(view_progress.ViewAssessor, "_source_progress", first_only)


def whole_views_are_never_stale(patch: pytest.MonkeyPatch) -> None:
    read = view_progress.ViewAssessor._read
    patch.setattr(view_progress.ViewAssessor, "_read", lambda *a: replace(read(*a), whole_reason=None))
    patch.setattr(planner.ViewProgress, "has_changed", property(lambda _: False))


def the_watermark_is_not_published(patch: pytest.MonkeyPatch) -> None:
    remember = refresh.RefreshRunner._remember

    def late(self: Any, tx: Any, one: Any, coverage: Any, written: Any) -> None:
        before = [
            source.coverage.watermark or each.watermark
            for source, each in zip(one.progress.sources, coverage, strict=True)
        ]
        held = [replace(each, watermark=version) for each, version in zip(coverage, before, strict=True)]
        remember(self, tx, one, held, written)

    patch.setattr(refresh.RefreshRunner, "_remember", late)


def the_watermark_is_the_version_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Writes to the source while functions are called are not seen."""
    publish = refresh.RefreshRunner._publish

    def ahead(self: Any, one: Any, outcome: Any) -> int:
        versions = [self._sources.snapshot(table, None).version for table in one.declared.sources]
        coverage = zip(outcome.coverage, versions, strict=True)
        moved = tuple(replace(each, watermark=version) for each, version in coverage)
        return publish(self, one, replace(outcome, coverage=moved))

    patch.setattr(refresh.RefreshRunner, "_publish", ahead)


def edits_during_a_refresh_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publisher, "_check_untouched", lambda *_: None)


def changed_rows_take_the_id_of_the_first(patch: pytest.MonkeyPatch) -> None:
    identified = ViewWriter._identified

    def doubled(self: Any, fragments: Any) -> Any:
        self._changed_ids = [np.full_like(ids, ids[0]) for ids in self._changed_ids]
        return identified(self, fragments)

    patch.setattr(ViewWriter, "_identified", doubled)


def fragments_of_changed_rows_share_their_ids(patch: pytest.MonkeyPatch) -> None:
    """Each gets the first ids, not those of its own rows."""

    def first_ones(self: Any, fragments: Any) -> list[str]:
        ids = np.concatenate([np.empty(0, np.uint64), *self._changed_ids])
        return [json.dumps(with_row_ids(each, ids[: each.physical_rows])) for each in fragments]

    sink = ViewWriter._sink

    def small(self: Any, schema: pa.Schema) -> Any:
        self._target = replace(self._target, max_rows_per_fragment=1)
        return sink(self, schema)

    patch.setattr(ViewWriter, "_sink", small)
    patch.setattr(ViewWriter, "_identified", first_ones)


def new_rows_take_ids_that_are_taken(patch: pytest.MonkeyPatch) -> None:
    finish = ViewWriter.finish

    def numbered_again(self: Any) -> WrittenRows:
        written = finish(self)
        new = [FragmentMetadata.from_json(text) for text in written.fragments]
        ids = [np.arange(each.physical_rows, dtype=np.uint64) for each in new]
        again = [json.dumps(with_row_ids(each, own)) for each, own in zip(new, ids, strict=True)]
        return replace(written, fragments=tuple(again))

    patch.setattr(ViewWriter, "finish", numbered_again)


def a_change_of_a_carried_column_calls_the_function(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: Any, hashes: Any, held: Any) -> Any:
        return np.zeros(len(hashes), dtype=np.bool_)

    patch.setattr(results.ResultComputer, "_find_held", nothing)


def values_of_the_view_are_believed_unseen(patch: pytest.MonkeyPatch) -> None:
    def everything(self: Any, hashes: Any, held: Any) -> Any:
        return np.zeros(len(hashes), dtype=np.bool_) if held is None else held.is_there

    patch.setattr(results.ResultComputer, "_find_held", everything)


def checkpoints_of_views_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(results, "find_checkpoints", lambda *_: [])


def checkpoints_of_partitions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partitions, "find_checkpoints", lambda *_: [])


def checkpoints_wait_for_the_end_of_a_task(patch: pytest.MonkeyPatch) -> None:
    """A worker that dies at a commit loses nothing, one that dies inside a function does."""
    patch.setattr(BatchPolicy, "is_due", lambda *_: False)


def checkpoints_wait_for_the_last_partition(patch: pytest.MonkeyPatch) -> None:
    checkpoints_wait_for_the_end_of_a_task(patch)


def checkpoints_are_used_whatever_they_were_computed_from(patch: pytest.MonkeyPatch) -> None:
    """Those of a refresh with a limit outlive it."""
    patch.setattr(checkpoint_files, "_of_inputs", lambda table, *_: table)


def results_of_gone_rows_are_not_used(patch: pytest.MonkeyPatch) -> None:
    """All rows of an overwritten source are computed again."""
    patch.setattr(view_kernels, "_gone_results", lambda *_: None)


def results_go_to_rows_in_the_order_they_are_found(patch: pytest.MonkeyPatch) -> None:
    assembled = results._assembled

    def unordered(parts: Any, kind: pa.DataType) -> pa.Array:
        filled = [values for positions, values in parts if len(positions)]
        return filled[0] if len(filled) == 1 else assembled(parts, kind)

    patch.setattr(results, "_assembled", unordered)


# Found at once, so that every run of the tests shows that the histories still find something.
QUICK: Final[Mapping[Plant, type[ViewHistory]]] = {
    updates_are_ignored: QueryHistory,
    columns_of_others_are_lost: FunctionColumnHistory,
    unchanged_rows_are_written_again: ChunkerHistory,
    rows_that_yield_nothing_are_forgotten: ChunkerHistory,
    whole_views_are_never_stale: TableFunctionHistory,
    old_keys_are_ignored: PartitionHistory,
    the_second_source_is_ignored: JoinHistory,
    changed_rows_take_the_id_of_the_first: FunctionColumnHistory,
    new_rows_take_ids_that_are_taken: PartitionHistory,
    a_change_of_a_carried_column_calls_the_function: FunctionColumnHistory,
    edits_of_others_are_not_seen: QueryHistory,
}
FOUND_BY: Final[Mapping[Plant, type[ViewHistory]]] = {
    **QUICK,
    deletions_are_ignored: QueryHistory,
    a_capped_view_counts_as_whole: ChunkerHistory,
    a_cap_forgets_what_was_kept: ChunkerHistory,
    the_watermark_is_not_published: ChunkerHistory,
    new_keys_are_ignored: AggregateHistory,
    restored_rows_look_like_those_that_were_moved: ChunkerHistory,
    names_always_stand_for_the_same_fields: QueryHistory,
    fragments_of_changed_rows_share_their_ids: FunctionColumnHistory,
    values_of_the_view_are_believed_unseen: FunctionColumnHistory,
    checkpoints_of_views_are_ignored: FunctionColumnHistory,
    checkpoints_of_partitions_are_ignored: PartitionHistory,
    checkpoints_are_used_whatever_they_were_computed_from: ChunkerHistory,
    the_watermark_is_the_version_at_the_end: ChunkerHistory,
    edits_during_a_refresh_are_not_seen: QueryHistory,
    checkpoints_wait_for_the_end_of_a_task: FunctionColumnHistory,
    checkpoints_wait_for_the_last_partition: PartitionHistory,
    results_of_gone_rows_are_not_used: ChunkerHistory,
    results_go_to_rows_in_the_order_they_are_found: ChunkerHistory,
}
