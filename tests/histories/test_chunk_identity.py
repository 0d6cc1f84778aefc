"""Chunks that carry where they are: what is computed beside them is computed once for each new text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill
from tests.engine import Engine, chunker_function, column_function, succeeded
from tests.histories.settings import history_settings
from tidemill import chunkers
from tidemill.catalog.model.functions import FunctionKind
from tidemill.catalog.model.identifiers import TableIdent

BEFORE = ["One tide.", "Two mills.", "Three stones.", "Two mills.", "Five wheels.", "Six sails."]
EMBEDDED: list[str] = []


def sentences(text: str) -> Iterator[tuple[str, int, int, dict[str, int], float, list[float]]]:
    """Each with every kind of number that says where it is: an edit changes those of all that follow."""
    start = 0
    parts = text.split("|") if text else []
    for position, part in enumerate(parts):
        span = {"start": start, "page": start // 20}
        yield part, position, start, span, position / len(parts), [float(start), float(position)]
        start += len(part) + 1


OUTPUT = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("span", pa.struct([pa.field("start", pa.int64()), pa.field("page", pa.int64())])),
        pa.field("share", pa.float64()),
        pa.field("box", pa.list_(pa.float32())),
    ]
)


def embedding(text: str) -> int:
    EMBEDDED.append(text)
    return len(text)


class Library:
    """Documents, their sentences, and a column computed from the text of a sentence."""

    def __init__(self, root: Path, documents: Sequence[Sequence[str]]) -> None:
        self.engine = Engine(root)
        rows = {
            "id": list(range(len(documents))),
            "title": ["t"] * len(documents),
            "edited": [0] * len(documents),
        }
        texts = ["|".join(sentences) for sentences in documents]
        self.docs = self.engine.create_table("docs", pa.table({**rows, "text": texts}))
        self.view = self._create_view()
        self.follow()

    def _create_view(self) -> TableIdent:
        chunker = chunker_function(sentences, OUTPUT, "text")
        view = self.engine.create_view(
            "sentences", self.docs, chunker, columns={"title": "title", "edited": "edited"}
        )
        succeeded(self.engine.refresh(view))
        function = column_function(embedding, pa.int64(), "text", kind=FunctionKind.SCALAR)
        self.engine.declare(view, "embedding", function, "text")
        return view

    def write(self, document: int, sentences: Sequence[str], **more: str) -> None:
        values = {"text": f"'{'|'.join(sentences)}'", "edited": "edited + 1", **more}
        self.engine.open(self.docs).update(values, where=f"id = {document}")

    def follow(self) -> Counter[str]:
        """Refreshes the view, fills its column, and says what was embedded for that."""
        EMBEDDED.clear()
        succeeded(self.engine.refresh(self.view))
        succeeded(self.engine.backfill(self.view, "embedding"))
        return Counter(EMBEDDED)

    def shown(self) -> list[dict[str, Any]]:
        rows = self.engine.open(self.view).to_table(with_row_id=True).to_pylist()
        return sorted(rows, key=lambda row: (row["__source_row_id"], row["position"]))


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    made = Library(tmp_path, [BEFORE, BEFORE])
    yield made
    made.engine.close()


EDITS = {
    "insert first": ["Zero.", *BEFORE],
    "insert in the middle": [*BEFORE[:2], "A new one.", *BEFORE[2:]],
    "append": [*BEFORE, "Seven."],
    "delete first": BEFORE[1:],
    "delete in the middle": [*BEFORE[:2], *BEFORE[3:]],
    "replace": [*BEFORE[:2], "Other.", *BEFORE[3:]],
    "move to the end": [*BEFORE[1:], BEFORE[0]],
    "turn around": BEFORE[::-1],
    "repeat": [*BEFORE, BEFORE[0]],
    "split": [*BEFORE[:2], "Three", "stones.", *BEFORE[3:]],
    "merge": ["One tide. Two mills.", *BEFORE[2:]],
    "insert and delete": ["Zero.", *BEFORE[:4], BEFORE[5]],
    "empty": [],
}


@pytest.mark.parametrize("after", EDITS.values(), ids=EDITS)
def test_only_new_sentences_are_embedded(library: Library, after: list[str]) -> None:
    library.write(0, after)
    assert library.follow() == Counter(after) - Counter(BEFORE)
    rows = library.shown()
    assert [row["text"] for row in rows] == [*after, *BEFORE]
    assert all(row["embedding"] == len(row["text"]) for row in rows)
    assert library.engine.verify(library.view)["is_same"]


def test_a_sentence_that_moves_keeps_its_row_id(library: Library) -> None:
    before = {row["text"]: row["_rowid"] for row in library.shown() if row["__source_row_id"] == 0}
    library.write(0, ["Zero.", *BEFORE])
    library.follow()
    after = [row for row in library.shown() if row["__source_row_id"] == 0]
    kept = [row["_rowid"] == before.get(row["text"]) for row in after if row["text"] != "Two mills."]
    assert kept == [False, True, True, True, True]
    assert [row["position"] for row in after] == list(range(7))


def test_other_values_of_the_source_row_do_not_hide_which_sentences_are_new(library: Library) -> None:
    """They are the same in all rows of a document, so they cannot tell its sentences apart."""
    library.write(0, ["Zero.", *BEFORE], title="'A title longer than any of the sentences'")
    assert library.follow() == Counter(["Zero."])
    assert {row["title"] for row in library.shown()} == {"t", "A title longer than any of the sentences"}


def test_a_column_computed_from_the_offset_is_stale_where_the_offset_changed(library: Library) -> None:
    function = column_function(doubled, pa.int64(), "offset", kind=FunctionKind.SCALAR, digest="2")
    library.engine.declare(library.view, "twice", function, "offset")
    succeeded(library.engine.backfill(library.view, "twice"))
    library.write(0, [*BEFORE[:4], "New.", *BEFORE[4:]])
    assert library.follow() == Counter(["New."])
    assert succeeded(library.engine.backfill(library.view, "twice"))["rows_computed"] == 3
    assert all(row["twice"] == 2 * row["offset"] for row in library.shown())


def doubled(offset: int) -> int:
    return 2 * offset


BOOK = "".join(
    f"## Part {n}\n\nMill {n} grinds {n * n} sacks. It has {n + 7} blades! Does it turn at {3 * n}?\n\n"
    for n in range(40)
)
SHIPPED = {
    "sentences": (tidemill.chunker(chunkers.sentences).function, 1),
    "markdown": (tidemill.chunker(chunkers.markdown).function, 1),
    "tokens": (tidemill.chunker(chunkers.tokens).function, 6),
    "content_defined": (tidemill.chunker(chunkers.content_defined).function, 4),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_sentence_inserted_into_a_book_costs_few_embeddings(tmp_path: Path, name: str) -> None:
    """With each of the chunkers that come with Tidemill, as the SDK declares them."""
    chunker, most = SHIPPED[name]
    engine = Engine(tmp_path)
    books = engine.create_table("books", pa.table({"id": [1], "text": [BOOK]}))
    view = engine.create_view("parts", books, chunker, columns={})
    function = column_function(embedding, pa.int64(), "text", kind=FunctionKind.SCALAR)
    succeeded(engine.refresh(view))
    engine.declare(view, "embedding", function, "text")
    succeeded(engine.backfill(view, "embedding"))
    before = Counter(engine.rows(view)["text"].to_pylist())
    edited = BOOK.replace("Mill 5 ", "It is noon. Mill 5 ")
    engine.open(books).update({"text": f"'{edited}'"}, where="id = 1")
    EMBEDDED.clear()
    succeeded(engine.refresh(view))
    succeeded(engine.backfill(view, "embedding"))
    after = Counter(engine.rows(view)["text"].to_pylist())
    engine.close()
    assert Counter(EMBEDDED) == after - before
    assert 1 <= len(EMBEDDED) <= most


DOCUMENT = st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "eeeee"]), max_size=7)


@history_settings(12, 1)
@given(before=DOCUMENT, edits=st.lists(DOCUMENT, min_size=1, max_size=3))
def test_any_edits_cost_what_is_new(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], edits: list[list[str]]
) -> None:
    library = Library(tmp_path_factory.mktemp("library"), [before, ["bb", "a"]])
    try:
        for after in edits:
            library.write(0, after)
            assert library.follow() == Counter(after) - Counter(before)
            assert [row["text"] for row in library.shown()] == [*after, "bb", "a"]
            before = after
    finally:
        library.engine.close()
