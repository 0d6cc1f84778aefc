"""What the columns of a view depend on, read from its definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tidemill.catalog.model.functions import Function
from tidemill.jobs.model.coverage import top_level
from tidemill.jobs.model.derived import (
    CHILD_INDEX,
    IS_SET,
    KEY,
    SOURCE_ROW_ID,
    MaterializedView,
    ViewKind,
    ViewSource,
)
from tidemill.jobs.model.lineage import FunctionName, Link, Node, Through

# A column, or a field inside one.
PATH: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))(?:\.(?:`(?:[^`]|``)+`|[A-Za-z_]\w*))*\s*")

Reader: TypeAlias = Callable[[str], Sequence[str] | None]
"""The columns of the source that an expression reads; None when the source cannot be asked any more."""


def view_links(view: MaterializedView, functions: Mapping[str, Function], read: Reader) -> list[Link]:
    """Links of the columns of a view over one source; its filter's are links of the view as a whole."""
    if not view.sources:
        return []
    links = _Definition(view, view.sources[0], functions, read)
    return [*links.rows(), *links.projected(), *links.made_by_columns(), *links.made_by_function()]


def object_links(view: MaterializedView, links: Sequence[Link]) -> list[Link]:
    """The same between tables and views: one for each function, or one that tells the most."""
    found: list[Link] = []
    for source in view.sources:
        own = [link for link in links if link.origin.table_id == source.table_id]
        ways: set[tuple[Through, FunctionName | None]]
        ways = {(link.through, link.function) for link in own if link.function is not None}
        ways = ways or {(_strongest(view, own), None)}
        ordered = sorted(ways, key=lambda way: "" if way[1] is None else way[1].name)
        found += [Link(Node(view.view_id), Node(source.table_id), *way) for way in ordered]
    return found


def _strongest(view: MaterializedView, links: Sequence[Link]) -> Through:
    if view.statement is not None:
        return Through.SQL
    ways = {link.through for link in links}
    return next((way for way in (Through.EXPRESSION, Through.FILTER) if way in ways), Through.PROJECTION)


def name_of(function: Function) -> FunctionName:
    return FunctionName(function.name, function.digest)


class _Definition:
    def __init__(
        self, view: MaterializedView, source: ViewSource, functions: Mapping[str, Function], read: Reader
    ) -> None:
        self._view = view
        self._source = source
        self._functions = functions
        self._read = read

    def rows(self) -> list[Link]:
        """Which rows there are, and where each comes from."""
        view, whole = self._view, [None]
        links = [] if view.query.filter is None else self._links(None, *self._filter_columns())
        if view.kind is ViewKind.UDTF:
            keys = [name for name in (view.partition_by, view.partition_index) if name is not None]
            return links + (self._links(KEY, keys, Through.PROJECTION) if keys else [])
        links += self._links(SOURCE_ROW_ID, whole, Through.PROJECTION)
        is_marked = view.output is not None and IS_SET in view.output.names
        return links + (self._links(IS_SET, whole, Through.PROJECTION) if is_marked else [])

    def projected(self) -> list[Link]:
        """Columns that the query yields; a table function's are its own."""
        if self._view.kind is ViewKind.UDTF:
            return []
        columns = self._view.query.columns or {}
        return [
            link
            for name, expression in columns.items()
            for link in self._links(name, *self._columns_of(expression))
        ]

    def made_by_columns(self) -> list[Link]:
        return [
            link
            for column in self._view.columns
            for link in self._links(
                column.name,
                [top_level(name) for name in column.inputs],
                Through.FUNCTION,
                name_of(self._functions[column.function_digest]),
            )
        ]

    def made_by_function(self) -> list[Link]:
        view = self._view
        if view.function_digest is None:
            return []
        function = self._functions[view.function_digest]
        is_chunker = view.kind is ViewKind.CHUNKER
        through = Through.CHUNKER if is_chunker else Through.TABLE_FUNCTION
        inputs = [top_level(name) for name in view.inputs] if is_chunker else self._table_inputs()
        made = [CHILD_INDEX, *function.output.names] if is_chunker else function.output.names
        return [link for name in made for link in self._links(name, inputs, through, name_of(function))]

    def _filter_columns(self) -> tuple[Sequence[str | None], Through]:
        return self._read(self._view.query.filter or "") or [None], Through.FILTER

    def _columns_of(self, expression: str) -> tuple[Sequence[str | None], Through]:
        plain, read = _plain_column(expression), self._read(expression)
        if read is None:
            return ([None], Through.EXPRESSION) if plain is None else ([plain], Through.PROJECTION)
        same = [name for name in read if plain is not None and name.lower() == plain.lower()]
        return (same, Through.PROJECTION) if same else (read, Through.EXPRESSION)

    def _table_inputs(self) -> Sequence[str | None]:
        """All that the function can see of its source."""
        inputs: list[str | None] = [top_level(name) for name in self._view.inputs_read]
        for expression in (self._view.query.columns or {}).values():
            inputs += self._columns_of(expression)[0]
        return inputs

    def _links(
        self,
        made: str | None,
        origins: Iterable[str | None],
        through: Through,
        function: FunctionName | None = None,
    ) -> list[Link]:
        node, source = Node(self._view.view_id, made), self._source.table_id
        return [Link(node, Node(source, name), through, function) for name in dict.fromkeys(origins)]


def _plain_column(expression: str) -> str | None:
    """The column, if the expression is nothing but one or a field inside one."""
    found = PATH.fullmatch(expression)
    if found is None:
        return None
    quoted, bare = found.groups()
    return bare if quoted is None else str(quoted).replace("``", "`")
