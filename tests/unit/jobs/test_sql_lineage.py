"""Statements are traced: which columns each of theirs comes from, and which decide about the rows."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.contract.samples import a_view
from tidemill.jobs.model.derived import MaterializedView, ViewSource
from tidemill.jobs.model.sql import SqlPlan, SqlSource
from tidemill.jobs.views.sql.lineage import statement_links
from tidemill.jobs.views.sql.plan import plan_sql

PAGES: Final = pa.schema(
    [
        ("day", pa.int64()),
        ("Text", pa.string()),
        ("size", pa.float64()),
        ("image", pa.struct([("width", pa.int64())])),
        ("a b", pa.int64()),
        ("tags", pa.list_(pa.string())),
    ]
)
DAYS: Final = pa.schema([("day", pa.int64()), ("name", pa.string())])
SOURCES: Final = {("s", "pages"): PAGES, ("s", "days"): DAYS}
VIEW: Final = a_view(uuid4(), sources=tuple(ViewSource(uuid4(), levels) for levels in SOURCES))
ROWS: Final = "(rows)"


def traced(view: MaterializedView, plan: SqlPlan) -> dict[str, set[str]]:
    """The origins of each column, and of the rows as a whole."""
    names = {source.table_id: source.levels[-1] for source in view.sources}
    found: dict[str, set[str]] = {}
    for link in statement_links(view, plan):
        origin = f"{names[link.origin.table_id]}.{link.origin.column}"
        found.setdefault(link.made.column or ROWS, set()).add(origin)
    return found


@pytest.mark.parametrize(
    ("statement", "origins"),
    [
        ("SELECT day, upper(Text) AS t FROM s.pages", {"day": {"pages.day"}, "t": {"pages.Text"}}),
        (
            "SELECT image.width AS w, `a b` FROM s.pages WHERE size > 1",
            {"w": {"pages.image"}, "a b": {"pages.a b"}, ROWS: {"pages.size"}},
        ),
        (
            "WITH c AS (SELECT day, sum(size) AS n FROM s.pages GROUP BY day) "
            "SELECT d.name, c.n FROM c JOIN s.days d ON c.day = d.day",
            {"name": {"days.name"}, "n": {"pages.size"}, ROWS: {"pages.day", "days.day"}},
        ),
        (
            "SELECT day, Text FROM s.pages UNION ALL SELECT day, name FROM s.days",
            {"day": {"pages.day", "days.day"}, "Text": {"pages.Text", "days.name"}},
        ),
        (
            "SELECT day FROM s.pages WHERE day IN (SELECT day FROM s.days WHERE name > 'a')",
            {"day": {"pages.day"}, ROWS: {"pages.day", "days.day", "days.name"}},
        ),
        ("SELECT count(*) AS n FROM s.pages", {}),
    ],
)
def test_columns_are_traced_to_those_they_come_from(statement: str, origins: dict[str, set[str]]) -> None:
    named = [(levels, schema) for levels, schema in SOURCES.items() if ".".join(levels) in statement]
    assert traced(VIEW, plan_sql(statement, named, "sql")) == origins


def test_what_is_read_without_a_trace_is_linked_to_the_rows() -> None:
    statement = "SELECT day, CAST(tag AS STRING) AS tag FROM s.pages LATERAL VIEW explode(tags) t AS tag"
    found = traced(VIEW, plan_sql(statement, [(("s", "pages"), PAGES)], "sql"))
    assert found["day"] == {"pages.day"}
    assert "pages.tags" in found.get("tag", set()) | found.get(ROWS, set())


def test_a_statement_that_cannot_be_traced_links_everything_to_every_column() -> None:
    source = SqlSource(("s", "days"), "tm_0", ("day", "name"))
    output = pa.schema([("__key", pa.int64()), ("n", pa.int64())])
    plan = SqlPlan("SELECT something else FROM", (source,), output)
    assert traced(VIEW, plan) == {"n": {"days.day", "days.name"}}
