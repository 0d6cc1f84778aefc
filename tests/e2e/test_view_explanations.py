"""What explain says about a refresh is what the job plans, does and tells."""

from __future__ import annotations

from typing import Any, Final

import pytest

import tidemill
from tests.e2e.calls import CallLog
from tests.e2e.tables import Maker, refreshed
from tests.e2e.view_kinds import CHUNKER, KINDS, Kind, named, planned, rows_of, texts
from tidemill.sdk.explain import RefreshExplanation

FIGURES: Final = (
    "mode",
    "reason",
    "source_version",
    "rows",
    "rows_reused",
    "rows_replaced",
    "rows_removed",
    "keys",
)
TEXTS: Final = texts("a tide", "the mill", "", "ebb and flow", "neap", "spring tide")
JOIN: Final = Kind(
    "join",
    lambda source, calls: (
        f"SELECT s.id, n.sea FROM {source.name} s JOIN {source.name}_seas n ON s.place = n.place"
    ),
    ("id", "sea"),
    lambda rows: sorted((row["id"], "Arctic") for row in rows if row["place"] == "north"),
)


def explained(view: tidemill.View, **options: Any) -> RefreshExplanation:
    """What explain says, if the job that follows says and does the same."""
    said: RefreshExplanation = view.explain(**options)
    job = refreshed(view, **options)
    assert job.result is not None
    plan = planned(job)
    # Results that are checkpointed, or that the view holds already, are not computed again.
    known = job.result["rows_reused"] - plan["rows_reused"]
    assert known >= 0
    for figure in FIGURES:
        found = plan["rows_reused"] if figure == "rows_reused" else job.result[figure]
        assert getattr(said, figure) == plan[figure] == found, figure
    changes = [(".".join(one["source"]), one["from_version"], one["version"]) for one in plan["sources"]]
    assert [(one.source, one.from_version, one.version) for one in said.sources] == changes
    done = job.progress
    assert (said.rows - known, said.rows_reused + known, said.rows_replaced, said.rows_removed) == (
        done.computed,
        done.reused,
        done.replaced,
        done.removed,
    )
    assert job.result["rows_computed"] == said.rows - known
    return said


def changes_of(said: RefreshExplanation) -> tuple[int | None, int | None, int | None]:
    return said.sources[0].inserted, said.sources[0].updated, said.sources[0].deleted


@pytest.mark.parametrize("kind", [*KINDS, JOIN], ids=named)
def test_what_explain_says_is_what_is_done(kind: Kind, make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS[:3], TEXTS[3:])
    seas = make.table([{"place": "north", "sea": "Arctic"}], name="docs_seas")
    view = kind.create(make, source, calls)
    read = len(TEXTS) + (1 if kind is JOIN else 0)

    first = explained(view)
    assert (first.mode, first.rows, changes_of(first)) == ("full", read, (None, None, None))

    idle = explained(view)
    assert (idle.mode, idle.rows, idle.rows_reused, idle.is_noop) == ("no_op", 0, read, True)

    source.add(texts("slack", first=6))
    source.to_lance().update({"text": "'low water'", "place": "'west'"}, where="id = 4")
    source.to_lance().delete("id = 1")
    changed = explained(view)
    assert (changed.mode, changes_of(changed)) == ("incremental", (1, 1, 1))
    assert (changed.rows_replaced, changed.rows_removed, changed.rows_reused) == (1, 1, read - 2)
    is_keyed = changed.keys is not None
    assert (changed.rows, changed.keys) == ((3, 3) if is_keyed else (2, None))

    source.to_lance().optimize.compact_files()
    assert explained(view).mode == "no_op"

    make.lake.create_table(source.name, texts("high water"), mode="overwrite")
    overwritten = explained(view)
    assert (overwritten.mode, changes_of(overwritten)) == ("incremental", (1, 0, 6))
    assert rows_of(view, *kind.columns) == kind.expected(texts("high water"))
    assert seas.count_rows() == 1


def test_a_full_refresh_is_explained_as_one(make: Maker, calls: CallLog) -> None:
    view = CHUNKER.create(make, make.table(TEXTS), calls)
    refreshed(view)
    assert explained(view, full=True).rows == len(TEXTS)


def test_a_refresh_to_an_older_version_is_explained_as_one(make: Maker, calls: CallLog) -> None:
    source = make.table(TEXTS)
    view = CHUNKER.create(make, source, calls)
    version = source.version
    source.add(texts("slack", first=6))
    refreshed(view)
    said = explained(view, src_version=version)
    assert (said.mode, said.source_version, said.rows_removed) == ("incremental", version, 1)


def test_a_refresh_with_a_limit_is_explained_as_one(make: Maker, calls: CallLog) -> None:
    view = CHUNKER.create(make, make.table(TEXTS), calls)
    refreshed(view)
    assert explained(view, output_limit=2).mode == "incremental"
    assert explained(view, output_limit=2).mode == "no_op"
    assert explained(view).mode == "incremental"
