"""Views made from views: changes travel along, and the versions they are made from fit together."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, refreshed
from tests.e2e.view_kinds import created, louder, result_of, rows_of, splitter, texts, verified

TEXTS = texts("a tide", "the mill", "ebb and flow")


class Chain(NamedTuple):
    """A table, a query over it, the words of that, and the long ones of these in capitals."""

    docs: tidemill.Table
    some: tidemill.View
    words: tidemill.View
    loud: tidemill.View

    def refresh(self) -> None:
        for view in (self.some, self.words, self.loud):
            refreshed(view)

    def shown(self) -> list[str]:
        return [word for (word,) in rows_of(self.loud, "loud")]


@pytest.fixture
def chain(make: Maker, calls: CallLog) -> Chain:
    docs = make.table(TEXTS)
    some = created(make, docs.select("id", "text").where("id > 0"), "some")
    words = created(make, some.select("id").chunk(splitter(calls)), "words")
    loud = tidemill.bind(louder(calls), "word")
    chain = Chain(
        docs, some, words, created(make, words.select("id", loud=loud).where("length(word) > 2"), "loud")
    )
    chain.refresh()
    calls.take()
    return chain


def test_changes_travel_along_a_chain_row_by_row(chain: Chain, calls: CallLog) -> None:
    assert chain.shown() == ["AND", "EBB", "FLOW", "MILL", "THE"]
    chain.docs.to_lance().update({"text": "'ebb or flow'"}, where="id = 2")
    chain.docs.add(texts("slack", first=3))
    chain.refresh()
    assert chain.shown() == ["EBB", "FLOW", "MILL", "SLACK", "THE"]
    assert calls.take() == ["ebb or flow", "slack", "slack"]
    chain.docs.to_lance().delete("id = 1")
    chain.refresh()
    assert chain.shown() == ["EBB", "FLOW", "SLACK"]
    assert calls.take() == []
    assert all(verified(view).is_same for view in (chain.some, chain.words, chain.loud))


def test_a_chain_without_changes_adds_no_version_anywhere(chain: Chain) -> None:
    versions = [view.version for view in (chain.some, chain.words, chain.loud)]
    chain.docs.to_lance().optimize.compact_files()
    chain.words.to_lance().optimize.compact_files()
    compacted = chain.words.version
    chain.refresh()
    assert [chain.some.version, chain.words.version, chain.loud.version] == [
        versions[0],
        compacted,
        versions[2],
    ]


def test_each_view_of_a_chain_is_as_fresh_as_what_it_is_made_from(chain: Chain) -> None:
    chain.docs.add(texts("slack", "neap", first=3))
    [lag] = chain.some.status().sources
    assert (lag.source, lag.versions_behind, lag.inserted) == (chain.docs.name, 1, 2)
    assert (chain.words.status().is_fresh, chain.loud.status().is_fresh) == (True, True)
    refreshed(chain.some)
    [lag] = chain.words.status().sources
    assert (lag.source, lag.versions_behind, lag.inserted) == (chain.some.name, 1, 2)
    assert (chain.some.status().is_fresh, chain.loud.status().is_fresh) == (True, True)
    chain.refresh()
    assert all(view.status().is_fresh for view in (chain.some, chain.words, chain.loud))


def test_lineage_goes_through_the_whole_chain(chain: Chain) -> None:
    up = [(step.object, step.depth, step.through) for step in chain.loud.lineage().upstream]
    assert up == [
        (chain.words.name, 1, "function"),
        (chain.some.name, 2, "chunker"),
        (chain.docs.name, 3, "filter"),
    ]
    down = [(step.object, step.depth) for step in chain.docs.lineage().downstream]
    assert down == [(chain.some.name, 1), (chain.words.name, 2), (chain.loud.name, 3)]
    columns = {(step.object, step.column) for step in chain.loud.lineage("loud").upstream}
    assert {(chain.words.name, "word"), (chain.some.name, "text"), (chain.docs.name, "text")} <= columns


def test_a_chain_whose_middle_is_dropped_says_what_is_missing(chain: Chain, make: Maker) -> None:
    shown = chain.shown()
    make.lake.drop_view(chain.words.name, force=True)
    with pytest.raises(tidemill.TidemillRequestError, match=f"{chain.words.name}.*was dropped"):
        chain.loud.refresh()
    status = chain.loud.status()
    assert not status.is_fresh
    assert f"{chain.words.name}, a source of {chain.loud.name}, was dropped" in status.reason
    assert chain.shown() == shown
    refreshed(chain.some)


class Fork(NamedTuple):
    """A table, its words, and a join of both."""

    docs: tidemill.Table
    words: tidemill.View
    both: tidemill.View

    def shown(self) -> list[tuple[str, str]]:
        return [(text, word) for text, word in rows_of(self.both, "text", "word")]


@pytest.fixture
def fork(make: Maker, calls: CallLog) -> Fork:
    docs = make.table(texts("a tide", "mill"))
    words = created(make, docs.select("id").chunk(splitter(calls)), "words")
    statement = f"SELECT d.text, w.word FROM {docs.name} d JOIN {words.name} w ON d.id = w.id"
    fork = Fork(docs, words, created(make, statement, "both"))
    refreshed(words)
    refreshed(fork.both)
    return fork


def test_a_table_is_read_at_the_version_that_the_view_beside_it_was_made_from(fork: Fork) -> None:
    assert fork.shown() == [("a tide", "a"), ("a tide", "tide"), ("mill", "mill")]
    consumed = fork.docs.version
    fork.docs.to_lance().update({"text": "'wheel'"}, where="id = 1")
    assert result_of(fork.both)["mode"] == "no_op"
    assert fork.shown() == [("a tide", "a"), ("a tide", "tide"), ("mill", "mill")]
    table = next(source for source in fork.both.status().sources if source.source == fork.docs.name)
    assert (table.version_consumed, table.versions_behind) == (consumed, 1)
    refreshed(fork.words)
    assert not fork.both.status().is_fresh
    refreshed(fork.both)
    assert fork.shown() == [("a tide", "a"), ("a tide", "tide"), ("wheel", "wheel")]
    assert verified(fork.both).is_same


def test_a_first_refresh_reads_the_table_at_the_version_of_the_view_beside_it(
    make: Maker, calls: CallLog
) -> None:
    docs = make.table(texts("a tide", "mill"))
    words = created(make, docs.select("id").chunk(splitter(calls)), "words")
    refreshed(words)
    docs.to_lance().update({"text": "'wheel'"}, where="id = 1")
    statement = f"SELECT d.text, w.word FROM {docs.name} d JOIN {words.name} w ON d.id = w.id"
    both = created(make, statement, "both")
    refreshed(both)
    assert ("mill", "mill") in rows_of(both, "text", "word")
    assert ("wheel", "mill") not in rows_of(both, "text", "word")


def test_a_table_is_read_at_the_version_that_a_view_of_a_view_was_made_from(fork: Fork, make: Maker) -> None:
    """The view between them has gone on, and what is made from it has not."""
    upper = created(make, fork.words.select("id", loud="upper(word)"), "upper")
    refreshed(upper)
    statement = f"SELECT d.text, u.loud FROM {fork.docs.name} d JOIN {upper.name} u ON d.id = u.id"
    both = created(make, statement, "far")
    refreshed(both)
    fork.docs.to_lance().update({"text": "'wheel'"}, where="id = 1")
    refreshed(fork.words)
    refreshed(both)
    assert rows_of(both, "text", "loud")[-1] == ("mill", "MILL")
    refreshed(upper)
    refreshed(both)
    assert rows_of(both, "text", "loud")[-1] == ("wheel", "WHEEL")


def test_a_dropped_table_is_named_by_what_is_made_from_it(fork: Fork, make: Maker) -> None:
    shown = fork.shown()
    make.lake.drop_table(fork.docs.name, force=True)
    for view in (fork.words, fork.both):
        with pytest.raises(tidemill.TidemillRequestError, match=f"{fork.docs.name}.*was dropped"):
            view.refresh()
    assert fork.shown() == shown
