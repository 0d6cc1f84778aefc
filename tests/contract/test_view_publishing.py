"""How a refresh is published: what stays as it was, down to files, row ids and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine import Engine, chunker_function, column_function, succeeded
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent
from tidemill.jobs.model.jobs import JobState
from tidemill.jobs.model.views import RefreshPolicy

WORDS = pa.schema([pa.field("word", pa.string())])


def words(text: str) -> Iterator[tuple[str]]:
    return ((word,) for word in text.split())


def shout(word: str) -> str:
    return word.upper()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    running = Engine(tmp_path)
    yield running
    running.close()


@pytest.fixture
def docs(engine: Engine) -> TableIdent:
    texts = ["a tide", "the old mill", "", "ebb and flow"]
    return engine.create_table("docs", pa.table({"id": range(4), "text": texts}))


@pytest.fixture
def chunks(engine: Engine, docs: TableIdent) -> TableIdent:
    view = engine.create_view("chunks", docs, chunker_function(words, WORDS, "text"), columns={"id": "id"})
    succeeded(engine.refresh(view))
    return view


def ids_by_word(engine: Engine, view: TableIdent) -> dict[str, int]:
    rows = engine.open(view).scanner(columns=["word"], with_row_id=True).to_table().to_pylist()
    return {row["word"]: row["_rowid"] for row in rows}


def files(engine: Engine, view: TableIdent) -> set[str]:
    return {str(file.path) for f in engine.open(view).get_fragments() for file in f.data_files()}


def test_children_that_did_not_change_keep_their_row(
    engine: Engine, docs: TableIdent, chunks: TableIdent
) -> None:
    before = ids_by_word(engine, chunks)
    engine.open(docs).update({"text": "'the very old mill'"}, where="id = 1")
    result = succeeded(engine.refresh(chunks))
    after = ids_by_word(engine, chunks)
    assert {word: after[word] for word in before} == before
    assert after["very"] not in before.values()
    # `old` and `mill` have another place now, `very` is new, and `the` was not touched.
    assert (result["rows_written"], result["rows_kept"]) == (3, 1)
    order = [row["word"] for row in sorted(engine.rows(chunks).to_pylist(), key=lambda r: r["__child_index"])]
    assert [word for word in order if word in ("the", "very", "old", "mill")] == [
        "the",
        "very",
        "old",
        "mill",
    ]


def test_a_column_computed_on_children_is_computed_again_for_new_ones_alone(
    engine: Engine, docs: TableIdent, chunks: TableIdent
) -> None:
    engine.declare(chunks, "loud", column_function(shout, pa.string(), "word", kind=FunctionKind.SCALAR))
    assert succeeded(engine.backfill(chunks, "loud"))["rows_computed"] == 8
    engine.open(docs).update({"text": "'the very old mill'"}, where="id = 1")
    succeeded(engine.refresh(chunks))
    assert succeeded(engine.backfill(chunks, "loud"))["rows_computed"] == 1
    assert all(row["loud"] == row["word"].upper() for row in engine.rows(chunks).to_pylist())


def test_a_full_refresh_of_what_is_right_writes_nothing(engine: Engine, chunks: TableIdent) -> None:
    version, there = engine.open(chunks).version, files(engine, chunks)
    result = succeeded(engine.refresh(chunks, policy=RefreshPolicy.FULL))
    assert (result["mode"], result["rows_written"], result["rows_kept"]) == ("full", 0, 8)
    assert (engine.open(chunks).version, files(engine, chunks)) == (version, there)


def test_files_of_rows_that_stay_are_not_touched(
    engine: Engine, docs: TableIdent, chunks: TableIdent
) -> None:
    before = files(engine, chunks)
    engine.append(docs, pa.table({"id": [4], "text": ["spring"]}))
    succeeded(engine.refresh(chunks))
    assert files(engine, chunks) > before


def test_an_index_on_a_view_finds_rows_as_they_are(
    engine: Engine, docs: TableIdent, chunks: TableIdent
) -> None:
    engine.open(chunks).create_scalar_index("word", "BTREE")
    engine.open(chunks).create_scalar_index("id", "BITMAP")
    engine.open(docs).update({"text": "'a neap'"}, where="id = 0")
    succeeded(engine.refresh(chunks))
    found = {
        word: engine.open(chunks).to_table(filter=f"word = '{word}'")["id"].to_pylist()
        for word in ("a", "tide", "neap", "mill")
    }
    assert found == {"a": [0], "tide": [], "neap": [0], "mill": [1]}
    assert sorted(engine.open(chunks).to_table(filter="id = 0")["word"].to_pylist()) == ["a", "neap"]


def test_a_restored_view_is_brought_up_to_date(engine: Engine, docs: TableIdent, chunks: TableIdent) -> None:
    old = engine.open(chunks).version
    engine.append(docs, pa.table({"id": [4], "text": ["spring"]}))
    succeeded(engine.refresh(chunks))
    handle = engine.open(chunks)
    handle.checkout_version(old).restore()
    assert "spring" not in ids_by_word(engine, chunks)
    result = succeeded(engine.refresh(chunks))
    assert result["mode"] == "incremental"
    assert "others changed the view itself" in result["reason"]
    assert "spring" in ids_by_word(engine, chunks)


def test_incremental_or_not_at_all(engine: Engine, docs: TableIdent, chunks: TableIdent) -> None:
    engine.open(chunks).delete("word = 'tide'")
    engine.open(chunks).cleanup_old_versions(timedelta(0))
    before = engine.open(chunks).version
    job = engine.refresh(chunks, policy=RefreshPolicy.INCREMENTAL)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "cannot be refreshed incrementally" in job.failure.message
    assert engine.open(chunks).version == before
    assert succeeded(engine.refresh(chunks))["mode"] == "full"


def test_a_view_of_a_view_follows_row_by_row(engine: Engine, docs: TableIdent, chunks: TableIdent) -> None:
    loud = engine.create_view("loud", chunks, None, columns={"word": "upper(word)"})
    assert succeeded(engine.refresh(loud))["rows_computed"] == 8
    engine.open(docs).update({"text": "'the very old mill'"}, where="id = 1")
    assert succeeded(engine.refresh(loud))["mode"] == "no_op"
    succeeded(engine.refresh(chunks))
    assert succeeded(engine.refresh(loud))["rows_computed"] == 1
    assert "VERY" in engine.rows(loud)["word"].to_pylist()


def test_a_verification_names_what_is_wrong(engine: Engine, chunks: TableIdent) -> None:
    assert engine.verify(chunks)["is_same"]
    handle = engine.open(chunks)
    handle.update({"word": "'wrong'"}, where="word = 'tide'")
    engine.open(chunks).delete("word = 'mill'")
    found = engine.verify(chunks)
    assert not found["is_same"]
    assert (found["rows_different"], found["rows_missing"], found["rows_unexpected"]) == (1, 1, 0)
    kinds = {example["kind"]: example for example in found["differences"]}
    assert kinds["different"]["found"]["word"] == "wrong"
    assert kinds["different"]["expected"]["word"] == "tide"
    assert kinds["missing"]["expected"]["word"] == "mill"


def without_manifest(engine: Engine, ident: TableIdent, version: int) -> None:
    """As if somebody had cleaned up this version and kept the later ones."""
    with engine.lake.store.transaction() as tx:
        table = tx.tables.get(ident)
    folder = Path(table.data_location.removeprefix("file://")) / "_versions"
    [manifest] = [path for path in folder.glob("*.manifest") if _version_of(path) == version]
    manifest.unlink()


def _version_of(manifest: Path) -> int:
    number = int(manifest.stem)
    return number if number < 1 << 32 else (1 << 64) - 1 - number


def test_a_view_whose_source_version_was_cleaned_up_is_not_taken_for_fresh(
    engine: Engine, docs: TableIdent, chunks: TableIdent
) -> None:
    base = engine.open(docs).version
    engine.open(docs).add_columns(pa.field("note", pa.string()))
    engine.open(docs).update({"text": "'a neap'"}, where="id = 0")
    without_manifest(engine, docs, base)
    assert succeeded(engine.refresh(chunks))["mode"] == "incremental"
    assert "neap" in ids_by_word(engine, chunks)
    assert "tide" not in ids_by_word(engine, chunks)


def test_a_column_whose_version_was_cleaned_up_is_not_taken_for_fresh(
    engine: Engine, docs: TableIdent
) -> None:
    engine.declare(docs, "loud", column_function(shout, pa.string(), "text", kind=FunctionKind.SCALAR))
    succeeded(engine.backfill(docs, "loud"))
    base = engine.open(docs).version
    engine.open(docs).add_columns(pa.field("note", pa.string()))
    engine.open(docs).update({"text": "'a neap'"}, where="id = 0")
    without_manifest(engine, docs, base)
    assert succeeded(engine.backfill(docs, "loud"))["rows_computed"] == 1
    assert engine.open(docs).to_table(filter="id = 0")["loud"].to_pylist() == ["A NEAP"]
