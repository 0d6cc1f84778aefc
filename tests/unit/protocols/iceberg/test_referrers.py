from __future__ import annotations

import pytest

from tidemill.errors import InvalidInput
from tidemill.protocols.iceberg.referrers import referrers_of


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", []),
        ("a\x1fv", ["a.v"]),
        ("a%1Fv", ["a.v"]),
        ("a%1Fb%1Fv,a%1Fw", ["a.b.v", "a.w"]),
        ("a%1Fx%2Cy,a%1Fw", ["a.x,y", "a.w"]),
        ("a\x1fx,y,a\x1fw", ["a.x,y", "a.w"]),
    ],
)
def test_views_are_named_with_their_namespaces(given: str, named: list[str]) -> None:
    assert [str(view) for view in referrers_of(given)] == named


@pytest.mark.parametrize("given", ["v", ",", "a%1F", "%1Fv", "a%1F%1Fv", "a%1F.."])
def test_what_names_no_view_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"^referenced-by: "):
        referrers_of(given)


def test_a_chain_of_views_has_an_end() -> None:
    assert len(referrers_of(",".join(["a%1Fv"] * 10))) == 10
    with pytest.raises(InvalidInput, match="has 11 views; at most 10"):
        referrers_of(",".join(["a%1Fv"] * 11))
