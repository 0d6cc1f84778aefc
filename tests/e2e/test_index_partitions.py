"""Table functions called for each partition of a vector index, and again only for those that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, refreshed
from tests.e2e.view_kinds import created, result_of, rows_of, verified
from tidemill.sdk.errors import InvalidRequest, NotFound

ROWS: Final = 640
CORNERS: Final = 4
DIMENSIONS: Final = 8


def points(ids: range, *, corner: int | None = None) -> pa.Table:
    """Vectors around four corners that are far from one another."""
    noise = np.random.default_rng(ids.start).random((len(ids), DIMENSIONS))
    corners = [number % CORNERS if corner is None else corner for number in ids]
    vectors = (noise + 1000.0 * np.eye(DIMENSIONS)[corners]).astype(np.float32)
    found = pa.array(list(vectors), pa.list_(pa.float32(), DIMENSIONS))
    return pa.table({"id": list(ids), "weight": [1] * len(ids), "vector": found})


def weigher(calls: CallLog) -> Any:
    """One row for each partition; notes the ids it is called with."""

    @tidemill.udtf(output=pa.schema([("first", pa.int64()), ("rows", pa.int64()), ("weight", pa.int64())]))
    def weights(source: Any) -> Iterator[dict[str, int]]:
        rows = source.select(["id", "weight"]).to_list()
        ids = sorted(row["id"] for row in rows)
        calls.note(",".join(map(str, ids)))
        yield {"first": ids[0], "rows": len(ids), "weight": sum(row["weight"] for row in rows)}

    return weights


class Parted(NamedTuple):
    source: tidemill.Table
    view: tidemill.View
    calls: CallLog

    def refresh(self) -> list[set[int]]:
        """The ids that each call of a refresh was given."""
        self.calls.take()
        refreshed(self.view)
        return [{int(number) for number in line.split(",")} for line in self.calls.take()]

    def check(self) -> None:
        """Every row is in one partition, and everything is as if it had been made anew."""
        rows, weights = zip(*rows_of(self.view, "rows", "weight"), strict=True)
        there = self.source.query(columns=["weight"])["weight"].to_pylist()
        assert (sum(rows), sum(weights)) == (len(there), sum(there))
        assert verified(self.view).is_same


def indexed(source: tidemill.Table, **options: Any) -> None:
    source.to_lance().create_index("vector", "IVF_FLAT", num_partitions=CORNERS, **options)


@pytest.fixture
def source(make: Maker) -> tidemill.Table:
    return make.lake.create_table(f"{make.namespace}.points", points(range(ROWS)))


@pytest.fixture
def parted(make: Maker, source: tidemill.Table, calls: CallLog) -> Parted:
    indexed(source)
    return Parted(source, created(make, weigher(calls).over(source, partition_by_index="vector")), calls)


def test_a_column_without_an_index_cannot_part_rows(
    make: Maker, source: tidemill.Table, calls: CallLog
) -> None:
    with pytest.raises(InvalidRequest, match=r"partition_by_indexed_column.*no index"):
        created(make, weigher(calls).over(source, partition_by_index="vector"))
    with pytest.raises(NotFound, match="no column 'nowhere'"):
        created(make, weigher(calls).over(source, partition_by_index="nowhere"))
    source.to_lance().create_scalar_index("id", "BTREE")
    with pytest.raises(InvalidRequest, match="an IVF index is needed"):
        created(make, weigher(calls).over(source, partition_by_index="id"))


def test_the_function_is_called_once_for_each_partition(parted: Parted) -> None:
    found = parted.refresh()
    assert 1 < len(found) <= CORNERS
    assert Counter(number for part in found for number in part) == Counter(range(ROWS))
    assert parted.refresh() == []
    parted.check()


def test_rows_that_the_index_does_not_know_yet_are_a_partition_of_their_own(parted: Parted) -> None:
    parted.refresh()
    parted.source.add(points(range(1000, 1003)))
    assert parted.view.explain().keys == 1
    assert parted.refresh() == [{1000, 1001, 1002}]
    parted.source.add(points(range(1003, 1004)))
    assert parted.refresh() == [{1000, 1001, 1002, 1003}]
    parted.check()


def test_a_deleted_row_is_a_call_for_its_partition_alone(parted: Parted) -> None:
    [old] = [part for part in parted.refresh() if 17 in part]
    parted.source.to_lance().delete("id = 17")
    assert parted.refresh() == [old - {17}]
    parted.check()


@pytest.mark.parametrize(
    ("column", "value"), [("weight", "5"), ("vector", "make_array(0.0, 0, 0, 0, 0, 0, 0, 7)")]
)
def test_an_updated_row_is_a_call_for_where_it_was_and_where_it_is(
    parted: Parted, column: str, value: str
) -> None:
    [old] = [part for part in parted.refresh() if 17 in part]
    parted.source.to_lance().update({column: value}, where="id = 17")
    called = parted.refresh()
    assert sorted(called, key=len) in ([{17}, old - {17}], [old])
    parted.check()


def test_an_index_that_learns_of_new_rows_calls_for_the_partitions_that_get_them(parted: Parted) -> None:
    before = parted.refresh()
    parted.source.add(points(range(1000, 1003), corner=2))
    parted.refresh()
    parted.source.to_lance().optimize.optimize_indices()
    called = parted.refresh()
    assert all(part & {1000, 1001, 1002} for part in called)
    assert sum(len(part & {1000, 1001, 1002}) for part in called) == 3
    assert len(called) < len(before)
    parted.check()


def test_another_index_makes_all_partitions_anew(parted: Parted) -> None:
    parted.refresh()
    indexed(parted.source, replace=True)
    parted.refresh()
    parted.source.to_lance().create_index("vector", "IVF_FLAT", num_partitions=2, replace=True)
    refreshed(parted.view)
    assert parted.view.count_rows() <= 2
    parted.check()


def test_a_view_whose_index_is_gone_says_so_and_stays_as_it_was(parted: Parted) -> None:
    parted.refresh()
    before = rows_of(parted.view, "first", "rows")
    parted.source.add(points(range(1000, 1003)))
    parted.source.to_lance().drop_index("vector_idx")
    with pytest.raises(tidemill.JobFailed, match="an IVF index is needed"):
        refreshed(parted.view)
    assert rows_of(parted.view, "first", "rows") == before


def test_compaction_moves_no_row_to_another_partition(parted: Parted) -> None:
    parted.source.add(points(range(1000, 1003)))
    parted.refresh()
    version = parted.view.version
    parted.source.to_lance().optimize.compact_files()
    refreshed(parted.view)
    parted.check()
    parted.source.to_lance().optimize.optimize_indices()
    parted.refresh()
    parted.check()
    assert result_of(parted.view)["mode"] == "no_op"
    assert parted.view.version > version
