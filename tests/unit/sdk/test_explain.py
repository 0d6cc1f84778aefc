"""Explanations in words."""

from __future__ import annotations

from tidemill.sdk.explain import backfill_explanation, counted, duration_text, refresh_explanation

BACKFILL = {
    "read_version": 3,
    "rows": 4000,
    "rows_reused": 0,
    "fragments": 1,
    "commits": 1,
    "reason": "no row has been computed",
}
REFRESH = {
    "mode": "incremental",
    "source_version": 9,
    "rows": 45,
    "rows_replaced": 5,
    "rows_removed": 3,
    "rows_reused": 3950,
    "reason": "45 rows changed",
}


def test_a_backfill_is_explained_in_one_line() -> None:
    assert str(backfill_explanation("library.docs", "words", BACKFILL)) == (
        "Backfill of library.docs.words at version 3: computes 4,000 rows in 1 fragment, reuses 0, "
        "publishes 1 commit (no row has been computed)"
    )


def test_a_backfill_with_nothing_to_do_says_so() -> None:
    explanation = backfill_explanation(
        "t", "c", {**BACKFILL, "rows": 0, "rows_reused": 1, "reason": "all done"}
    )
    assert explanation.is_noop
    assert str(explanation) == "Backfill of t.c at version 3: nothing to do, 1 row up to date (all done)"


def test_a_refresh_is_explained_in_one_line() -> None:
    explanation = refresh_explanation("library.passages", REFRESH)
    assert not explanation.is_noop
    assert str(explanation) == (
        "Refresh of library.passages to source version 9: incremental, computes 45 source rows "
        "(replaces 5), removes 3, reuses 3,950 (45 rows changed)"
    )


def test_a_refresh_with_nothing_to_do_says_so() -> None:
    explanation = refresh_explanation("v", {**REFRESH, "mode": "no_op"})
    assert explanation.is_noop
    assert "nothing to do" in str(explanation)


def test_a_refresh_says_what_happened_to_its_sources_and_how_long_it_takes() -> None:
    changed = {"source": ["library", "docs"], "from_version": 7, "version": 9}
    counted_rows = {**changed, "inserted": 40, "updated": 5, "deleted": 0}
    unknown = {"source": ["library", "other"], "from_version": None, "version": 2}
    unchanged = {**changed, "from_version": 9, "inserted": 0, "updated": 0, "deleted": 0}
    more = {"keys": 12, "expected_seconds": 4.2, "conflicts": ["job j2 refreshes it"]}
    body = {**REFRESH, **more, "sources": [counted_rows, unknown, unchanged]}
    first, *rest = str(refresh_explanation("v", body)).splitlines()
    assert "computes 45 source rows for 12 keys (replaces 5)" in first
    assert "reuses 3,950 in about 4 s (45 rows changed)" in first
    assert rest == [
        "Source: library.docs, version 7 to 9: 40 inserted, 5 updated",
        "Source: library.other, version 2: changed rows unknown",
        "Source: library.docs, version 9: no row changed",
        "Conflict: job j2 refreshes it",
    ]


def test_a_refresh_with_nothing_to_do_lists_no_sources() -> None:
    source = {"source": ["a"], "from_version": 1, "version": 1, "inserted": 0, "updated": 0, "deleted": 0}
    said = str(refresh_explanation("v", {**REFRESH, "mode": "no_op", "sources": [source]}))
    assert said.count("\n") == 0


def test_counts_read_well() -> None:
    assert [counted(number, "row") for number in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]


def test_a_backfill_says_how_long_it_will_take_and_what_is_in_its_way() -> None:
    more = {"tasks": 8, "expected_seconds": 200.4, "conflicts": ["job j2 fills it", "no cluster"]}
    first, *conflicts = str(backfill_explanation("t", "c", {**BACKFILL, **more})).splitlines()
    assert "in 1 fragment and 8 tasks, reuses 0, publishes 1 commit in about 3 min 20 s (no row" in first
    assert conflicts == ["Conflict: job j2 fills it", "Conflict: no cluster"]


def test_durations_read_well() -> None:
    assert [duration_text(seconds) for seconds in (0.4, 12.2, 200, 7500)] == [
        "0.4 s",
        "12 s",
        "3 min 20 s",
        "2 h 5 min",
    ]
