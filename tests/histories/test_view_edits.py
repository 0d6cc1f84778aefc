"""Others change rows of a view by hand; the next refresh repairs exactly those."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, chunker_function, column_function, succeeded
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.views import SourceQuery, ViewKind
from tidemill.jobs.service.status import ViewStatus
from tidemill.jobs.service.views import FunctionColumn, ViewDefinition

CALLS: list[str] = []


def loud(text: str) -> str:
    CALLS.append(text)
    return text.upper()


def split(text: str) -> Iterator[tuple[str]]:
    CALLS.append(text)
    for word in text.split():
        yield (word,)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def source(engine: Engine) -> TableIdent:
    return engine.create_table("s", pa.table({"id": [1, 2, 3], "text": ["a b", "c d", "e f"]}))


@pytest.fixture
def query_view(engine: Engine, source: TableIdent) -> TableIdent:
    function = column_function(loud, pa.string(), "text", kind=FunctionKind.SCALAR)
    query = SourceQuery(source.levels, {"id": "id", "text": "text"})
    column = FunctionColumn("loud", 2, function, ("text",))
    view = engine.define_view("v", ViewDefinition(ViewKind.QUERY, query, "{}", None, columns=(column,)))
    succeeded(engine.refresh(view))
    CALLS.clear()
    return view


@pytest.fixture
def chunks(engine: Engine, source: TableIdent) -> TableIdent:
    function = chunker_function(split, pa.schema([pa.field("word", pa.string())]), "text")
    view = engine.create_view("c", source, function, columns={"id": "id"})
    succeeded(engine.refresh(view))
    CALLS.clear()
    return view


def status(engine: Engine, view: TableIdent) -> ViewStatus:
    return engine.operations.view_status.status(LOCAL_CALLER, view)


def shown(engine: Engine, view: TableIdent, *columns: str) -> list[tuple[object, ...]]:
    rows = engine.rows(view).to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in rows)


def test_a_changed_row_is_seen_and_repaired(engine: Engine, query_view: TableIdent) -> None:
    engine.open(query_view).update({"loud": "'wrong'"}, where="id = 2")
    found = status(engine, query_view)
    assert not found.is_fresh
    assert "others changed the view" in found.reason
    assert succeeded(engine.refresh(query_view))["mode"] == "incremental"
    assert CALLS == ["c d"]
    assert shown(engine, query_view, "id", "loud") == [(1, "A B"), (2, "C D"), (3, "E F")]
    assert status(engine, query_view).is_fresh


def test_a_deleted_row_comes_back(engine: Engine, query_view: TableIdent) -> None:
    engine.open(query_view).delete("id = 3")
    assert not status(engine, query_view).is_fresh
    succeeded(engine.refresh(query_view))
    assert CALLS == ["e f"]
    assert shown(engine, query_view, "id", "loud") == [(1, "A B"), (2, "C D"), (3, "E F")]


def test_an_added_row_goes(engine: Engine, query_view: TableIdent) -> None:
    rows = engine.rows(query_view)
    engine.open(query_view).insert(rows.slice(0, 1))
    engine.open(query_view).insert(rows.slice(0, 1).set_column(0, rows.schema.field(0), [pa.array([99])]))
    succeeded(engine.refresh(query_view))
    assert shown(engine, query_view, "id", "loud") == [(1, "A B"), (2, "C D"), (3, "E F")]


def test_columns_of_users_stay_theirs(engine: Engine, query_view: TableIdent) -> None:
    engine.open(query_view).add_columns({"label": "concat('l', CAST(id AS STRING))"})
    assert status(engine, query_view).is_fresh
    engine.open(query_view).update({"label": "'mine'"}, where="id = 1")
    assert status(engine, query_view).is_fresh
    engine.open(query_view).update({"text": "'wrong'"}, where="id = 1")
    assert not status(engine, query_view).is_fresh
    succeeded(engine.refresh(query_view))
    assert shown(engine, query_view, "id", "text", "label") == [
        (1, "a b", "mine"),
        (2, "c d", "l2"),
        (3, "e f", "l3"),
    ]


def test_children_that_were_edited_are_repaired(engine: Engine, chunks: TableIdent) -> None:
    engine.open(chunks).delete("word = 'a'")
    engine.open(chunks).update({"word": "'x'"}, where="word = 'd'")
    assert not status(engine, chunks).is_fresh
    succeeded(engine.refresh(chunks))
    assert sorted(CALLS) == ["a b", "c d"]
    assert shown(engine, chunks, "id", "word") == [
        (1, "a"),
        (1, "b"),
        (2, "c"),
        (2, "d"),
        (3, "e"),
        (3, "f"),
    ]


def test_an_edit_is_repaired_after_a_clean_up_of_the_view(engine: Engine, query_view: TableIdent) -> None:
    engine.open(query_view).update({"loud": "'wrong'"}, where="id = 2")
    engine.open(query_view).cleanup_old_versions(timedelta(0))
    assert not status(engine, query_view).is_fresh
    succeeded(engine.refresh(query_view))
    assert CALLS == ["c d"]
    assert shown(engine, query_view, "id", "loud") == [(1, "A B"), (2, "C D"), (3, "E F")]
    assert status(engine, query_view).is_fresh


def test_an_edit_during_a_refresh_is_repaired(
    engine: Engine, source: TableIdent, query_view: TableIdent
) -> None:
    engine.open(source).update({"text": "'new'"}, where="id = 1")
    engine.publisher.before_next = lambda: engine.open(query_view).update({"loud": "'w'"}, where="id = 3")
    succeeded(engine.refresh(query_view))
    assert shown(engine, query_view, "id", "loud") == [(1, "NEW"), (2, "C D"), (3, "E F")]


def test_a_restored_view_is_brought_up_to_date(
    engine: Engine, source: TableIdent, query_view: TableIdent
) -> None:
    version = engine.open(query_view).version
    engine.open(source).update({"text": "'new'"}, where="id = 1")
    succeeded(engine.refresh(query_view))
    CALLS.clear()
    old = engine.open(query_view).checkout_version(version)
    old.restore()
    assert not status(engine, query_view).is_fresh
    succeeded(engine.refresh(query_view))
    assert CALLS == ["new"]
    assert shown(engine, query_view, "id", "loud") == [(1, "NEW"), (2, "C D"), (3, "E F")]
