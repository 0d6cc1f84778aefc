"""All that planners are given, drawn at random: every field, in every combination that can occur."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidemill.catalog.model.functions import Environment
from tidemill.jobs.model.coverage import Changes, Coverage
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.options import BackfillRequest, RowSelection
from tidemill.jobs.model.plans import (
    FragmentInfo,
    RowLocations,
    SqlPlan,
    SqlSource,
    TableSnapshot,
    ViewEdits,
)
from tidemill.jobs.planning.backfill import ColumnProgress
from tidemill.jobs.planning.refresh import SourceProgress, ViewProgress

# Few rows, of which every set has about half: so any two sets have some in common, and some not.
ROWS = 12
BITMAPS = st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).map(
    lambda chosen: BitMap64(row for row, is_in in enumerate(chosen) if is_in)
)
MAYBE_SOME = st.just(BitMap64()) | BITMAPS
VERSIONS = st.integers(1, 9)
COUNTS = st.none() | st.integers(1, 4)
FRAGMENTS = 5
# Where the live rows are: the id of each, and its fragment.
TABLES = st.lists(st.none() | st.integers(0, FRAGMENTS - 1), min_size=ROWS, max_size=ROWS).map(
    lambda places: {row: place for row, place in enumerate(places) if place is not None}
)
SELDOM = st.sampled_from([False] * 9 + [True])


@dataclass(frozen=True)
class BackfillCase:
    """What a backfill is planned from; `live` are all rows, of which a filter may leave some out."""

    progress: ColumnProgress
    request: BackfillRequest
    slots: int
    done: BitMap64 | None
    live: BitMap64


@st.composite
def snapshots(draw: st.DrawFn, table: dict[int, int]) -> TableSnapshot:
    counts = [sum(fragment == number for fragment in table.values()) for number in range(FRAGMENTS)]
    fragments = [FragmentInfo(n, count + draw(st.integers(0, 2)), count) for n, count in enumerate(counts)]
    return TableSnapshot(
        version=draw(VERSIONS),
        schema=draw(st.sampled_from([pa.schema([]), pa.schema({"x": pa.int64()})])),
        fragments=tuple(draw(st.permutations(fragments))),
        has_stable_row_ids=draw(st.booleans()),
        field_ids=draw(st.sampled_from([{}, {"x": 1}])),
    )


@st.composite
def locations(draw: st.DrawFn, table: dict[int, int]) -> RowLocations:
    rows = draw(st.permutations(sorted(table)))
    fragments = [table[row] for row in rows]
    return RowLocations(np.array(rows, dtype=np.uint64), np.array(fragments, dtype=np.uint64))


@st.composite
def coverages(draw: st.DrawFn) -> Coverage:
    """Nothing is known of what was never stored; a row is covered or outdated, not both."""
    digest = draw(st.sampled_from(["one", "other"]))
    if draw(SELDOM):
        return Coverage(digest)
    rows = draw(BITMAPS)
    return Coverage(
        digest=digest,
        watermark=draw(VERSIONS),
        rows=rows,
        revision=draw(st.integers(1, 3)),
        published=draw(VERSIONS),
        outdated=draw(MAYBE_SOME) - rows,
        files=draw(MAYBE_SOME),
        segments=draw(st.sampled_from([(), ("one",)])),
    )


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    if draw(SELDOM):
        return Changes(draw(BITMAPS), is_total=True, reason=draw(st.sampled_from(["restored", "gone"])))
    updated, regained = draw(MAYBE_SOME), draw(MAYBE_SOME)
    return Changes(updated - regained, regained=regained, files=draw(st.none() | MAYBE_SOME))


@st.composite
def backfill_requests(draw: st.DrawFn) -> BackfillRequest:
    where = draw(st.sampled_from([None, None, "x > 1"]))
    return BackfillRequest(
        column=draw(st.sampled_from("cd")),
        branch=draw(st.none() | st.just("dev")),
        where=where,
        only=draw(st.none() | st.sampled_from(RowSelection)) if where is None else None,
        read_version=draw(st.none() | VERSIONS),
        concurrency=draw(COUNTS),
        num_frags=draw(COUNTS),
        commit_granularity=draw(COUNTS),
        checkpoint_size=draw(COUNTS),
        min_checkpoint_size=draw(COUNTS),
        max_checkpoint_size=draw(COUNTS),
        flush_interval_seconds=draw(st.none() | st.just(0.5)),
        intra_applier_concurrency=draw(COUNTS),
        task_size=draw(COUNTS),
        cluster=draw(st.none() | st.just("gpu")),
        manifest=draw(st.none() | st.just("packages")),
        environment=draw(st.none() | st.just(Environment(("lib",)))),
        on_error=draw(st.sampled_from(ErrorAction).map(ErrorPolicy)),
    )


@st.composite
def backfill_cases(draw: st.DrawFn) -> BackfillCase:
    """As they are assessed: rows are located unless every one is wanted, and done of selections only."""
    table, request = draw(TABLES), draw(backfill_requests())
    snapshot, coverage, changed = draw(snapshots(table)), draw(coverages()), draw(changes())
    is_filtered = request.where is not None or request.only is not None
    others, failed = draw(MAYBE_SOME), draw(BITMAPS)
    kept = (draw(MAYBE_SOME) & others) - failed
    located = None
    unlocated = ColumnProgress(snapshot, coverage, changed, None, others, failed, kept)
    if is_filtered or unlocated.covered:
        is_match = draw(BITMAPS) if request.where is not None else table.keys()
        located = draw(locations({row: place for row, place in table.items() if row in is_match}))
    progress = replace(unlocated, located=located)
    done = draw(st.none() | BITMAPS) if is_filtered else None
    return BackfillCase(progress, request, draw(st.integers(1, 4)), done, BitMap64(table))


@st.composite
def source_progresses(draw: st.DrawFn) -> SourceProgress:
    """A source to which nothing has happened is not looked at."""
    levels = draw(st.sampled_from([("t",), ("n", "t")]))
    coverage = draw(coverages())
    if coverage.revision and not coverage.outdated and draw(st.booleans()):
        snapshot = draw(snapshots({row: row % FRAGMENTS for row in coverage.rows}))
        return SourceProgress(levels, snapshot, coverage, Changes(), None)
    table = draw(TABLES | st.just({row: row % FRAGMENTS for row in coverage.rows}))
    changed = draw(changes()) if coverage.rows else Changes()
    edited = draw(MAYBE_SOME) if coverage.revision else BitMap64()
    return SourceProgress(levels, draw(snapshots(table)), coverage, changed, draw(locations(table)), edited)


@st.composite
def view_progresses(draw: st.DrawFn) -> ViewProgress:
    """Only a view of one source is refreshed row by row; one with keys may have several."""
    whole = "its rows are made all together" if draw(SELDOM) else None
    keys = draw(st.none() | st.frozensets(st.integers(0, 9)).map(BitMap64)) if whole is None else None
    most = 1 if whole is None and keys is None else 3
    sources = tuple(draw(st.lists(source_progresses(), min_size=1, max_size=most)))
    # What others did is known by source rows in one case, by keys in the other.
    edited = sources[0].edited if most == 1 else BitMap64()
    if most > 1:
        edited = BitMap64() if keys is None else draw(MAYBE_SOME) & keys
        sources = tuple(replace(source, edited=BitMap64()) for source in sources)
    return ViewProgress(
        sources=sources,
        keys=keys,
        whole_reason=whole,
        lost_reason="others changed the view" if draw(SELDOM) else None,
        sql=draw(st.none() | st.just(SqlPlan("SELECT 1", (SqlSource(("t",), "s0", ("x",)),), pa.schema([])))),
        has_functions=draw(st.booleans()),
        edits=ViewEdits(draw(VERSIONS), edited),
    )
