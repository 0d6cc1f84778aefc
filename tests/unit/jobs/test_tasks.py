"""Work is dealt out evenly, and cut where there are too few fragments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidemill.jobs.model.options import BackfillRequest
from tidemill.jobs.model.plans import FragmentWork
from tidemill.jobs.planning.tasks import commit_group, cut, share_out, view_tasks


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_every_fragment_is_dealt_once_and_no_share_is_twice_the_mean(sizes: list[int], shares: int) -> None:
    work = [FragmentWork(number, None, rows) for number, rows in enumerate(sizes)]
    dealt = share_out(work, shares)
    assert sorted(item.fragment_id for share in dealt for item in share) == list(range(len(sizes)))
    assert all(dealt)
    assert len(dealt) == min(shares, len(sizes))
    heaviest = max(sum(item.row_count for item in share) for share in dealt)
    assert heaviest <= sum(sizes) / shares + max(sizes)


@given(st.integers(1, 200), st.integers(1, 60))
def test_pieces_hold_every_row_once(rows: int, size: int) -> None:
    spans = [piece.span for piece in cut(FragmentWork(3, None, rows), size)]
    assert [place for start, count in filter(None, spans) for place in range(start, start + count)] == list(
        range(rows)
    )
    named = list(cut(FragmentWork(3, BitMap64(range(0, 2 * rows, 2)), rows), size))
    assert [row for piece in named for row in piece.rows or ()] == list(range(0, 2 * rows, 2))
    assert all(piece.row_count <= size for piece in named)


def test_enough_fragments_are_not_cut() -> None:
    work = [FragmentWork(number, None, 10_000) for number in range(8)]
    group = commit_group(work, BackfillRequest("c"), slots=4)
    assert (group.pieces, len(group.tasks)) == ((), 8)


def test_a_single_large_fragment_is_cut_for_all_slots() -> None:
    group = commit_group([FragmentWork(0, None, 10_000)], BackfillRequest("c"), slots=4)
    assert [piece.row_count for (piece,) in group.pieces] == [2500] * 4
    assert [len(task) for task in group.tasks] == [1]


def test_little_work_is_not_cut() -> None:
    assert commit_group([FragmentWork(0, None, 500)], BackfillRequest("c"), slots=4).pieces == ()


def test_a_task_size_says_how_many_rows_a_task_has() -> None:
    request = BackfillRequest("c", task_size=40)
    group = commit_group([FragmentWork(0, None, 100), FragmentWork(1, None, 30)], request, slots=4)
    assert [piece.row_count for (piece,) in group.pieces] == [40, 40, 20, 30]
    small = [FragmentWork(number, None, 20) for number in range(4)]
    assert [len(task) for task in commit_group(small, request, slots=4).tasks] == [2, 2]


def test_fragments_of_a_view_are_cut_for_functions_and_by_size_alone() -> None:
    work = [FragmentWork(0, None, 2000)]
    rows = {0: BitMap64(range(2000))}
    assert view_tasks(work, rows, None, 2, is_costly=False) == ((work[0],),)
    cut_for_slots = view_tasks(work, rows, None, 2, is_costly=True)
    assert sorted(item.row_count for task in cut_for_slots for item in task) == [1000, 1000]
    by_size = view_tasks(work, rows, 600, 2, is_costly=False)
    assert [item.row_count for task in by_size for item in task] == [600, 600, 600, 200]
    covered = BitMap64()
    for task in by_size:
        for item in task:
            assert item.rows is not None
            covered |= item.rows
    assert covered == rows[0]
