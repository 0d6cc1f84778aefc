"""Finds what others did to the rows of a view: changed, removed or added by hand, or put back by a restore.

Only the view's own columns matter. What users write into columns they have added beside them is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import lance
import numpy as np
import pyarrow.compute as pc
from pyroaring import BitMap64

from tidemill.jobs.model.columns import quoted
from tidemill.jobs.model.coverage import Watched, row_set
from tidemill.jobs.model.plans import ViewEdits
from tidemill.lance.changes import find_changes, rows_that_differ

# Stands for the key of a row that somebody has added without one.
NO_KEY = -1


def find_edits(
    before: lance.LanceDataset, after: lance.LanceDataset, key: str | None, columns: Sequence[str]
) -> ViewEdits:
    """The keys of all rows that differ between two versions of a view."""
    missing = [name for name in columns if name not in after.schema.names]
    if missing:
        # A refresh refuses such a view and names them.
        return ViewEdits(after.version)
    old_rows, new_rows = _row_ids(before), _row_ids(after)
    changed = _changed_rows(before, after, old_rows & new_rows, columns)
    gone, added = (old_rows - new_rows) | changed, (new_rows - old_rows) | changed
    if not gone and not added:
        return ViewEdits(after.version)
    if key is None:
        return ViewEdits(after.version, lost_reason="others changed rows of the view itself")
    return ViewEdits(after.version, _keys(before, gone, key) | _keys(after, added, key))


def has_edits(before: lance.LanceDataset, after: lance.LanceDataset, columns: Sequence[str]) -> bool:
    return find_edits(before, after, None, columns).lost_reason is not None


def _changed_rows(
    before: lance.LanceDataset, after: lance.LanceDataset, rows: BitMap64, columns: Sequence[str]
) -> BitMap64:
    """By the log if it is there, which tells compactions from changes; else row by row."""
    changes = find_changes(after, before.version, Watched(tuple(columns)))
    if not changes.is_total:
        return changes.updated & rows
    if any(name not in before.schema.names for name in columns):
        return rows
    return rows_that_differ(before, after, rows, columns)


def _row_ids(dataset: lance.LanceDataset) -> BitMap64:
    rows = dataset.scanner(columns=[], with_row_id=True).to_table()
    return row_set(rows["_rowid"].to_numpy())


def _keys(dataset: lance.LanceDataset, rows: BitMap64, key: str) -> BitMap64:
    ids = np.array(rows.to_array(), dtype=np.uint64)
    if not len(ids):
        return BitMap64()
    keys = pc.fill_null(dataset._take_rows(ids, columns={"key": quoted(key)})["key"], NO_KEY)
    return row_set(np.unique(keys.to_numpy().astype(np.int64).view(np.uint64)))
