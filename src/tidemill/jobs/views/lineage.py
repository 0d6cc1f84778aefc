"""What the columns of a view depend on, read from its definition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import pyarrow as pa

from tidemill.catalog.model.functions import Function
from tidemill.jobs.model.coverage import top_level
from tidemill.jobs.model.lineage import FunctionName, Link, Node, Through
from tidemill.jobs.model.views import IS_SET, SOURCE_ROW_ID, MaterializedView

# A column, or a field inside one.
PATH: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))(?:\.(?:`(?:[^`]|``)+`|[A-Za-z_]\w*))*\s*")


class DefinitionReader(Protocol):
    """What has to be looked up to read the definition of a view."""

    def functions(self, view: MaterializedView) -> Sequence[Function]: ...

    def columns_read(self, view: MaterializedView, expression: str) -> Sequence[str] | None:
        """The columns of the first source that an expression reads; None if the source is gone."""

    def source_schemas(self, view: MaterializedView) -> Sequence[pa.Schema] | None:
        """The columns of each source; None when one is gone."""


def object_links(view: MaterializedView, links: Sequence[Link], through: Through | None) -> list[Link]:
    """The same between tables and views: one for each function, or one that tells the most.

    `through` is for kinds of views where it is always the same.
    """
    found: list[Link] = []
    for source in view.sources:
        own = [link for link in links if link.origin.table_id == source.table_id]
        ways: set[tuple[Through, FunctionName | None]]
        ways = {(link.through, link.function) for link in own if link.function is not None}
        ways = ways or {(through or _strongest(own), None)}
        ordered = sorted(ways, key=lambda way: "" if way[1] is None else way[1].name)
        found += [Link(Node(view.view_id), Node(source.table_id), *way) for way in ordered]
    return found


def _strongest(links: Sequence[Link]) -> Through:
    ways = {link.through for link in links}
    return next((way for way in (Through.EXPRESSION, Through.FILTER) if way in ways), Through.PROJECTION)


def name_of(function: Function) -> FunctionName:
    return FunctionName(function.name, function.digest)


class SourceLinks:
    """Links of a view over one source; those of its filter are links of the view as a whole."""

    def __init__(self, view: MaterializedView, reader: DefinitionReader) -> None:
        self._view = view
        self._reader = reader
        self._functions = {function.digest: function for function in reader.functions(view)}

    def filter(self) -> list[Link]:
        """Which rows there are."""
        condition = self._view.query.filter
        if condition is None:
            return []
        return self.links(None, self._read(condition) or [None], Through.FILTER)

    def row_ids(self) -> list[Link]:
        """Where each row comes from."""
        output, whole = self._view.output, [None]
        is_marked = output is not None and IS_SET in output.names
        names = [SOURCE_ROW_ID, IS_SET] if is_marked else [SOURCE_ROW_ID]
        return [link for name in names for link in self.links(name, whole, Through.PROJECTION)]

    def projected(self) -> list[Link]:
        """Columns that the query yields."""
        columns = self._view.query.columns or {}
        return [
            link
            for name, expression in columns.items()
            for link in self.links(name, *self._columns_of(expression))
        ]

    def made_by_columns(self) -> list[Link]:
        return [
            link
            for column in self._view.columns
            for link in self.links(
                column.name,
                [top_level(name) for name in column.inputs],
                Through.FUNCTION,
                name_of(self._functions[column.function_digest]),
            )
        ]

    def made_by_function(
        self, through: Through, inputs: Sequence[str | None], places: Sequence[str] = ()
    ) -> list[Link]:
        """Columns that the one function of the view makes; `places` number its rows."""
        if self._view.function_digest is None:
            return []
        function = self._functions[self._view.function_digest]
        made = [*places, *function.output.names]
        return [link for name in made for link in self.links(name, inputs, through, name_of(function))]

    def all_read(self) -> Sequence[str | None]:
        """All columns of the source that the query or a function reads."""
        inputs: list[str | None] = [top_level(name) for name in self._view.inputs_read]
        for expression in (self._view.query.columns or {}).values():
            inputs += self._columns_of(expression)[0]
        return inputs

    def links(
        self,
        made: str | None,
        origins: Iterable[str | None],
        through: Through,
        function: FunctionName | None = None,
    ) -> list[Link]:
        node, source = Node(self._view.view_id, made), self._view.sources[0].table_id
        return [Link(node, Node(source, name), through, function) for name in dict.fromkeys(origins)]

    def _columns_of(self, expression: str) -> tuple[Sequence[str | None], Through]:
        plain, read = _plain_column(expression), self._read(expression)
        if read is None:
            return ([None], Through.EXPRESSION) if plain is None else ([plain], Through.PROJECTION)
        same = [name for name in read if plain is not None and name.lower() == plain.lower()]
        return (same, Through.PROJECTION) if same else (read, Through.EXPRESSION)

    def _read(self, expression: str) -> Sequence[str] | None:
        return self._reader.columns_read(self._view, expression)


def _plain_column(expression: str) -> str | None:
    """The column, if the expression is nothing but one or a field inside one."""
    found = PATH.fullmatch(expression)
    if found is None:
        return None
    quoted, bare = found.groups()
    return bare if quoted is None else str(quoted).replace("``", "`")
