"""Every option of a refresh does what it says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest

import tidemill
from tests.conftest import RunningServer
from tests.e2e.calls import CallLog
from tests.e2e.meetings import Meeting
from tests.e2e.tables import Maker, by_id, refreshed
from tests.e2e.view_kinds import (
    CHUNKER,
    KINDS,
    QUERY,
    SQL,
    UDTF,
    Kind,
    adder,
    created,
    named,
    result_of,
    rows_of,
    texts,
    texts_of,
    verified,
)
from tidemill.catalog.model.functions import Function, geneva_function
from tidemill.sdk.errors import InvalidRequest
from tidemill.sdk.payload import pickle_callable

TEXTS = texts("a tide", "the mill", "", "ebb and flow")
every_kind = pytest.mark.parametrize("kind", KINDS, ids=named)


class Answer(NamedTuple):
    answer: str | None


class Copy(NamedTuple):
    id: int


def change(source: tidemill.Table) -> None:
    """A row more, a row less, and one that is another."""
    source.to_lance().update({"text": "'low water'"}, where="id = 3")
    source.to_lance().delete("id = 0")
    source.add(texts("slack", first=len(TEXTS)))


def joined(make: Maker, source: tidemill.Table) -> str:
    seas = make.table([{"place": "north", "sea": "Arctic"}], name="seas")
    return f"SELECT s.id, n.sea FROM {source.name} s JOIN {seas.name} n ON s.place = n.place"


@every_kind
def test_a_view_goes_to_any_version_of_its_source_and_back(kind: Kind, make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS)
    old, before = source.version, texts_of(source)
    change(source)
    middle, between = source.version, texts_of(source)
    source.to_lance().delete("id = 1")
    view = kind.create(make, source, calls)
    for version, rows in ((middle, between), (old, before), (None, texts_of(source)), (middle, between)):
        assert result_of(view, src_version=version)["source_version"] == (version or source.version)
        assert kind.is_right(view, rows)
    assert verified(view).is_same
    assert not view.status().is_fresh


@every_kind
def test_a_version_that_the_source_does_not_have_is_refused(kind: Kind, make: Maker, calls: CallLog) -> None:
    view = kind.create(make, make.table(TEXTS), calls)
    for version in (999, 0):
        with pytest.raises(InvalidRequest, match="src_version"):
            view.refresh(src_version=version)
        with pytest.raises(InvalidRequest, match="src_version"):
            view.explain(src_version=version)


def test_a_view_of_several_sources_has_no_one_version_to_go_to(make: Maker) -> None:
    source = make.table(TEXTS)
    view = created(make, joined(make, source))
    with pytest.raises(InvalidRequest, match=r"src_version.* 2 sources"):
        view.refresh(src_version=source.version)


def copier() -> Any:
    @tidemill.udtf
    def copies(source: Any) -> Iterator[Copy]:
        for row in source.to_list():
            yield Copy(row["id"])

    return copies


@pytest.mark.parametrize("kind", ["query", "chunker", "udtf", "sql"])
def test_fragments_of_a_view_have_no_more_rows_than_asked(make: Maker, calls: CallLog, kind: str) -> None:
    source = make.table(texts(*(f"word{number}" for number in range(25))))
    definitions = {
        "query": QUERY.define(source, calls),
        "chunker": CHUNKER.define(source, calls),
        "udtf": copier().over(source, partition_by="place"),
        "sql": f"SELECT id, place FROM {source.name} WHERE id >= 0",
    }
    view = created(make, definitions[kind])
    refreshed(view, max_rows_per_fragment=10)
    sizes = [fragment.count_rows() for fragment in view.to_lance().get_fragments()]
    assert (sum(sizes), max(sizes)) == (25, 10)
    source.add(texts(*(f"word{number}" for number in range(24)), first=25))
    refreshed(view)
    assert max(fragment.count_rows() for fragment in view.to_lance().get_fragments()) > 10


def meeting_chunker(tmp_path: Path, size: int) -> Any:
    """Yields whether so many processes were in it at once, and in which one it was called."""
    place = Meeting(str(tmp_path / "meeting"), size)

    @tidemill.chunker(output=pa.schema([("met", pa.bool_()), ("process", pa.int64())]))
    def met(id: int) -> Iterator[dict[str, Any]]:
        import os

        yield {"met": place.attend(), "process": os.getpid()}

    return met


def meeting_udtf(tmp_path: Path, size: int) -> Any:
    place = Meeting(str(tmp_path / "meeting"), size)

    @tidemill.udtf(output=pa.schema([("met", pa.bool_()), ("process", pa.int64())]))
    def met(source: Any) -> Iterator[dict[str, Any]]:
        import os

        yield {"met": place.attend(), "process": os.getpid()}

    return met


@pytest.mark.parametrize("size", [1, 2])
def test_as_many_tasks_of_a_chunker_as_asked_run_at_a_time(make: Maker, tmp_path: Path, size: int) -> None:
    view = created(make, make.numbered(2, 2).chunk(meeting_chunker(tmp_path, size)))
    refreshed(view, concurrency=size)
    assert {met for (met,) in rows_of(view, "met")} == {True}
    assert len({process for (process,) in rows_of(view, "process")}) == size


@pytest.mark.parametrize("size", [1, 2])
def test_as_many_partitions_as_asked_are_made_at_a_time(make: Maker, tmp_path: Path, size: int) -> None:
    source = make.table(texts("a", "b", "c", "d"))
    view = created(make, meeting_udtf(tmp_path, size).over(source, partition_by="id"))
    refreshed(view, concurrency=size)
    assert {met for (met,) in rows_of(view, "met")} == {True}
    assert len({process for (process,) in rows_of(view, "process")}) == size


def test_calls_of_a_chunker_inside_one_task_overlap_as_often_as_asked(make: Maker, tmp_path: Path) -> None:
    view = created(make, make.numbered(6).chunk(meeting_chunker(tmp_path, 3)))
    refreshed(view, concurrency=1, intra_applier_concurrency=3)
    assert {met for (met,) in rows_of(view, "met")} == {True}


def test_calls_for_a_column_inside_one_task_overlap_as_often_as_asked(make: Maker, tmp_path: Path) -> None:
    place = Meeting(str(tmp_path / "meeting"), 3)

    @tidemill.udf
    def met(id: int) -> bool:
        return place.attend()

    view = created(make, make.numbered(6).select("id", met=met))
    refreshed(view, concurrency=1, intra_applier_concurrency=3)
    assert by_id(view, "met") == dict.fromkeys(range(6), True)


class Held:
    """Looks like a chunker of Geneva's to whoever opens it."""

    batch = True

    def __init__(self, func: Any) -> None:
        self.func = func

    def __call__(self) -> None:
        raise AssertionError("nobody calls the holder")


class AtOnce(tidemill.UDF[[pa.Array, pa.Array], Any]):
    """A chunker of many rows at once, which only Geneva's clients can declare."""

    @property
    def function(self) -> Function:
        payload = base64.b64encode(pickle_callable(Held(self.__wrapped__), self.name)).decode()
        made = super().function
        envelope = json.dumps({"chunker_payload": payload}).encode()
        return geneva_function(made.name, made.kind, envelope, made.output)


def batched_chunker(calls: CallLog) -> Any:
    def whole(text: pa.Array, __source_row_id: pa.Array) -> pa.RecordBatch:
        calls.note(len(text))
        return pa.record_batch({"__source_row_id": __source_row_id, "word": text})

    @tidemill.chunker(output=pa.schema([("word", pa.string())]), name="whole")
    def declared(text: str) -> Iterator[Any]:
        yield text

    return AtOnce(whole, declared.signature)


def batched_column(calls: CallLog) -> Any:
    @tidemill.udf(output=pa.int64())
    def same(id: pa.Array) -> pa.Array:
        calls.note(len(id))
        return id

    return same


@pytest.mark.parametrize("kind", ["query", "chunker"])
def test_a_function_gets_no_more_rows_at_once_than_a_task_of_the_source_has(
    make: Maker, calls: CallLog, kind: str
) -> None:
    source = make.numbered(23, 4)
    view = created(
        make,
        source.select("id", same=batched_column(calls))
        if kind == "query"
        else source.select("id").chunk(batched_chunker(calls)),
    )
    refreshed(view, source_task_size=10)
    assert calls.take() == ["10", "10", "3", "4"]
    assert [number for (number,) in rows_of(view, "id")] == sorted(range(27), key=lambda n: repr((n,)))
    source.to_lance().update({"text": "'changed'", "id": "id + 1000"}, where="id < 12")
    refreshed(view, source_task_size=5)
    assert calls.take() == ["2", "5", "5"]


def test_the_task_size_cuts_a_fragment_for_several_processes(make: Maker, tmp_path: Path) -> None:
    view = created(make, make.numbered(8).chunk(meeting_chunker(tmp_path, 2)))
    refreshed(view, source_task_size=4, concurrency=2)
    assert {met for (met,) in rows_of(view, "met")} == {True}


def test_a_refresh_runs_on_the_cluster_it_names(make: Maker) -> None:
    view = created(make, make.numbered(1).select("id"))
    assert refreshed(view, cluster="default").cluster == "default"


def test_an_unknown_cluster_is_refused_with_those_there_are(make: Maker) -> None:
    view = created(make, make.numbered(1).select("id"))
    for asked in (view.refresh, view.explain):
        with pytest.raises(InvalidRequest, match=r"cluster.*'tpu'; configured are: default"):
            asked(cluster="tpu")


def first_words(view: tidemill.View) -> list[str]:
    return [word for _, _, word in rows_of(view, "__source_row_id", "__child_index", "word")]


WORDY = texts("", "a b", "", "c d e", "", "f", "")
WORDS = ["a", "b", "c", "d", "e", "f"]


def test_a_chunker_shows_the_first_rows_by_source_row_whatever_was_shown_before(
    make: Maker, calls: CallLog
) -> None:
    view = CHUNKER.create(make, make.table(WORDY[:3], WORDY[3:]), calls)
    for limit in (3, 2, 5, 0, 4, 4, 99, 1):
        refreshed(view, output_limit=limit)
        assert first_words(view) == WORDS[:limit]
    refreshed(view)
    assert first_words(view) == WORDS
    assert verified(view).is_same


def test_a_limit_that_is_lifted_calls_nothing_for_what_was_shown(make: Maker, calls: CallLog) -> None:
    view = CHUNKER.create(make, make.table(WORDY), calls)
    refreshed(view, output_limit=2)
    calls.take()
    refreshed(view, output_limit=2)
    assert calls.take() == []
    refreshed(view)
    assert "a b" not in calls.take()
    refreshed(view, output_limit=3)
    refreshed(view, output_limit=2)
    assert calls.take() == []


def test_only_rows_within_reach_of_the_limit_are_called_for(make: Maker, calls: CallLog) -> None:
    view = CHUNKER.create(make, make.numbered(300), calls)
    refreshed(view, output_limit=10)
    assert {f"text {number}" for number in range(5)} <= set(calls.lines())
    assert calls.count() <= 64
    calls.take()
    refreshed(view, output_limit=6)
    assert calls.take() == []


def test_changes_of_a_source_reach_a_view_with_a_limit(make: Maker, calls: CallLog) -> None:
    source = make.table(WORDY)
    view = CHUNKER.create(make, source, calls)
    refreshed(view, output_limit=4)
    source.to_lance().update({"text": "'x'"}, where="id = 1")
    refreshed(view, output_limit=4)
    assert sorted(first_words(view)) == ["c", "d", "e", "x"]
    source.to_lance().delete("id = 3")
    refreshed(view, output_limit=4)
    assert sorted(first_words(view)) == ["f", "x"]
    refreshed(view)
    assert sorted(first_words(view)) == ["f", "x"]


@pytest.mark.parametrize("kind", [QUERY, UDTF, SQL], ids=named)
def test_a_limit_is_refused_for_views_that_are_not_made_by_a_chunker(
    make: Maker, calls: CallLog, kind: Kind
) -> None:
    view = kind.create(make, make.table(TEXTS), calls)
    for asked in (view.refresh, view.explain):
        with pytest.raises(InvalidRequest, match=r"output_limit.*chunker"):
            asked(output_limit=3)


@tidemill.chunker
def greeted(id: int) -> Iterator[Answer]:
    import os

    yield Answer(os.environ.get("GREETING"))


@tidemill.udtf
def greeted_all(source: Any) -> Iterator[Answer]:
    import os

    yield Answer(os.environ.get("GREETING"))


INLINE = json.dumps({"env_vars": {"GREETING": "good tide"}})
OWN = tidemill.Manifest(env={"GREETING": "ahoy"})


@pytest.mark.parametrize("kind", ["chunker", "udtf", "partitions"])
def test_a_manifest_is_for_one_refresh_and_the_views_own_for_all_others(make: Maker, kind: str) -> None:
    source = make.table(TEXTS[:1])
    definition = {
        "chunker": source.chunk(greeted),
        "udtf": greeted_all.over(source),
        "partitions": greeted_all.over(source, partition_by="place"),
    }[kind]
    view = created(make, definition, manifest=OWN)
    said = []
    for manifest in (None, INLINE, None):
        refreshed(view, full=True, manifest=manifest)
        said += rows_of(view, "answer")
    assert said == [("ahoy",), ("good tide",), ("ahoy",)]


def test_a_manifest_is_for_function_columns_too(make: Maker) -> None:
    @tidemill.udf
    def greeting(id: int) -> str | None:
        import os

        return os.environ.get("GREETING")

    view = created(make, make.numbered(1).select("id", greeting=greeting))
    refreshed(view, manifest=INLINE)
    assert by_id(view, "greeting") == {0: "good tide"}
    refreshed(view, full=True)
    assert by_id(view, "greeting") == {0: None}


def test_a_manifest_that_is_not_there_is_refused(make: Maker) -> None:
    view = created(make, make.numbered(1).chunk(greeted))
    with pytest.raises(InvalidRequest, match="manifest"):
        view.refresh(manifest="nowhere")


def lose_track(view: tidemill.View) -> None:
    """Somebody changes the view, and it cannot be told any more how it was before."""
    handle = view.to_lance()
    first = handle.scanner(columns=[], with_row_id=True, limit=1).to_table()["_rowid"][0].as_py()
    handle.delete(f"_rowid = {first}")
    view.to_lance().cleanup_old_versions(timedelta(0))


@every_kind
@pytest.mark.parametrize("place", ["view", "call"])
def test_incrementally_or_not_at_all(kind: Kind, place: str, make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS)
    view = kind.create(make, source, calls, policy="incremental" if place == "view" else "auto")
    asked: dict[str, Any] = {} if place == "view" else {"policy": "incremental"}
    refreshed(view, **asked)
    change(source)
    assert result_of(view, **asked)["mode"] == "incremental"
    lose_track(view)
    before, version = kind.shown(view), view.version
    calls.take()
    [conflict] = view.explain(**asked).conflicts
    with pytest.raises(tidemill.JobFailed, match="cannot be refreshed incrementally") as failed:
        refreshed(view, **asked)
    assert conflict in str(failed.value)
    assert (kind.shown(view), view.version, calls.take()) == (before, version, [])
    assert result_of(view, policy="auto")["mode"] == "full"
    assert kind.is_right(view, texts_of(source))


def test_a_view_may_always_be_made_as_a_whole(make: Maker, calls: CallLog) -> None:
    view = CHUNKER.create(make, make.table(TEXTS), calls, policy="full")
    refreshed(view)
    version = view.version
    calls.take()
    assert result_of(view)["mode"] == "full"
    assert (calls.take(), view.version) == (sorted(row["text"] for row in TEXTS), version)
    assert result_of(view, policy="auto")["mode"] == "no_op"
    assert calls.take() == []


def test_everything_is_made_anew_where_that_is_asked_for(make: Maker, calls: CallLog) -> None:
    view = CHUNKER.create(make, make.table(TEXTS), calls)
    refreshed(view)
    calls.take()
    for asked in ({"full": True}, {"policy": "full"}):
        assert result_of(view, **asked)["mode"] == "full"
        assert len(calls.take()) == len(TEXTS)
    with pytest.raises(InvalidRequest, match="full"):
        view.refresh(full=True, policy="incremental")


TUNING: dict[str, Any] = {"source_task_size": 1, "intra_applier_concurrency": 2, "concurrency": 2}


@every_kind
def test_tuning_leaves_the_rows_of_every_kind_of_view_as_they_are(
    kind: Kind, make: Maker, calls: CallLog
) -> None:
    """Clients send the same tuning to all of them; where it cannot act it is a hint."""
    source = make.table(TEXTS)
    view = kind.create(make, source, calls)
    assert view.explain(**TUNING).mode == "full"
    refreshed(view, **TUNING, manifest=INLINE, on_error="skip")
    assert kind.is_right(view, texts_of(source))


def test_tuning_is_a_hint_for_a_function_that_gets_the_whole_source(make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS)
    view = created(make, adder(calls).over(source))
    refreshed(view, **TUNING)
    assert UDTF.is_right(view, texts_of(source))
    assert calls.take() == ["north+south"]


@pytest.mark.parametrize("kind", [UDTF, SQL], ids=named)
@pytest.mark.parametrize(
    "options",
    [
        {"source_task_size": 0},
        {"source_task_size": "many"},
        {"intra_applier_concurrency": 257},
        {"intra_applier_concurrency": 1.5},
    ],
    ids=str,
)
def test_nonsense_is_no_hint(
    server: RunningServer, make: Maker, calls: CallLog, kind: Kind, options: dict[str, Any]
) -> None:
    view = kind.create(make, make.table(TEXTS), calls)
    path = f"{server.url}/v1/materialized_view/{'$'.join(view.levels)}/refresh"
    refused = httpx.post(path, json=options)
    assert refused.status_code == 400
    assert refused.json()["error"].startswith(f"{next(iter(options))}: ")


@pytest.mark.parametrize("kind", ["query", "sql"])
@pytest.mark.parametrize("size", [1, 3])
def test_as_many_tasks_as_asked_write_a_view_without_a_function(make: Maker, kind: str, size: int) -> None:
    """Each task writes fragments of its own."""
    source = make.numbered(*[20] * 6)
    by_sql = f"SELECT id % 50 AS rest, count(*) AS n FROM {source.name} GROUP BY id % 50"
    view = created(make, by_sql if kind == "sql" else source.select("id"))
    refreshed(view, concurrency=size)
    assert len(view.to_lance().get_fragments()) == size
