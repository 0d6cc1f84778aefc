"""Tags of tables as clients have them."""

from __future__ import annotations

from typing import cast

import pytest
from starlette.datastructures import Headers, QueryParams

from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.errors import InvalidInput
from tidemill.protocols.http.call import Call, Limits
from tidemill.protocols.http.operations import Operations
from tidemill.protocols.iceberg.parameters import Snapshots, requested_snapshots
from tidemill.protocols.iceberg.responses import client_has_tag, tag_of

TAG = tag_of("s3://b/1.json", Snapshots.ALL, {"a": "1", "b": "2"})


def call(*known: str, **query: str) -> Call:
    raw = [(b"if-none-match", tag.encode()) for tag in known]
    operations = cast(Operations, None)
    return Call(operations, LOCAL_CALLER, Limits(), {}, QueryParams(query), Headers(raw=raw), b"")


def test_a_tag_is_quoted() -> None:
    assert TAG.startswith('"')
    assert TAG.endswith('"')
    assert '"' not in TAG[1:-1]


def test_the_order_of_the_configuration_does_not_matter() -> None:
    assert tag_of("s3://b/1.json", Snapshots.ALL, {"b": "2", "a": "1"}) == TAG


@pytest.mark.parametrize(
    "other",
    [
        tag_of("s3://b/2.json", Snapshots.ALL, {"a": "1", "b": "2"}),
        tag_of("s3://b/1.json", Snapshots.REFS, {"a": "1", "b": "2"}),
        tag_of("s3://b/1.json", Snapshots.ALL, {"a": "1", "b": "3"}),
        tag_of("s3://b/1.json", Snapshots.ALL, {}),
    ],
    ids=["another state", "another form", "other credentials", "none"],
)
def test_another_answer_has_another_tag(other: str) -> None:
    assert other != TAG


@pytest.mark.parametrize("header", [TAG, f"W/{TAG}", f'"x", {TAG}', f'"x",W/{TAG} , "y"'])
def test_a_client_may_list_what_it_has(header: str) -> None:
    assert client_has_tag(call(header), TAG)


def test_headers_that_are_there_twice_are_one_list() -> None:
    assert client_has_tag(call('"x"', TAG), TAG)


@pytest.mark.parametrize("header", ['"x"', TAG.strip('"'), ""])
def test_what_a_client_does_not_have_is_sent(header: str) -> None:
    assert not client_has_tag(call(header), TAG)


def test_a_client_that_has_nothing_asks_without_tags() -> None:
    assert not client_has_tag(call(), TAG)


def test_any_tag_is_no_tag() -> None:
    with pytest.raises(InvalidInput, match="If-None-Match"):
        client_has_tag(call("*"), TAG)


def test_all_snapshots_are_shown_unless_a_client_wants_less() -> None:
    assert requested_snapshots(call()) is Snapshots.ALL
    assert requested_snapshots(call(snapshots="all")) is Snapshots.ALL
    assert requested_snapshots(call(snapshots="refs")) is Snapshots.REFS


def test_snapshots_of_another_kind_are_refused() -> None:
    with pytest.raises(InvalidInput, match="snapshots"):
        requested_snapshots(call(snapshots="some"))
