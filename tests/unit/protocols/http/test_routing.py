"""How raw paths find their routes."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from tidemill.errors import InvalidInput, MethodNotAllowed, RouteNotFound
from tidemill.protocols.http.call import Call
from tidemill.protocols.http.fields import split_id
from tidemill.protocols.http.routing import Route, Router, path_segments
from tidemill.protocols.lance.service import ROUTES


def nothing(_call: Call) -> Response:
    return Response()


ROUTER = Router(
    [
        Route("POST", "/v1/table/{id}/describe", nothing),
        Route("GET", "/v1/table/{id}/describe", nothing),
        Route("POST", "/v1/table/version/batch-create", nothing),
        Route("POST", "/v1/table/{id}/index/{index_name}/stats", nothing),
    ]
)


def test_doubled_and_trailing_slashes_mean_nothing() -> None:
    assert path_segments(b"//v1//table/t/describe/") == ("v1", "table", "t", "describe")


def test_a_segment_is_decoded_after_the_split() -> None:
    assert path_segments(b"/v1/a%2Fb%24c/x") == ("v1", "a/b$c", "x")


def test_a_raw_plus_is_a_space_and_an_encoded_one_a_plus() -> None:
    assert path_segments(b"/a+b%2Bc%20d") == ("a b+c d",)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidInput, match="path"):
        path_segments(b"/v1/%ff")


NAMES = st.text(st.characters(min_codepoint=0x20, codec="utf-8", exclude_characters="$"), min_size=1)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_an_id_form_encoded_by_a_client_comes_back_as_it_was(levels: list[str]) -> None:
    raw = f"//v1/table/{quote_plus('$'.join(levels))}/describe/".encode()
    match = ROUTER.match("POST", path_segments(raw))
    assert list(split_id(match.parameters["id"], "$")) == levels


def test_the_delimiter_alone_is_the_root() -> None:
    assert split_id("$", "$") == ()
    assert split_id(".", ".") == ()
    assert split_id("a$b", "$") == ("a", "b")


def test_literal_segments_win_and_parameters_get_a_second_chance() -> None:
    assert ROUTER.match("POST", ("v1", "table", "version", "batch-create")).parameters == {}
    assert ROUTER.match("POST", ("v1", "table", "version", "describe")).parameters == {"id": "version"}


def test_every_parameter_gets_its_segment() -> None:
    match = ROUTER.match("POST", ("v1", "table", "t", "index", "i", "stats"))
    assert match.parameters == {"id": "t", "index_name": "i"}


def test_an_unknown_path_is_not_found() -> None:
    with pytest.raises(RouteNotFound):
        ROUTER.match("POST", ("v1", "table"))


def test_a_wrong_method_is_told_which_ones_are_right() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        ROUTER.match("PUT", ("v1", "table", "t", "describe"))
    assert refused.value.allowed == ("GET", "POST")


def test_a_route_cannot_be_there_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        Router([Route("GET", "/a/{id}", nothing), Route("GET", "/a/{name}", nothing)])


def test_all_lance_routes_live_together() -> None:
    Router(ROUTES)
