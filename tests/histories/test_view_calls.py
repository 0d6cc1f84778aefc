"""How often the functions of views are called: for what they read, once, whatever is killed on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine import Crash, Engine, Moment, chunker_function, column_function, succeeded, table_function
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import Function, FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.columns import BatchPolicy
from tidemill.jobs.model.failures import ErrorAction, ErrorPolicy
from tidemill.jobs.model.jobs import Job, JobState
from tidemill.jobs.model.options import RefreshRequest
from tidemill.jobs.model.views import RefreshPolicy, SourceQuery, ViewKind, function_subject
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition
from tidemill.spark.views import partitions

CALLS: list[Any] = []
# The calls that a process dies in, or that raise, counted from 1; each happens once.
DEADLY: list[int] = []
# Texts that a function fails on.
BAD: set[str] = set()
SKIP = ErrorPolicy(ErrorAction.SKIP)
WORDS = pa.schema([pa.field("word", pa.string())])


def note(what: Any) -> None:
    CALLS.append(what)
    if len(CALLS) in DEADLY:
        DEADLY.remove(len(CALLS))
        raise Crash
    if what in BAD:
        raise ValueError("bad")


def loud(text: str) -> str:
    note(text)
    return text.upper()


def slow(text: str) -> str:
    note(text)
    time.sleep(0.01)
    return text.upper()


def parity(number: int) -> int:
    note(number)
    return number % 2


def words(text: str) -> Iterator[tuple[str]]:
    note(text)
    for word in text.split():
        yield (word,)


def slow_words(text: str) -> Iterator[tuple[str]]:
    time.sleep(0.01)
    yield from words(text)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    CALLS.clear()
    DEADLY.clear()
    BAD.clear()
    engine = Engine(tmp_path)
    yield engine
    engine.close()


def source_of(engine: Engine, rows: int = 20) -> TableIdent:
    table = pa.table(
        {
            "id": list(range(rows)),
            "text": [f"text {number}" for number in range(rows)],
            "number": list(range(rows)),
            "grp": [number % 4 for number in range(rows)],
            "note": ["" for _ in range(rows)],
        }
    )
    return engine.create_table("source", table)


def query_view(engine: Engine, source: TableIdent, text_function: Callable[..., Any] = loud) -> TableIdent:
    scalar = FunctionKind.SCALAR
    first = column_function(text_function, pa.string(), "text", kind=scalar)
    second = column_function(parity, pa.int64(), "number", kind=scalar, digest="2")
    columns = (FunctionColumn("loud", 1, first, ("text",)), FunctionColumn("parity", 2, second, ("number",)))
    query = SourceQuery(source.levels, {"id": "id", "note": "note"})
    return engine.define_view("view", ViewDefinition(ViewKind.QUERY, query, "{}", None, columns=columns))


def one_function_view(engine: Engine, source: TableIdent, function: Callable[..., Any]) -> TableIdent:
    made = column_function(function, pa.string(), "text", kind=FunctionKind.SCALAR)
    query = SourceQuery(source.levels, {"id": "id", "note": "note"})
    column = FunctionColumn("loud", 1, made, ("text",))
    return engine.define_view("view", ViewDefinition(ViewKind.QUERY, query, "{}", None, columns=(column,)))


def chunk_view(engine: Engine, source: TableIdent, function: Callable[..., Any] = words) -> TableIdent:
    made: Function = chunker_function(function, WORDS, "text")
    return engine.create_view("view", source, made, columns={"id": "id", "note": "note"})


def totals(source: Any) -> Iterator[pa.RecordBatch]:
    """One row for the partition; reads all of it."""
    texts = source.to_arrow()["text"].to_pylist()
    note(min(texts))
    yield pa.record_batch({"rows": [len(texts)], "first": [min(texts)]})


def totals_of_some(source: Any) -> Iterator[pa.RecordBatch]:
    """Reads less than it is given, and in another way."""
    texts = source.select(["text"]).where("text <> 'no such'").to_arrow()["text"].to_pylist()
    note(min(texts))
    yield pa.record_batch({"rows": [len(texts)], "first": [min(texts)]})


def row_numbers(source: Any) -> Iterator[pa.RecordBatch]:
    rows = source.with_row_id().to_arrow()
    note(min(rows["text"].to_pylist()))
    yield pa.record_batch(
        {"rows": rows["_rowid"].to_numpy().astype("int64"), "first": rows["text"].to_pylist()}
    )


def many(source: Any) -> Iterator[pa.RecordBatch]:
    """Several batches."""
    for text in sorted(source.to_arrow()["text"].to_pylist()):
        yield pa.record_batch({"rows": [len(text)], "first": [text]})
    note("done")


TOTALS = pa.schema([pa.field("rows", pa.int64()), pa.field("first", pa.string())])


def table_view(
    engine: Engine,
    source: TableIdent,
    function: Callable[..., Any] = totals,
    *,
    partition_by: str | None = "grp",
    where: str | None = None,
) -> TableIdent:
    definition = ViewDefinition(
        ViewKind.UDTF,
        SourceQuery(source.levels, None, where),
        "{}",
        None,
        table_function(function, TOTALS, digest=function.__name__.encode().hex()),
        ("text",),
        partition_by=partition_by,
    )
    return engine.define_view("view", definition)


def calls_of(action: Callable[[], object]) -> list[Any]:
    CALLS.clear()
    action()
    return sorted(CALLS, key=repr)


def refreshed(engine: Engine, view: TableIdent, **request: Any) -> dict[str, Any]:
    return succeeded(engine.refresh(view, **request))


def updated(engine: Engine, table: TableIdent, column: str, expression: str, where: str) -> None:
    engine.open(table).update({column: expression}, where=where)


def forget_past(engine: Engine, table: TableIdent) -> None:
    """All rows are written again as they are, and it cannot be told any more what they were before."""
    engine.open(table).update({"note": "note"})
    engine.open(table).cleanup_old_versions(timedelta(0))


def killed_and_finished(engine: Engine, view: TableIdent, **request: Any) -> Job:
    """Runs a refresh whose worker dies wherever a call is deadly; each time another worker takes over."""
    asked = RefreshRequest(**request)
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, asked, None)
    deaths = 0
    while (claimed := engine.worker.claim()) is not None:
        try:
            engine.worker.run(claimed)
        except Crash:
            deaths += 1
            engine.worker.release(claimed)
            engine.worker = engine.new_worker(f"successor {deaths}")
    ended = engine.operations.jobs.get(LOCAL_CALLER, job.job_id)
    assert ended.state is JobState.DONE, ended.failure
    assert not DEADLY
    return ended


def rows_by_id(engine: Engine, view: TableIdent) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = engine.rows(view).to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row.get("__child_index", 0)))


def rows_of(engine: Engine, view: TableIdent) -> list[dict[str, Any]]:
    return sorted(engine.rows(view).to_pylist(), key=repr)


def test_a_column_of_a_query_view_that_is_only_carried_costs_no_call(engine: Engine) -> None:
    source = source_of(engine)
    view = query_view(engine, source)
    assert len(calls_of(lambda: refreshed(engine, view))) == 40
    updated(engine, source, "note", "'seen'", "id < 5")
    CALLS.clear()
    result = refreshed(engine, view)
    assert CALLS == []
    assert (result["rows_written"], result["rows_computed"], result["rows_reused"]) == (5, 0, 20)
    assert [row["note"] for row in rows_by_id(engine, view)][4:6] == ["seen", ""]
    assert [row["loud"] for row in rows_by_id(engine, view)][:2] == ["TEXT 0", "TEXT 1"]


def test_a_column_that_one_function_reads_costs_no_call_of_the_other(engine: Engine) -> None:
    source = source_of(engine)
    view = query_view(engine, source)
    refreshed(engine, view)
    updated(engine, source, "number", "number + 100", "id in (3, 4)")
    assert calls_of(lambda: refreshed(engine, view)) == [103, 104]
    updated(engine, source, "text", "'other'", "id = 3")
    assert calls_of(lambda: refreshed(engine, view)) == ["other"]
    assert rows_by_id(engine, view)[3]["loud"] == "OTHER"


def test_a_column_of_a_chunker_view_that_is_only_carried_costs_no_call(engine: Engine) -> None:
    source = source_of(engine)
    updated(engine, source, "text", "''", "id = 2")
    view = chunk_view(engine, source)
    assert len(calls_of(lambda: refreshed(engine, view))) == 20
    updated(engine, source, "note", "'seen'", "id < 5")
    CALLS.clear()
    result = refreshed(engine, view)
    assert CALLS == []
    assert (result["rows_written"], result["rows_computed"]) == (8, 0)
    found = [(row["id"], row["word"], row["note"]) for row in rows_by_id(engine, view)]
    assert found[:5] == [
        (0, "text", "seen"),
        (0, "0", "seen"),
        (1, "text", "seen"),
        (1, "1", "seen"),
        (3, "text", "seen"),
    ]


@pytest.mark.parametrize("make_view", [query_view, chunk_view], ids=["query", "chunker"])
def test_a_value_that_somebody_wrote_into_the_view_is_computed_again(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine)
    view = make_view(engine, source)
    refreshed(engine, view)
    expected = rows_by_id(engine, view)
    column = "loud" if make_view is query_view else "word"
    updated(engine, view, column, "'wrong'", "id in (1, 2)")
    updated(engine, source, "note", "'seen'", "id < 5")
    assert calls_of(lambda: refreshed(engine, view)) == ["text 1", "text 2"]
    updated(engine, source, "note", "''", "id < 5")
    assert calls_of(lambda: refreshed(engine, view)) == []
    assert rows_by_id(engine, view) == expected


@pytest.mark.parametrize("make_view", [query_view, chunk_view], ids=["query", "chunker"])
def test_changes_that_cannot_be_told_cost_no_call_and_a_full_refresh_that_is_asked_for_costs_all(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine)
    view = make_view(engine, source)
    everything = calls_of(lambda: refreshed(engine, view))
    updated(engine, source, "note", "'seen'", "id < 5")
    forget_past(engine, source)
    updated(engine, source, "text", "'new'", "id = 7")
    assert calls_of(lambda: refreshed(engine, view)) == ["new"]
    assert len(calls_of(lambda: refreshed(engine, view, policy=RefreshPolicy.FULL))) == len(everything)


def test_a_view_that_was_dropped_leaves_no_record_of_its_functions(engine: Engine) -> None:
    source = source_of(engine)
    view = query_view(engine, source)
    refreshed(engine, view)
    with engine.lake.store.transaction() as tx:
        view_id = tx.tables.get(view).table_id
    subjects = [function_subject(view_id, name) for name in ("loud", "parity")]
    with engine.lake.store.transaction() as tx:
        assert all(tx.coverage.list_of(subject) for subject in subjects)
    engine.operations.tables.drop(LOCAL_CALLER, view)
    with engine.lake.store.transaction() as tx:
        assert not any(tx.coverage.list_of(subject) for subject in subjects)


def test_a_row_on_which_a_function_failed_is_tried_again_when_it_changes(engine: Engine) -> None:
    source = source_of(engine)
    view = one_function_view(engine, source, loud)
    BAD.add("text 3")
    refreshed(engine, view, on_error=SKIP)
    BAD.clear()
    updated(engine, source, "note", "'seen'", "id < 5")
    assert calls_of(lambda: refreshed(engine, view)) == ["text 3"]
    assert rows_by_id(engine, view)[3]["loud"] == "TEXT 3"


ROWS = 200
SLOW_VIEWS: list[Any] = [
    pytest.param(lambda engine, source: one_function_view(engine, source, slow), id="query"),
    pytest.param(lambda engine, source: chunk_view(engine, source, slow_words), id="chunker"),
]
# A checkpoint is due after half a second in the function; a batch takes a quarter of one, the first 64 rows.
LOST = 64 + 50 + 25


@pytest.mark.parametrize("make_view", SLOW_VIEWS)
def test_a_worker_that_is_killed_costs_one_checkpoint(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine, ROWS)
    view = make_view(engine, source)
    DEADLY.append(150)
    job = killed_and_finished(engine, view)
    assert len(CALLS) <= ROWS + LOST
    assert set(CALLS) == {f"text {number}" for number in range(ROWS)}
    assert job.progress.computed == len(CALLS) - 150
    assert job.progress.computed + job.progress.reused == ROWS
    assert not engine.verify(view)["differences"]


@pytest.mark.parametrize("make_view", [query_view, chunk_view], ids=["query", "chunker"])
@pytest.mark.parametrize("moment", Moment)
def test_a_worker_that_dies_at_its_commit_costs_no_call(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent], moment: Moment
) -> None:
    source = source_of(engine)
    view = make_view(engine, source)
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
    succeeded(engine.crash_and_take_over(job, moment))
    assert len(CALLS) == (40 if make_view is query_view else 20)
    updated(engine, source, "note", "'seen'", "id < 5")
    assert calls_of(lambda: refreshed(engine, view)) == []


@pytest.mark.parametrize("make_view", [query_view, chunk_view], ids=["query", "chunker"])
def test_a_refresh_that_starts_again_because_its_view_was_written_costs_no_call(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine)
    view = make_view(engine, source)
    refreshed(engine, view)
    engine.open(view).add_columns(pa.field("label", pa.string()))
    updated(engine, source, "text", "concat(text, ' again')", "id < 5")
    engine.publisher.before_next = lambda: updated(engine, view, "label", "'mine'", "id < 5")
    assert len(calls_of(lambda: refreshed(engine, view))) == 5
    assert rows_by_id(engine, view)[0]["label"] == "mine"


@pytest.mark.parametrize("make_view", SLOW_VIEWS)
def test_what_a_failed_refresh_computed_is_used_by_the_next(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine, 100)
    view = make_view(engine, source)
    BAD.add("text 70")
    assert engine.refresh(view).state is JobState.FAILED
    BAD.clear()
    assert len(CALLS) == 71
    refreshed(engine, view)
    # The batch that failed has no results; the one before it has.
    assert len(CALLS) == 71 + 100 - 64


@pytest.mark.parametrize("make_view", SLOW_VIEWS)
def test_a_checkpoint_of_other_inputs_is_not_used(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine)
    view = make_view(engine, source)
    engine.publisher.before_next = lambda: updated(engine, source, "text", "'changed'", "id = 3")
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
    succeeded(engine.crash_and_take_over(job, Moment.BEFORE))
    assert len(CALLS) == 21
    assert CALLS[-1] == "changed"
    assert engine.verify(view)["is_same"]


def test_skipped_rows_are_reused_only_by_a_job_that_skips(engine: Engine) -> None:
    source = source_of(engine)
    view = one_function_view(engine, source, slow)
    BAD.add("text 3")
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(on_error=SKIP), None)
    ended = engine.crash_and_take_over(job, Moment.BEFORE)
    assert succeeded(ended)["rows_skipped"] == 1
    assert len(CALLS) == 20


def test_nothing_is_left_of_a_refresh_but_fingerprints(engine: Engine) -> None:
    source = source_of(engine)
    view = query_view(engine, source)
    for number in range(20):
        updated(engine, source, "text", f"'text {number}'", "id = 3")
        refreshed(engine, view)
    files = [path for path in Path(engine.settings.job_files).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".fingerprints"}
    # Those of both functions: few files, although there were many refreshes.
    assert len(files) <= 2 * 17


@pytest.mark.parametrize("partition_by", ["grp", None])
def test_a_column_that_a_table_function_does_not_read_touches_nothing(
    engine: Engine, partition_by: str | None
) -> None:
    source = source_of(engine)
    view = table_view(engine, source, partition_by=partition_by)
    refreshed(engine, view)
    updated(engine, source, "note", "'seen'", "id < 5")
    CALLS.clear()
    assert refreshed(engine, view)["mode"] == "no_op"
    assert CALLS == []
    updated(engine, source, "text", "'a'", "id = 3")
    assert len(calls_of(lambda: refreshed(engine, view))) == 1


def test_a_column_of_the_filter_that_lets_the_same_rows_pass_costs_no_call(engine: Engine) -> None:
    source = source_of(engine)
    view = table_view(engine, source, where="number >= 0")
    refreshed(engine, view)
    updated(engine, source, "number", "number + 1", "id < 5")
    CALLS.clear()
    result = refreshed(engine, view)
    assert CALLS == []
    assert (result["rows_written"], result["rows_computed"]) == (0, 0)


@pytest.mark.parametrize("function", [totals, totals_of_some, row_numbers])
@pytest.mark.parametrize("partition_by", ["grp", None])
def test_changes_that_cannot_be_told_cost_calls_for_other_partitions_only(
    engine: Engine, partition_by: str | None, function: Callable[..., Any]
) -> None:
    source = source_of(engine)
    view = table_view(engine, source, function, partition_by=partition_by)
    refreshed(engine, view)
    before = rows_of(engine, view)
    forget_past(engine, source)
    CALLS.clear()
    result = refreshed(engine, view)
    assert (result["rows_computed"], CALLS) == (0, [])
    assert rows_of(engine, view) == before
    forget_past(engine, source)
    updated(engine, source, "text", "'a'", "id = 3")
    assert calls_of(lambda: refreshed(engine, view)) == ["a"]
    assert engine.verify(view)["is_same"]
    assert len(calls_of(lambda: refreshed(engine, view, policy=RefreshPolicy.FULL))) == (
        4 if partition_by else 1
    )


@pytest.mark.parametrize("make_view", [query_view, chunk_view], ids=["query", "chunker"])
def test_rows_that_an_overwrite_gave_other_ids_keep_their_results(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent]
) -> None:
    source = source_of(engine)
    # A row that yields no chunk, and one that others have changed in the view: its results are not used.
    updated(engine, source, "text", "''", "id = 2")
    view = make_view(engine, source)
    refreshed(engine, view)
    before = rows_by_id(engine, view)
    column = "loud" if "loud" in before[0] else "word"
    updated(engine, view, column, "'wrong'", "id = 5")
    rows = engine.rows(source)
    engine.open(source).insert(pa.concat_tables([rows.slice(7), rows.slice(0, 7)]), mode="overwrite")
    CALLS.clear()
    result = refreshed(engine, view)
    assert CALLS == ["text 5"]
    assert result["rows_reused"] == 19
    shown = [{**row, "__source_row_id": None} for row in rows_by_id(engine, view)]
    assert shown == [{**row, "__source_row_id": None} for row in before]
    engine.open(source).insert(rows, mode="overwrite")
    assert calls_of(lambda: refreshed(engine, view)) == []
    assert engine.verify(view)["is_same"]


def test_a_row_deleted_and_inserted_again_keeps_its_results(engine: Engine) -> None:
    source = source_of(engine)
    view = query_view(engine, source)
    refreshed(engine, view)
    row = engine.rows(source).slice(3, 1)
    engine.open(source).delete("id = 3")
    engine.append(source, pa.concat_tables([row, row]))
    assert calls_of(lambda: refreshed(engine, view)) == []
    assert engine.verify(view)["is_same"]


def test_an_overwritten_source_whose_earlier_version_is_gone_calls_for_all(engine: Engine) -> None:
    source = source_of(engine)
    view = chunk_view(engine, source)
    refreshed(engine, view)
    engine.open(source).insert(engine.rows(source), mode="overwrite")
    engine.open(source).cleanup_old_versions(timedelta(0))
    assert len(calls_of(lambda: refreshed(engine, view))) == 20
    assert engine.verify(view)["is_same"]


def test_the_same_rows_under_other_ids_cost_no_call_unless_the_function_reads_ids(engine: Engine) -> None:
    source = source_of(engine)
    view = table_view(engine, source)
    refreshed(engine, view)
    engine.open(source).insert(engine.rows(source), mode="overwrite")
    assert calls_of(lambda: refreshed(engine, view)) == []
    engine.operations.tables.drop(LOCAL_CALLER, view)
    view = table_view(engine, source, row_numbers)
    refreshed(engine, view)
    engine.open(source).insert(engine.rows(source), mode="overwrite")
    assert len(calls_of(lambda: refreshed(engine, view))) == 4
    assert engine.verify(view)["is_same"]


def test_rows_of_a_partition_that_somebody_changed_are_made_again(engine: Engine) -> None:
    source = source_of(engine)
    view = table_view(engine, source)
    refreshed(engine, view)
    before = rows_of(engine, view)
    updated(engine, view, "rows", "7", "first = 'text 0'")
    forget_past(engine, source)
    assert calls_of(lambda: refreshed(engine, view)) == ["text 0"]
    assert rows_of(engine, view) == before


@pytest.mark.parametrize("partition_by", ["grp", None])
def test_a_table_function_whose_worker_dies_is_called_for_the_rest_only(
    engine: Engine, partition_by: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A checkpoint after every call.
    monkeypatch.setattr(BatchPolicy, "is_due", lambda *_: True)
    source = source_of(engine)
    view = table_view(engine, source, partition_by=partition_by)
    if partition_by is not None:
        DEADLY.append(3)
        killed_and_finished(engine, view)
        assert len(CALLS) == 5
    else:
        job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
        succeeded(engine.crash_and_take_over(job, Moment.BEFORE))
        assert len(CALLS) == 1
    assert engine.verify(view)["is_same"]


def test_a_table_function_whose_worker_dies_at_its_commit_is_not_called_again(engine: Engine) -> None:
    source = source_of(engine)
    view = table_view(engine, source)
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
    ended = engine.crash_and_take_over(job, Moment.BEFORE)
    assert (succeeded(ended)["rows_computed"], len(CALLS)) == (0, 4)
    forget_past(engine, source)
    assert calls_of(lambda: refreshed(engine, view)) == []


def test_a_partition_that_was_skipped_is_skipped_again_only_by_the_same_job(engine: Engine) -> None:
    source = source_of(engine)
    view = table_view(engine, source)
    BAD.add("text 1")
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(on_error=SKIP), None)
    ended = engine.crash_and_take_over(job, Moment.BEFORE)
    assert (succeeded(ended)["rows_skipped"], len(CALLS)) == (1, 4)
    BAD.clear()
    forget_past(engine, source)
    assert calls_of(lambda: refreshed(engine, view)) == ["text 1"]
    assert engine.verify(view)["is_same"]


def test_a_result_that_does_not_fit_into_memory_is_checkpointed_in_parts(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_UNSAVED_BYTES", 40)
    source = source_of(engine)
    view = table_view(engine, source, many)
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
    succeeded(engine.crash_and_take_over(job, Moment.BEFORE))
    assert CALLS == ["done"] * 4
    assert engine.verify(view)["is_same"]
    assert not list(Path(engine.settings.job_files).rglob("*.tmp"))


@pytest.mark.parametrize("limit", [1, 5, 40, 130, 399])
def test_a_limit_costs_calls_for_the_rows_it_shows(engine: Engine, limit: int) -> None:
    """Every source row yields two rows, which is known after the first few calls."""
    source = source_of(engine, ROWS)
    view = chunk_view(engine, source)
    result = refreshed(engine, view, output_limit=limit)
    shown = -(-limit // 2)
    assert shown <= len(CALLS) <= max(shown, min(limit, 8))
    assert len(set(CALLS)) == len(CALLS) == result["rows_computed"]
    assert engine.open(view).count_rows() == limit
    refreshed(engine, view, output_limit=limit)
    refreshed(engine, view)
    assert sorted(CALLS) == sorted(f"text {number}" for number in range(ROWS))
    assert engine.verify(view)["is_same"]


def test_a_limit_that_is_raised_step_by_step_calls_the_function_once_for_each_row(engine: Engine) -> None:
    source = source_of(engine, ROWS)
    updated(engine, source, "text", "''", "id % 3 = 0")
    view = chunk_view(engine, source)
    for limit in (3, 4, 50, 51, 200):
        refreshed(engine, view, output_limit=limit)
        assert engine.open(view).count_rows() == limit
    refreshed(engine, view)
    assert sorted(text for text in CALLS if text) == sorted(f"text {n}" for n in range(ROWS) if n % 3)
    assert engine.verify(view)["is_same"]


def test_rows_that_yield_nothing_are_passed_over_in_growing_batches(engine: Engine) -> None:
    source = source_of(engine, ROWS)
    updated(engine, source, "text", "concat('', '')", "id < 100")
    view = chunk_view(engine, source)
    refreshed(engine, view, output_limit=2)
    # 2, 2, 4, 8, 16, 32, 64 rows at a time.
    assert len(CALLS) <= 128
    assert [row["id"] for row in rows_by_id(engine, view)] == [100, 100]


def test_a_limited_refresh_whose_worker_dies_costs_no_call_twice(engine: Engine) -> None:
    source = source_of(engine, ROWS)
    view = chunk_view(engine, source)
    asked = RefreshRequest(output_limit=30)
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, asked, None)
    succeeded(engine.crash_and_take_over(job, Moment.BEFORE))
    assert len(set(CALLS)) == len(CALLS)
    assert engine.open(view).count_rows() == 30


@pytest.mark.parametrize(
    ("make_view", "calls"),
    [(query_view, 40), (chunk_view, 20), (table_view, 4)],
    ids=["query", "chunker", "table function"],
)
def test_a_full_refresh_uses_its_own_checkpoints_and_no_others(
    engine: Engine, make_view: Callable[[Engine, TableIdent], TableIdent], calls: int
) -> None:
    source = source_of(engine)
    view = make_view(engine, source)
    # A job that is cancelled after its worker died leaves checkpoints.
    left = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, RefreshRequest(), None)
    engine.publisher.dies = Moment.BEFORE
    with pytest.raises(Crash):
        engine.run(left)
    engine.worker.release(engine.operations.jobs.get(LOCAL_CALLER, left.job_id))
    engine.operations.jobs.cancel(LOCAL_CALLER, left.job_id)
    assert engine.run(left).state is JobState.CANCELLED
    CALLS.clear()
    asked = RefreshRequest(policy=RefreshPolicy.FULL)
    job = engine.operations.jobs.submit_refresh(LOCAL_CALLER, view, asked, None)
    succeeded(engine.crash_and_take_over(job, Moment.BEFORE))
    assert len(CALLS) == calls
