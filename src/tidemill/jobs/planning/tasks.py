"""Deals the work of a commit out to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from pyroaring import BitMap64

from tidemill.jobs.model.options import BackfillRequest
from tidemill.jobs.model.plans import CommitGroup, FragmentWork

TASKS_PER_SLOT: Final = 2
# Smaller tasks are not cut without being asked: putting them together again costs more.
FEWEST_ROWS: Final = 256


def commit_group(work: Sequence[FragmentWork], request: BackfillRequest, slots: int) -> CommitGroup:
    """Whole fragments where there are enough of them for all slots, else pieces of fragments."""
    at_once = request.concurrency or slots
    size = request.task_size or _piece_size(work, at_once)
    tasks = share_out(work, _task_count(work, request, at_once))
    if size is None or all(item.row_count <= size for item in work):
        return CommitGroup(_frozen(tasks))
    pieces = tuple((piece,) for item in work for piece in cut(item, size))
    return CommitGroup(_frozen(tasks), pieces)


def cut(work: FragmentWork, size: int) -> Iterator[FragmentWork]:
    """Pieces of at most so many rows."""
    for start in range(0, work.row_count, size):
        count = min(size, work.row_count - start)
        if work.rows is None:
            yield FragmentWork(work.fragment_id, None, count, (start, count))
        else:
            rows = BitMap64(work.rows[start : start + count])
            yield FragmentWork(work.fragment_id, rows, count)


def share_out(work: Iterable[FragmentWork], shares: int) -> list[list[FragmentWork]]:
    """Deals fragments out so that the shares have about the same number of rows; no share is empty."""
    dealt: list[tuple[int, list[FragmentWork]]] = []
    for item in sorted(work, key=lambda item: -item.row_count):
        if len(dealt) < shares:
            dealt.append((item.row_count, [item]))
            continue
        lightest = min(range(len(dealt)), key=lambda index: dealt[index][0])
        rows, items = dealt[lightest]
        dealt[lightest] = (rows + item.row_count, [*items, item])
    return [items for _, items in dealt]


def _task_count(work: Sequence[FragmentWork], request: BackfillRequest, at_once: int) -> int:
    """As many as keep every slot busy to the end; with a size, as many as it takes."""
    if request.task_size is not None:
        return max(1, ceil(sum(item.row_count for item in work) / request.task_size))
    return at_once if request.concurrency else at_once * TASKS_PER_SLOT


def _piece_size(work: Sequence[FragmentWork], at_once: int) -> int | None:
    rows = sum(item.row_count for item in work)
    if len(work) >= at_once or rows < 2 * FEWEST_ROWS:
        return None
    return max(FEWEST_ROWS, ceil(rows / at_once))


def _frozen(shares: Sequence[Sequence[FragmentWork]]) -> tuple[tuple[FragmentWork, ...], ...]:
    return tuple(tuple(share) for share in shares)


def view_tasks(
    work: Sequence[FragmentWork],
    rows: Mapping[int, BitMap64],
    size: int | None,
    slots: int,
    *,
    is_costly: bool,
) -> tuple[tuple[FragmentWork, ...], ...]:
    """Tasks of a view's source: of at most so many rows, or enough of them for all slots.

    Fragments are cut for costly rows only; `rows` are those of whole fragments, for when they are.
    """
    most = size or (_piece_size(work, slots) if is_costly else None)
    if most is None:
        return _frozen(share_out(work, slots * TASKS_PER_SLOT))
    listed = [item if item.rows is not None else replace(item, rows=rows[item.fragment_id]) for item in work]
    pieces = [piece for item in listed for piece in cut(item, most)]
    if size is not None:
        return tuple((piece,) for piece in pieces)
    return _frozen(share_out(pieces, slots * TASKS_PER_SLOT))
