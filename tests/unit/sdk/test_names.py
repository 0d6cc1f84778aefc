"""Names as users write them and as URLs carry them."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.sdk.names import levels_of, namespace_levels, url_id


@pytest.mark.parametrize(
    ("name", "levels"),
    [("docs", ("docs",)), ("a.b.c", ("a", "b", "c")), (["a.b", "c"], ("a.b", "c")), (("x",), ("x",))],
)
def test_a_name_has_levels(name: Any, levels: tuple[str, ...]) -> None:
    assert levels_of(name) == levels


@pytest.mark.parametrize("name", ["", "a..b", ".a", [], ["a", ""]])
def test_empty_levels_are_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="empty level"):
        levels_of(name)


@pytest.mark.parametrize("name", [42, [1], None])
def test_names_are_strings(name: Any) -> None:
    with pytest.raises(TypeError):
        levels_of(name)


def test_no_name_is_the_root_namespace() -> None:
    assert namespace_levels(None) == ()


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["a", "b"], ("a$b", {})),
        ([], ("$", {})),
        (["a b", "c/d+é"], ("a%20b$c%2Fd%2B%C3%A9", {})),
        (["price$", "b"], ("price%24%7Cb", {"delimiter": "|"})),
    ],
)
def test_an_id_survives_the_url(levels: list[str], expected: tuple[str, dict[str, str]]) -> None:
    assert url_id(levels) == expected
