"""Lineage of tables, views and columns, up and down, over any number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.unit.jobs.stand import Catalog
from tidemill.catalog.errors import TableColumnNotFound
from tidemill.catalog.model.callers import LOCAL_CALLER
from tidemill.catalog.model.functions import FunctionEncoding, FunctionKind
from tidemill.catalog.model.tables import Table
from tidemill.errors import PermissionDenied
from tidemill.jobs.model.columns import ComputedColumn
from tidemill.jobs.model.lineage import LineageEntry, ObjectKind, ObjectLineage
from tidemill.jobs.model.views import SourceQuery, ViewColumn, ViewKind
from tidemill.jobs.service.lineage import Lineage


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    made = Catalog()
    yield made
    made.store.close()


def lineage(catalog: Catalog, table: Table, column: str | None = None) -> ObjectLineage:
    sources: Any = catalog
    return Lineage(catalog.store, catalog, catalog.versions, sources).of(LOCAL_CALLER, table.ident, column)


def shown(entries: Sequence[LineageEntry]) -> list[str]:
    """`2 pages.text function length` for a column two steps away that a function called length leads to."""
    return [
        " ".join(
            [
                str(entry.depth),
                ".".join([*entry.levels, *([entry.column] if entry.column else [])]),
                entry.through.value,
                *([entry.function.name] if entry.function else []),
            ]
        )
        for entry in entries
    ]


def compute(catalog: Catalog, table: Table, name: str, *inputs: str, **changes: Any) -> None:
    function = catalog.function(f"make_{name}", **changes)
    with catalog.store.transaction() as tx:
        tx.derived.add_column(ComputedColumn(uuid4(), table.table_id, name, function.digest, inputs))


def chunked(catalog: Catalog, source: Table, name: str = "words") -> Table:
    """Words of `text`, with the page's `id`."""
    output = pa.schema([pa.field("word", pa.string())])
    function = catalog.function("split", kind=FunctionKind.CHUNKER, output=output)
    return catalog.view(
        name,
        source,
        names=["__source_row_id", "__child_index", "page", "word"],
        kind=ViewKind.CHUNKER,
        query=SourceQuery(source.ident.levels, {"page": "id"}),
        function_digest=function.digest,
        inputs=("text",),
    )


def test_a_table_by_itself_has_none(catalog: Catalog) -> None:
    found = lineage(catalog, catalog.table("pages", "id"))
    assert (found.levels, found.kind, found.column) == (("pages",), ObjectKind.TABLE, None)
    assert (found.upstream, found.downstream) == ((), ())


def test_views_of_views_are_told_with_their_distance(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id")
    first = catalog.view("first", pages)
    second = catalog.view("second", first, query=SourceQuery(("first",), {"id": "id + 1"}))
    assert shown(lineage(catalog, second).upstream) == ["1 first expression", "2 pages projection"]
    assert shown(lineage(catalog, pages).downstream) == ["1 first projection", "2 second expression"]
    middle = lineage(catalog, first)
    assert middle.kind is ObjectKind.VIEW
    assert shown(middle.upstream) == ["1 pages projection"]
    assert shown(middle.downstream) == ["1 second expression"]


def test_an_object_that_is_reached_on_two_ways_is_told_at_its_nearest(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id")
    near = catalog.view("near", pages)
    both = catalog.view("both", near, pages, statement="not SQL that can be read")
    assert shown(lineage(catalog, both).upstream) == ["1 near sql", "1 pages sql", "2 pages projection"]


def test_a_computed_column_comes_from_its_inputs(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "text", "size", "twice")
    compute(catalog, pages, "size", "text")
    compute(catalog, pages, "twice", "size", encoding=FunctionEncoding.SQL)
    assert shown(lineage(catalog, pages, "twice").upstream) == [
        "1 pages.size expression",
        "2 pages.text function make_size",
    ]
    assert shown(lineage(catalog, pages, "text").downstream) == [
        "1 pages.size function make_size",
        "2 pages.twice expression",
    ]
    assert shown(lineage(catalog, pages, "id").downstream) == []


def test_an_input_inside_a_column_is_told_as_that_column(catalog: Catalog) -> None:
    pages = catalog.table("pages", "image", "size")
    compute(catalog, pages, "size", "image.`width`")
    assert shown(lineage(catalog, pages, "size").upstream) == ["1 pages.image function make_size"]


def test_columns_of_a_query_view_come_from_what_their_expressions_read(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "text", "a b", "kind")
    query = SourceQuery(("pages",), {"id": "`id`", "sum": "id + length(text)", "part": "`a b`.x"})
    view = catalog.view("view", pages, names=["id", "sum", "part"], query=query)
    assert shown(lineage(catalog, view, "id").upstream) == ["1 pages.id projection"]
    assert shown(lineage(catalog, view, "part").upstream) == ["1 pages.a b projection"]
    assert shown(lineage(catalog, view, "sum").upstream) == [
        "1 pages.id expression",
        "1 pages.text expression",
    ]
    assert shown(lineage(catalog, pages, "id").downstream) == [
        "1 view.id projection",
        "1 view.sum expression",
    ]
    assert shown(lineage(catalog, pages, "kind").downstream) == []


def test_a_column_that_a_function_of_a_query_view_makes_comes_from_its_inputs(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "text")
    length = catalog.function("length")
    view = catalog.view(
        "view",
        pages,
        names=["id", "size"],
        query=SourceQuery(("pages",), {"id": "id"}),
        columns=(ViewColumn("size", length.digest, ("text",)),),
    )
    (entry,) = lineage(catalog, view, "size").upstream
    assert shown([entry]) == ["1 pages.text function length"]
    assert entry.function is not None
    assert entry.function.digest == length.digest
    assert shown(lineage(catalog, view).upstream) == ["1 pages function length"]


def test_a_filter_decides_about_a_view_as_a_whole(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "kind")
    kept = catalog.view("kept", pages, query=SourceQuery(("pages",), {"id": "id"}, "kind = 1"))
    catalog.view("copy", kept)
    assert shown(lineage(catalog, kept, "id").upstream) == ["1 pages.kind filter", "1 pages.id projection"]
    assert shown(lineage(catalog, pages, "kind").downstream) == ["1 kept filter", "2 copy projection"]
    assert shown(lineage(catalog, kept).upstream) == ["1 pages filter"]


def test_what_a_chunker_makes_comes_from_its_inputs_and_the_rest_from_the_query(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "text")
    words = chunked(catalog, pages)
    for made in ("word", "__child_index"):
        assert shown(lineage(catalog, words, made).upstream) == ["1 pages.text chunker split"]
    assert shown(lineage(catalog, words, "page").upstream) == ["1 pages.id projection"]
    assert shown(lineage(catalog, words, "__source_row_id").upstream) == ["1 pages projection"]
    assert shown(lineage(catalog, words).upstream) == ["1 pages chunker split"]


def test_what_a_table_function_makes_comes_from_all_it_sees(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "text", "day", "kind")
    output = pa.schema([pa.field("size", pa.int64())])
    function = catalog.function("group", kind=FunctionKind.TABLE, output=output)
    groups = catalog.view(
        "groups",
        pages,
        names=["__key", "size"],
        kind=ViewKind.UDTF,
        query=SourceQuery(("pages",), {"id": "id", "text": "text"}),
        function_digest=function.digest,
        partition_by="day",
    )
    assert shown(lineage(catalog, groups, "size").upstream) == [
        "1 pages.day table_function group",
        "1 pages.id table_function group",
        "1 pages.text table_function group",
    ]
    assert shown(lineage(catalog, groups, "__key").upstream) == ["1 pages.day projection"]


def test_columns_are_followed_through_tables_and_views(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "raw", "text")
    compute(catalog, pages, "text", "raw")
    words = chunked(catalog, pages)
    compute(catalog, words, "page", "word")
    loud = catalog.view("loud", words, names=["word"], query=SourceQuery(("words",), {"word": "upper(word)"}))
    assert shown(lineage(catalog, loud, "word").upstream) == [
        "1 words.word expression",
        "2 pages.text chunker split",
        "3 pages.raw function make_text",
    ]
    assert shown(lineage(catalog, pages, "raw").downstream) == [
        "1 pages.text function make_text",
        "2 words.word chunker split",
        "3 words.page function make_page",
        "3 loud.word expression",
    ]


def test_a_statement_is_traced_column_by_column(catalog: Catalog) -> None:
    pages, days = catalog.table("pages", "day", "size", "kind"), catalog.table("days", "day", "name")
    view = catalog.view(
        "sizes",
        pages,
        days,
        names=["__key", "name", "total"],
        statement=(
            "SELECT d.name AS name, sum(p.size) AS total FROM pages p JOIN days d ON p.day = d.day "
            "WHERE p.kind > 1 GROUP BY d.name"
        ),
    )
    deciding = ["1 pages.day sql", "1 pages.kind sql", "1 days.day sql", "1 days.name sql"]
    total = shown(lineage(catalog, view, "total").upstream)
    assert sorted(total) == sorted(["1 pages.size sql", *deciding])
    assert shown(lineage(catalog, pages, "size").downstream) == ["1 sizes.total sql"]
    assert "1 sizes sql" in shown(lineage(catalog, pages, "kind").downstream)
    assert shown(lineage(catalog, view).upstream) == ["1 pages sql", "1 days sql"]


def test_a_dropped_source_is_remembered_by_its_name(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id", "text")
    query = SourceQuery(("pages",), {"id": "id", "size": "length(text)"})
    view = catalog.view("view", pages, names=["id", "size"], query=query)
    catalog.drop(pages)
    (entry,) = lineage(catalog, view).upstream
    assert (entry.levels, entry.kind) == (("pages",), ObjectKind.DROPPED)
    assert shown(lineage(catalog, view, "id").upstream) == ["1 pages.id projection"]
    assert shown(lineage(catalog, view, "size").upstream) == ["1 pages expression"]


def test_what_the_caller_may_not_read_is_left_out_with_all_behind_it(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id")
    first = catalog.view("first", pages)
    second = catalog.view("second", first)
    catalog.hidden = {"first"}
    assert lineage(catalog, second).upstream == ()
    assert lineage(catalog, pages, "id").downstream == ()
    with pytest.raises(PermissionDenied):
        lineage(catalog, first)


def test_a_view_that_nobody_can_read_comes_from_nothing(catalog: Catalog) -> None:
    pages = catalog.table("pages", "id")
    assert lineage(catalog, catalog.view("odd", pages, sources=())).upstream == ()


def test_a_column_that_is_not_there_has_no_lineage(catalog: Catalog) -> None:
    with pytest.raises(TableColumnNotFound, match="size"):
        lineage(catalog, catalog.table("pages", "id"), "size")
