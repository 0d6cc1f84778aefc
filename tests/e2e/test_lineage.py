"""Lineage over HTTP, from tables and views with real columns, functions and statements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

import tidemill
from tests.e2e.tables import Maker
from tidemill.sdk.errors import NotFound


class Word(NamedTuple):
    word: str


@tidemill.udf
def size(text: str) -> int:
    return len(text)


@tidemill.chunker
def words(text: str) -> Iterator[Word]:
    for word in text.split():
        yield Word(word)


class Chain(NamedTuple):
    """A table with a computed column, a view of its words, one that counts these, and one of some rows."""

    docs: tidemill.Table
    words: tidemill.View
    counts: tidemill.View
    some: tidemill.View


@pytest.fixture
def chain(make: Maker) -> Chain:
    docs = make.numbered(4)
    docs.add_column("size", size)
    made = make.view(docs.select("id").chunk(words), "words")
    counted = make.lake.sql(f"SELECT word, count(*) AS n FROM {made.name} WHERE id > 0 GROUP BY word")
    counts = make.lake.create_materialized_view(f"{make.namespace}.counts", counted)
    some = make.view(docs.select("id", twice="size * 2").where("`text` <> ''"), "some")
    return Chain(docs, made, counts, some)


def steps(found: tuple[tidemill.sdk.status.LineageStep, ...]) -> list[str]:
    """`1 docs.text function size` for what is one step away, without the namespace."""
    return [
        " ".join(
            [
                str(step.depth),
                ".".join([step.object.split(".")[-1], *([step.column] if step.column else [])]),
                step.through or "",
                *([step.function.name] if step.function else []),
            ]
        )
        for step in found
    ]


def test_tables_and_views_are_linked_through_what_makes_them(chain: Chain) -> None:
    assert steps(chain.counts.lineage().upstream) == ["1 words sql", "2 docs chunker words"]
    down = steps(chain.docs.lineage().downstream)
    assert sorted(down) == ["1 some expression", "1 words chunker words", "2 counts sql"]


def test_columns_are_linked_through_functions_expressions_and_statements(chain: Chain) -> None:
    assert steps(chain.some.lineage("twice").upstream) == [
        "1 docs.text filter",
        "1 docs.size expression",
        "2 docs.text function size",
    ]
    assert sorted(steps(chain.counts.lineage("word").upstream)) == [
        "1 words.id sql",
        "1 words.word sql",
        "2 docs.id projection",
        "2 docs.text chunker words",
    ]
    down = steps(chain.docs.lineage("size").downstream)
    assert down == ["1 some.twice expression"]


def test_a_source_that_was_dropped_is_remembered(chain: Chain, make: Maker) -> None:
    make.lake.drop_table(chain.words.name, force=True)
    (step,) = chain.counts.lineage().upstream
    assert (step.object, step.kind) == (chain.words.name, "dropped")


def test_a_column_that_is_not_there_has_no_lineage(chain: Chain) -> None:
    with pytest.raises(NotFound, match="nothing_like_this"):
        chain.docs.lineage("nothing_like_this")
