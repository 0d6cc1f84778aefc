"""A capped view shows the first rows by source row, whatever was there before and is made now."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidemill.jobs.model.plans import KeyedRows
from tidemill.jobs.planning.output_limit import output_cap, rows_fitting, rows_in_reach, trimmed

COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=10)


@given(counts=COUNTS, limit=st.integers(0, 12), kept=st.sets(st.integers(0, 9)))
def test_the_first_rows_are_shown(counts: list[int], limit: int, kept: set[int]) -> None:
    """Source rows in `kept` have their rows in the view; the others are made until there is no room."""
    there = sorted(kept & set(range(len(counts))))
    keys = np.repeat(np.array(there, dtype=np.uint64), [counts[i] for i in there])
    rows = KeyedRows(np.arange(len(keys), dtype=np.uint64), keys)
    cap = output_cap(limit, BitMap64(there), rows)
    todo = rows_in_reach(cap, BitMap64(set(range(len(counts))) - set(there)))
    made_ids: list[int] = []
    made_counts: list[int] = []
    for row in todo:
        wanted = np.array([row], dtype=np.uint64)
        fitting = rows_fitting(cap, wanted, np.array([counts[row]]), sum(made_counts))
        made_ids.append(row)
        made_counts.append(int(fitting[0]))
        if fitting[0] < counts[row]:
            break
    made = np.array(made_ids, dtype=np.uint64), np.array(made_counts, dtype=np.int64)
    trim = trimmed(cap, made, rows)
    shown = {row: count for row, count in zip(made_ids, made_counts, strict=True) if count}
    for row_id, key in zip(rows.row_ids.tolist(), rows.keys.tolist(), strict=True):
        if row_id not in trim.removed:
            shown[key] = shown.get(key, 0) + 1
    expected: dict[int, int] = {}
    for row, count in enumerate(counts):
        room = limit - sum(expected.values())
        if min(count, room) > 0:
            expected[row] = min(count, room)
    assert shown == expected
    assert all(expected.get(row, 0) == counts[row] for row in trim.covered)
