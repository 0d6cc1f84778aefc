"""Pages of listings, and the views that something is loaded by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers, QueryParams

from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.identifiers import LEVEL_SEPARATOR, TableIdent
from tidemill.catalog.model.tables import Page
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.parameters import MAX_PAGE_SIZE, page_body, page_of, referrers_of, token_after

NAMES = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs"]), min_size=1, max_size=20)


def call(**query: str) -> Call:
    operations = cast(Operations, None)
    return Call(operations, LOCAL_CALLER, Limits(), {}, QueryParams(query), Headers(), b"")


def referrers(raw: str, separator: str = LEVEL_SEPARATOR) -> Sequence[TableIdent]:
    operations = cast(Operations, SimpleNamespace(namespace_separator=separator))
    return referrers_of(replace(call(), operations=operations, raw_query=f"x=1&referenced-by={raw}".encode()))


def listing(names: Sequence[str], **query: str) -> dict[str, Any]:
    def fetch(page: Page) -> Sequence[str]:
        following = [name for name in sorted(names) if page.after is None or name > page.after]
        return following[: page.limit]

    return page_body(page_of(call(**query)), "names", fetch, str)


def test_a_client_that_does_not_page_gets_everything() -> None:
    assert listing(["a", "b", "c"]) == {"next-page-token": None, "names": ["a", "b", "c"]}


def test_a_size_without_a_token_begins_a_listing() -> None:
    first = listing(["a", "b", "c"], pageSize="2")
    assert first["names"] == ["a", "b"]
    assert listing(["a", "b", "c"], pageSize="2", pageToken=first["next-page-token"]) == {
        "next-page-token": None,
        "names": ["c"],
    }


def test_an_empty_token_begins_a_listing() -> None:
    assert listing(["a", "b"], pageToken="") == {"next-page-token": None, "names": ["a", "b"]}


def test_a_listing_that_ends_with_a_page_has_no_further_page() -> None:
    assert listing(["a", "b"], pageSize="2")["next-page-token"] is None


@given(st.sets(NAMES), st.integers(1, 5))
def test_pages_together_are_the_listing(names: set[str], size: int) -> None:
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = listing(list(names), pageSize=str(size), pageToken=token)
        assert len(page["names"]) <= size
        assert page["next-page-token"] != ""
        found += page["names"]
        token = page["next-page-token"]
    assert found == sorted(names)


def test_a_page_that_is_asked_to_be_huge_is_cut() -> None:
    assert page_of(call(pageSize="9999999999999999999")).limit == MAX_PAGE_SIZE


@pytest.mark.parametrize("size", ["0", "-1", "two", "1_0"])
def test_a_size_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(InvalidInput, match="pageSize"):
        page_of(call(pageSize=size))


@pytest.mark.parametrize("token", ["!", "a", "ä", "_w", "A" * 2000, token_after("a\x00b")])
def test_a_token_of_somebody_else_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="pageToken"):
        page_of(call(pageToken=token))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", []),
        ("a\x1fv", ["a.v"]),
        ("a%1Fv", ["a.v"]),
        ("a%1Fb%1Fv,a%1Fw", ["a.b.v", "a.w"]),
        ("a%1Fx%2Cy,a%1Fw", ["a.x,y", "a.w"]),
        ("a%1Fx,y,a%1Fw", ["a.x,y", "a.w"]),
        ("a%2Cb%1Fv", ["a,b.v"]),
        ("a%2Cb%1Fv,a%2Cb%1Fw%20x", ["a,b.v", "a,b.w x"]),
        ("a%1Fv%2Cb%1Fw", ["a.v", "b.w"]),
        ("a%251Fv%2Ca%251Fx%252Cy", ["a.v", "a.x,y"]),
        ("a%1F50%2525,a%1Fw", ["a.50%25", "a.w"]),
    ],
)
def test_views_are_named_with_their_namespaces(given: str, named: list[str]) -> None:
    assert [str(view) for view in referrers(given)] == named


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("a.v", ["a.v"]),
        ("a.b.v,a.x%2Cy", ["a.b.v", "a.x,y"]),
        ("a%2Eb%2Ev", ["a.b.v"]),
        ("a%1Fb.c%1Fv", ["a.b.c.v"]),
    ],
)
def test_views_may_be_named_with_the_separator_of_the_settings(given: str, named: list[str]) -> None:
    assert [str(view) for view in referrers(given, ".")] == named


@pytest.mark.parametrize("given", ["v", ",", "a%1F", "%1Fv", "a%1F%1Fv", "a%1F.."])
def test_what_names_no_view_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"^referenced-by: "):
        referrers(given)


def test_a_chain_of_views_has_an_end() -> None:
    assert len(referrers(",".join(["a%1Fv"] * 10))) == 10
    with pytest.raises(InvalidInput, match="has 11 views; at most 10"):
        referrers(",".join(["a%1Fv"] * 11))
