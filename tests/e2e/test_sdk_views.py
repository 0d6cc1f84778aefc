"""Views at full depth through the SDK: every kind of definition, and all there is to know about a view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import TIMEOUT, Maker, by_id, numbered, refreshed
from tests.e2e.waiting import eventually
from tidemill.sdk.errors import InvalidRequest, NotFound

READINGS = [
    {"id": 1, "station": "north", "metres": 1.5},
    {"id": 2, "station": "south", "metres": 3.0},
    {"id": 3, "station": "north", "metres": 2.5},
]


class Total(NamedTuple):
    station: str
    metres: float


@dataclass
class Extreme:
    station: str
    highest: float | None


class Letter(NamedTuple):
    letter: str


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@tidemill.udf
def inverse(id: int) -> float:
    return 1 / (id - 2)


@tidemill.udf
class Prefixed:
    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def __call__(self, value: str) -> str:
        return self.prefix + value


@tidemill.chunker
def letters(text: str) -> Iterator[Letter]:
    for letter in text:
        if letter == "!":
            raise ValueError("too loud")
        yield Letter(letter)


@tidemill.udtf
class Extremes:
    """Reads batches and yields dataclasses."""

    def __init__(self, station: str = "all") -> None:
        self.station = station

    def __call__(self, source: Any) -> Iterator[Extreme]:
        highest = [max(batch["metres"].to_pylist()) for batch in source.to_batches() if batch.num_rows]
        yield Extreme(self.station, max(highest, default=None))


def adder(calls: CallLog) -> Any:
    """Adds up what it is given, and notes for which stations it was called."""

    @tidemill.udtf
    def totals(source: Any) -> Iterator[Total]:
        rows = source.to_list()
        stations = sorted({row["station"] for row in rows})
        calls.note("+".join(stations))
        for station in stations:
            yield Total(station, sum(row["metres"] for row in rows if row["station"] == station))

    return totals


@pytest.fixture
def readings(make: Maker) -> tidemill.Table:
    return make.table(READINGS, name="readings")


def created(make: Maker, definition: Any, name: str = "view", **options: Any) -> tidemill.View:
    return make.lake.create_materialized_view(f"{make.namespace}.{name}", definition, **options)


def rows_of(view: tidemill.View, *columns: str) -> list[tuple[Any, ...]]:
    found = view.query(columns=list(columns)).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in found)


def test_functions_make_columns_of_a_view(make: Maker, calls: CallLog) -> None:
    @tidemill.udf
    def noted(text: str) -> int:
        calls.note(text)
        return len(text)

    docs = make.numbered(3)
    marked = tidemill.bind(Prefixed("> "), "text")
    view = created(make, docs.select("id", size=noted, loud="upper(text)", marked=marked))
    refreshed(view)
    assert rows_of(view, "id", "size", "loud", "marked")[0] == (0, 6, "TEXT 0", "> text 0")
    assert view.schema.names == ["id", "size", "loud", "marked"]
    calls.take()
    docs.add(numbered(3, 1))
    docs.to_lance().update({"text": "'changed'"}, where="id = 1")
    refreshed(view)
    assert calls.take() == ["changed", "text 3"]
    assert by_id(view, "size") == {0: 6, 1: 7, 2: 6, 3: 6}


def test_a_view_may_have_nothing_but_what_functions_make(make: Maker) -> None:
    view = created(make, make.numbered(2).select(size=size))
    refreshed(view)
    assert rows_of(view, "size") == [(6,), (6,)]


def test_a_view_may_be_a_window_of_rows(make: Maker) -> None:
    docs = make.numbered(10)
    view = created(make, docs.select("id").where("id > 1").offset(2).limit(3))
    refreshed(view)
    assert rows_of(view, "id") == [(4,), (5,), (6,)]
    docs.to_lance().delete("id = 4")
    refreshed(view)
    assert rows_of(view, "id") == [(5,), (6,), (7,)]


def test_failing_rows_of_a_view_are_skipped_and_listed(make: Maker) -> None:
    view = created(make, make.numbered(4).select("id", inverse=inverse))
    job = refreshed(view, on_error=tidemill.skip(limit=1))
    assert job.progress.skipped == 1
    [error] = view.errors(job=job)
    assert (error.exception, error.is_skipped) == ("ZeroDivisionError", True)


def test_what_a_chunker_does_about_failing_rows_is_part_of_the_view(make: Maker) -> None:
    docs = make.table([{"id": 1, "text": "ab"}, {"id": 2, "text": "c!"}])
    view = created(make, docs.chunk(letters), on_error="skip")
    assert refreshed(view).progress.skipped == 1
    assert rows_of(view, "letter") == [("a",), ("b",)]
    [error] = view.errors()
    assert (error.exception, "too loud" in error.message) == ("ValueError", True)


def test_a_chunker_may_show_fewer_rows(make: Maker) -> None:
    view = created(make, make.table([{"id": 1, "text": "abcd"}]).chunk(letters))
    refreshed(view, output_limit=3)
    assert view.count_rows() == 3
    refreshed(view)
    assert view.count_rows() == 4


def test_a_function_of_many_rows_makes_a_view_as_a_whole(
    make: Maker, readings: tidemill.Table, calls: CallLog
) -> None:
    view = created(make, adder(calls).over(readings))
    refreshed(view)
    assert rows_of(view, "station", "metres") == [("north", 4.0), ("south", 3.0)]
    assert calls.take() == ["north+south"]
    assert refreshed(view).progress.commits == 0
    readings.to_lance().delete("station = 'south'")
    assert view.explain().mode == "full"
    refreshed(view)
    assert rows_of(view, "station", "metres") == [("north", 4.0)]


def test_only_the_partitions_that_changed_are_made_anew(
    make: Maker, readings: tidemill.Table, calls: CallLog
) -> None:
    # Of so few rows, everything would be made anew otherwise.
    view = created(make, adder(calls).over(readings, partition_by="station"), policy="incremental")
    refreshed(view)
    assert calls.take() == ["north", "south"]
    readings.add([{"id": 4, "station": "south", "metres": 1.0}, {"id": 5, "station": "west", "metres": 2.0}])
    said = view.explain()
    assert (said.mode, said.keys) == ("incremental", 2)
    refreshed(view)
    assert calls.take() == ["south", "west"]
    assert rows_of(view, "station", "metres") == [("north", 4.0), ("south", 4.0), ("west", 2.0)]


def test_rows_may_be_parted_by_a_vector_index(make: Maker, calls: CallLog) -> None:
    @tidemill.udtf(output=pa.schema([("first", pa.int64()), ("rows", pa.int64())]))
    def clusters(source: Any) -> Iterator[dict[str, int]]:
        ids = source.to_arrow()["id"].to_pylist()
        calls.note(len(ids))
        yield {"first": min(ids), "rows": len(ids)}

    corners = [
        [0.0, float(number % 7)] if number % 2 else [900.0, float(number % 7)] for number in range(512)
    ]
    table = pa.table({"id": range(512), "vector": pa.array(corners, pa.list_(pa.float32(), 2))})
    points = make.lake.create_table(f"{make.namespace}.points", table)
    points.to_lance().create_index("vector", "IVF_FLAT", num_partitions=2)
    view = created(make, clusters.over(points, partition_by_index="vector"))
    refreshed(view)
    assert sum(rows for _, rows in rows_of(view, "first", "rows")) == 512
    assert calls.count() == view.count_rows()
    assert calls.count() > 1


def test_a_class_reads_batches_of_the_columns_it_is_given(make: Maker, readings: tidemill.Table) -> None:
    query = readings.where("station = 'north'")
    view = created(make, tidemill.over(Extremes("north"), query, inputs=["metres"]))
    refreshed(view)
    assert rows_of(view, "station", "highest") == [("north", 2.5)]


def test_a_function_may_yield_batches(make: Maker, readings: tidemill.Table) -> None:
    @tidemill.udtf(output=pa.schema([("rows", pa.int64())]))
    def counted(source: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [source.where("metres > 2").count_rows()]})

    view = created(make, counted.over(readings.select("metres")))
    refreshed(view)
    assert rows_of(view, "rows") == [(2,)]


def test_groups_are_refreshed_by_their_keys(make: Maker, readings: tidemill.Table) -> None:
    statement = f"SELECT station, sum(metres) AS metres FROM {readings.name} GROUP BY station"
    view = created(make, statement, policy="incremental")
    refreshed(view)
    assert rows_of(view, "station", "metres") == [("north", 4.0), ("south", 3.0)]
    readings.to_lance().update({"metres": "10"}, where="id = 2")
    said = view.explain()
    assert (said.mode, said.keys) == ("incremental", 1)
    [change] = said.sources
    assert (change.source, change.inserted, change.updated, change.deleted) == (readings.name, 0, 1, 0)
    assert f"Source: {readings.name}, version" in str(said)
    refreshed(view)
    assert rows_of(view, "station", "metres") == [("north", 4.0), ("south", 10.0)]


def test_a_join_follows_both_of_its_tables(make: Maker, readings: tidemill.Table, tmp_path: Path) -> None:
    stations = make.table([{"station": "north", "sea": "Arctic"}], name="stations")
    file = tmp_path / "seas.sql"
    file.write_text(
        f"SELECT r.id, s.sea FROM {readings.name} r JOIN {stations.name} s ON r.station = s.station"
    )
    view = created(make, make.lake.sql_file(file))
    refreshed(view)
    assert rows_of(view, "id", "sea") == [(1, "Arctic"), (3, "Arctic")]
    stations.add([{"station": "south", "sea": "Weddell"}])
    readings.to_lance().delete("id = 1")
    assert {source.source for source in view.status().sources} == {readings.name, stations.name}
    refreshed(view)
    assert rows_of(view, "id", "sea") == [(2, "Weddell"), (3, "Arctic")]


def test_sql_that_cannot_be_read_is_refused(make: Maker) -> None:
    with pytest.raises(InvalidRequest):
        created(make, "SELECT FROM WHERE")


def test_a_view_can_be_made_from_a_view_of_any_kind(make: Maker, readings: tidemill.Table) -> None:
    sums = created(make, f"SELECT station, count(*) AS n FROM {readings.name} GROUP BY station", "sums")
    refreshed(sums)
    view = created(make, sums.where("n > 1"))
    refreshed(view)
    assert rows_of(view, "station", "n") == [("north", 2)]
    assert "__key" not in view.schema.names


def test_a_view_tells_whether_it_is_fresh(make: Maker, readings: tidemill.Table) -> None:
    view = created(make, readings.select("id"), auto_refresh=False, policy="incremental")
    status = view.status()
    assert (status.kind, status.policy, status.has_auto_refresh) == ("query", "incremental", False)
    assert (status.is_fresh, status.last_refresh) == (False, None)
    job = refreshed(view)
    fresh = view.status()
    assert fresh.is_fresh
    assert fresh.last_refresh is not None
    assert (fresh.last_refresh.job_id, fresh.last_refresh.state) == (job.id, "DONE")
    readings.add([{"id": 9, "station": "west", "metres": 0.0}])
    [source] = view.status().sources
    assert (source.inserted, source.updated, source.deleted) == (1, 0, 0)
    assert (source.source, source.versions_behind) == (readings.name, 1)
    assert not view.status().is_fresh


def test_a_view_refreshes_itself(make: Maker, readings: tidemill.Table) -> None:
    view = created(make, readings.select("id"), auto_refresh=True)
    assert view.status().has_auto_refresh
    eventually(lambda: view.count_rows() == 3, "the view is filled by itself")


def test_a_verification_finds_what_is_not_as_it_should_be(make: Maker, readings: tidemill.Table) -> None:
    view = created(make, readings.select("id", "metres"))
    refreshed(view)
    good = view.verify().wait(TIMEOUT).verification
    assert good is not None
    assert (good.is_same, good.rows_checked, good.differences) == (True, 3, ())
    view.to_lance().update({"metres": "99"}, where="id = 1")
    view.to_lance().delete("id = 2")
    job = view.verify().wait(TIMEOUT)
    bad = job.verification
    assert bad is not None
    assert (bad.is_same, bad.rows_different, bad.rows_missing) == (False, 1, 1)
    assert sorted(difference.kind for difference in bad.differences) == ["different", "missing"]
    assert job.result is not None


def test_a_sample_may_be_verified(make: Maker) -> None:
    view = created(make, make.numbered(50).select("id", size=size))
    refreshed(view)
    found = view.verify(10, seed=4).wait(TIMEOUT).verification
    assert found is not None
    assert (found.is_same, found.rows_checked) == (True, 10)


def test_lineage_goes_both_ways(make: Maker) -> None:
    docs = make.numbered(2)
    first = created(make, docs.select("id", length=size), "first")
    second = created(make, first.select("length"), "second")
    assert [(step.object, step.depth) for step in second.lineage().upstream] == [
        (first.name, 1),
        (docs.name, 2),
    ]
    assert [step.object for step in docs.lineage().downstream] == [first.name, second.name]
    found = second.lineage("length").upstream
    made = {step.column: step for step in found if step.object == docs.name}
    assert made["text"].function is not None
    assert made["text"].function.name == "size"


def test_views_are_listed_opened_and_dropped(make: Maker, readings: tidemill.Table) -> None:
    view = created(make, readings.select("id"), "ids")
    assert make.lake.list_views(make.namespace) == ["ids"]
    assert make.lake.open_view(view.name).name == view.name
    make.lake.drop_view(view.name)
    assert make.lake.list_views(make.namespace) == []
    with pytest.raises(NotFound):
        make.lake.drop_view(readings.name)
