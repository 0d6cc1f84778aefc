"""The kinds of views there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemill.jobs.model.views import MaterializedView, ViewKind
from tidemill.jobs.views.behavior import ViewBehavior
from tidemill.jobs.views.chunker import ChunkerViews
from tidemill.jobs.views.definitions import ViewDefinition
from tidemill.jobs.views.query import QueryViews
from tidemill.jobs.views.sql_kind import SqlViews
from tidemill.jobs.views.table_function import TableFunctionViews

BEHAVIORS: Final[Mapping[ViewKind, ViewBehavior]] = {
    ViewKind.QUERY: QueryViews(),
    ViewKind.CHUNKER: ChunkerViews(),
    ViewKind.UDTF: TableFunctionViews(),
}
SQL: Final = SqlViews()


def behavior_of(view: MaterializedView | ViewDefinition) -> ViewBehavior:
    """Clients and the database call a view given as SQL a query with a statement; only this knows of it."""
    is_sql = view.kind is ViewKind.QUERY and view.statement is not None
    return SQL if is_sql else BEHAVIORS[view.kind]
