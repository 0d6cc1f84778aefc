"""What a lake sends to define, list and remove views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.sdk.noting import JOB, NotingServer
from tests.unit.sdk.test_definitions import DOCS, first, passages
from tidemill.sdk.functions import chunker
from tidemill.sdk.options import Manifest, skip


class Part(NamedTuple):
    part: str


@chunker(timeout=2, packages=["numpy"])
def parts(text: str) -> Iterator[Part]:
    yield Part(text)


def created(definition: Any, **options: Any) -> dict[str, Any]:
    """The body that asks for the view."""
    server = NotingServer()
    server.lake().create_materialized_view("a.v", definition, **options)
    path, body = server.last()
    assert path == "/v1/materialized_view/a$v/create"
    return dict(body)


def test_a_view_is_created_with_everything_that_was_said() -> None:
    body = created(DOCS.select("id"), with_no_data=False, auto_refresh=True, policy="incremental")
    assert (body["kind"], body["udtf_spec"]) == ("query", None)
    assert (body["with_no_data"], body["auto_refresh"], body["policy"]) == (False, True, "incremental")


def test_a_view_that_is_filled_at_once_has_its_job() -> None:
    server = NotingServer(create={"job_id": "j1"}, j1=JOB)
    view = server.lake().create_materialized_view("v", "SELECT 1", with_no_data=False)
    assert view.first_refresh is not None
    assert view.first_refresh.id == "j1"


def test_sql_text_is_a_definition() -> None:
    assert created("SELECT id FROM a.docs") == {
        "kind": "query",
        "source_query": "SELECT id FROM a.docs",
        "udtf_spec": None,
        "with_no_data": True,
        "auto_refresh": False,
        "policy": "auto",
    }


def test_sql_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "view.sql").write_text("SELECT id FROM a.docs\n")
    lake = NotingServer().lake()
    assert lake.sql_file(tmp_path / "view.sql") == lake.sql("SELECT id FROM a.docs\n")


@pytest.mark.parametrize("definition", [DOCS.chunk(passages), first.over(DOCS)])
def test_what_to_do_about_failing_rows_goes_with_the_function(definition: Any) -> None:
    spec = created(definition, on_error=skip(limit=3), manifest=Manifest(pip=["numpy"]))["udtf_spec"]
    assert spec["error_handling"]["max_skipped"] == 3
    assert spec["manifest"] == '{"pip": ["numpy"], "env_vars": {}}'
    silent = created(definition)["udtf_spec"]
    assert (silent["error_handling"], silent["manifest"]) == (None, None)


@pytest.mark.parametrize("option", ["on_error", "manifest"])
@pytest.mark.parametrize("definition", [DOCS.select("id"), "SELECT 1"])
def test_a_query_has_no_place_for_such_options(definition: Any, option: str) -> None:
    with pytest.raises(ValueError, match=rf"{option}= is for views of .* give it to refresh\(\)"):
        created(definition, **{option: "skip"})


def test_something_else_defines_no_view() -> None:
    with pytest.raises(TypeError, match=r"a view is defined with SQL text, table\.select"):
        created(3)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="policy= is one of"):
        created("SELECT 1", policy="some")


def test_a_chunker_has_a_timeout_and_packages_too() -> None:
    function = parts.function
    assert (function.timeout_seconds, function.requirements) == (2.0, ("numpy",))


def test_views_are_listed_by_namespace() -> None:
    server = NotingServer(list={"views": ["one", "two"]})
    assert server.lake().list_views("a.b") == ["one", "two"]
    assert server.asked() == [("GET", "/v1/namespace/a$b/materialized_view/list")]


def test_a_view_is_dropped_as_a_view() -> None:
    server = NotingServer()
    server.lake().drop_view("a.v")
    assert server.last() == ("/v1/materialized_view/a$v/drop", {})
