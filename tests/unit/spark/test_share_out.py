"""Fragments are dealt out evenly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemill.jobs.model.plans import FragmentWork
from tidemill.spark.executor import share_out


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_every_fragment_is_dealt_once_and_no_share_is_twice_the_mean(sizes: list[int], shares: int) -> None:
    work = [FragmentWork(number, None, rows) for number, rows in enumerate(sizes)]
    dealt = share_out(work, shares)
    assert sorted(item.fragment_id for share in dealt for item in share) == list(range(len(sizes)))
    assert all(dealt)
    assert len(dealt) == min(shares, len(sizes))
    heaviest = max(sum(item.row_count for item in share) for share in dealt)
    assert heaviest <= sum(sizes) / shares + max(sizes)
