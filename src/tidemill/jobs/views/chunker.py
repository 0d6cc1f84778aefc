"""Chunker views: a function makes any number of rows from each source row."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tidemill.catalog.model.functions import FunctionKind
from tidemill.errors import InvalidInput
from tidemill.jobs.model.columns import bind_inputs
from tidemill.jobs.model.coverage import top_level
from tidemill.jobs.model.lineage import Link, Through
from tidemill.jobs.model.views import CHILD_INDEX, MaterializedView, SourceQuery
from tidemill.jobs.table_ports import SourceTables
from tidemill.jobs.views.behavior import SourceReading
from tidemill.jobs.views.definitions import ReadSource, ViewDefinition, check_row_function
from tidemill.jobs.views.lineage import DefinitionReader, SourceLinks
from tidemill.jobs.views.query import RowViews

INPUTS: Final = "udtf_spec.input_columns"


class ChunkerViews(RowViews):
    can_be_capped = True
    place = CHILD_INDEX

    def check_function(self, definition: ViewDefinition) -> None:
        function = check_row_function(definition, FunctionKind.CHUNKER)
        if not definition.inputs and not function.parameters:
            raise InvalidInput(INPUTS, "is missing; a chunker needs to be told its columns")

    def bound_inputs(
        self, definition: ViewDefinition, source: ReadSource, tables: SourceTables
    ) -> tuple[str, ...]:
        function = definition.function
        if function is None:
            return ()
        return bind_inputs(source.ident, source.schema, function, definition.inputs, INPUTS)

    def settled_query(self, definition: ViewDefinition, source: ReadSource) -> SourceQuery:
        """Without a projection it has no columns but the chunker's."""
        return replace(definition.query, columns=definition.query.columns or {})

    def is_capped(self, source: SourceReading) -> bool:
        return len(source.coverage.rows) < source.snapshot.live_rows

    def links(self, view: MaterializedView, reader: DefinitionReader) -> list[Link]:
        links = SourceLinks(view, reader)
        inputs = [top_level(name) for name in view.inputs]
        made = links.made_by_function(Through.CHUNKER, inputs, (CHILD_INDEX,))
        return [*links.filter(), *links.row_ids(), *links.projected(), *made]
