"""Bugs to be planted one at a time: each takes one clause out of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from pyroaring import BitMap64

from tidemill.jobs.model.columns import BatchPolicy, CheckpointRef, ColumnFile
from tidemill.jobs.model.coverage import Coverage, Watched
from tidemill.jobs.planning import backfill as planner
from tidemill.jobs.planning import column_progress
from tidemill.jobs.planning.bindings import ColumnBindings
from tidemill.jobs.worker import backfill as backfills
from tidemill.lance import freshness, publisher, sources
from tidemill.lance.checkpoint_files import list_checkpoints
from tidemill.lance.checkpoints import LanceCheckpoints
from tidemill.lance.fingerprints import KnownResults
from tidemill.lance.fragments import get_fragment, merged
from tidemill.spark import kernels
from tidemill.spark.reading import FragmentReader
from tidemill.store.bookkeeping import SqlCoverageRepository

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def updates_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planner, "advance", lambda coverage, _, version: replace(coverage, watermark=version))


def every_result_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownResults, "match", lambda _, hashes: np.ones(len(hashes), dtype=np.bool_))


def no_result_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownResults, "match", lambda _, hashes: np.zeros(len(hashes), dtype=np.bool_))


def fingerprints_leave_out_what_was_returned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(freshness, "paired", lambda inputs, _: inputs)
    patch.setattr(kernels, "paired", lambda inputs, _: inputs)


def marks_leave_out_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(freshness, "with_deletions", lambda mark, _: mark)


def every_file_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(freshness.WatchedFields, "mark", lambda *_: 1)


def renamed_fields_are_not_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ColumnBindings, "_followed", lambda _, __, ___, column, ____: column)


def names_stand_for_fields_with_their_names(patch: pytest.MonkeyPatch) -> None:
    """A rename looks as if one field had been dropped and another one added."""
    patch.setattr(sources, "trace_field", lambda _, path, *__: path)


def a_branch_begins_with_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        column_progress, "_inherited", lambda _, declared: Coverage(declared.column.function_digest)
    )


def rows_that_left_count_as_filled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publisher, "_rows_still_in", lambda _, file, *__: file.rows)


def carried_values_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    fits = publisher._fits
    patch.setattr(publisher, "_fits", lambda file, *more: fits(replace(file, carried_files=None), *more))


def nothing_is_carried_forward(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernels, "merged", lambda old, *more: merged(pa.nulls(len(old), old.type), *more))


def offsets_count_live_rows(patch: pytest.MonkeyPatch) -> None:
    rows = FragmentReader._rows

    def numbered(*arguments: Any, **more: Any) -> Any:
        read = rows(*arguments, **more)
        return replace(read, offsets=np.arange(len(read.row_ids)))

    patch.setattr(FragmentReader, "_rows", numbered)


def others_are_not_withdrawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SqlCoverageRepository, "withdraw", lambda *_: None)


def checkpoints_never_age(patch: pytest.MonkeyPatch) -> None:
    def everything(
        self: LanceCheckpoints, location: str, table: Any, _: int, watched: Watched
    ) -> Sequence[CheckpointRef]:
        self._salvage(location, table)
        return [CheckpointRef(found.path, found.rows) for found in list_checkpoints(location)]

    patch.setattr(LanceCheckpoints, "find_usable", everything)


def orphans_are_thrown_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LanceCheckpoints, "keep", lambda *_: None)


def checkpoints_wait_for_the_end_of_a_fragment(patch: pytest.MonkeyPatch) -> None:
    """A worker that dies at a commit loses nothing, one that dies inside a function does."""
    finished = kernels.CheckpointBuffer.add_finished

    def late(self: kernels.CheckpointBuffer, file: ColumnFile) -> None:
        self.flush_values()
        finished(self, file)

    patch.setattr(BatchPolicy, "is_due", lambda *_: False)
    patch.setattr(kernels.CheckpointBuffer, "add_finished", late)


def a_backfill_catches_up_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backfills, "MAX_CATCH_UPS", 1)


def the_watermark_is_the_commit(patch: pytest.MonkeyPatch) -> None:
    covering = backfills._covering

    def ahead(one: Any, files: Any, version: int, revision: int) -> Coverage:
        return replace(covering(one, files, version, revision), watermark=version)

    patch.setattr(backfills, "_covering", ahead)


def a_pinned_version_counts_as_the_latest(patch: pytest.MonkeyPatch) -> None:
    covering = backfills._covering

    def ahead(one: Any, files: Any, version: int, revision: int) -> Coverage:
        covered = covering(one, files, version, revision)
        return covered if one.request.read_version is None else replace(covered, watermark=version)

    patch.setattr(backfills, "_covering", ahead)


def a_pinned_version_sets_the_watermark_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planner.ColumnProgress, "is_past", property(lambda _: False))


def nulls_count_as_missing(patch: pytest.MonkeyPatch) -> None:
    fill = kernels._fill_fragment

    def without_nulls(dataset: Any, stage: Any, work: Any, computer: Any) -> ColumnFile:
        file = fill(dataset, stage, work, computer)
        values = LanceFileReader(f"{stage.location}/data/{file.path}").read_all().to_table().column(0)
        fragment = get_fragment(dataset, file.fragment_id)
        found = fragment.scanner(columns=[], with_row_id=True, with_row_address=True).to_table()
        offsets = [address & 0xFFFFFFFF for address in found["_rowaddr"].to_pylist()]
        rows = zip(found["_rowid"].to_pylist(), offsets, strict=True)
        empty = BitMap64(row_id for row_id, offset in rows if not values[offset].is_valid)
        return replace(file, rows=file.rows - empty)

    patch.setattr(kernels, "_fill_fragment", without_nulls)


def what_a_filter_published_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backfills.BackfillRunner, "_rows_published", lambda *_: BitMap64())


# Found at once, so that every run of the tests shows that the histories still find something.
QUICK: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        updates_are_ignored,
        nothing_is_carried_forward,
        offsets_count_live_rows,
        nulls_count_as_missing,
        no_result_is_known,
        renamed_fields_are_not_followed,
    )
}
BUGS: Final[Mapping[str, Plant]] = {
    **QUICK,
    **{
        plant.__name__: plant
        for plant in (
            every_result_is_known,
            fingerprints_leave_out_what_was_returned,
            marks_leave_out_deletions,
            every_file_is_known,
            names_stand_for_fields_with_their_names,
            a_branch_begins_with_nothing,
            rows_that_left_count_as_filled,
            carried_values_are_not_checked,
            others_are_not_withdrawn,
            checkpoints_never_age,
            orphans_are_thrown_away,
            checkpoints_wait_for_the_end_of_a_fragment,
            a_backfill_catches_up_once,
            the_watermark_is_the_commit,
            a_pinned_version_counts_as_the_latest,
            a_pinned_version_sets_the_watermark_back,
            what_a_filter_published_is_forgotten,
        )
    },
}
