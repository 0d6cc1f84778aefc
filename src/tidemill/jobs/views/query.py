"""Query views: one row per source row that passes the filter; expressions and functions make its columns."""

from __future__ import annotations

import pyarrow as pa

from tidemill.jobs.model.lineage import Link
from tidemill.jobs.model.views import IS_SET, MaterializedView
from tidemill.jobs.views.definitions import ViewDefinition, check_column_functions
from tidemill.jobs.views.lineage import DefinitionReader, SourceLinks
from tidemill.jobs.views.one_source import RowViews


class QueryViews(RowViews):
    def check_function(self, definition: ViewDefinition) -> None:
        check_column_functions(definition)

    def expected_output(self, definition: ViewDefinition, projected: pa.Schema) -> pa.Schema:
        """With the columns that functions make; `__is_set` is there if the caller wants it."""
        fields = list(projected)
        for column in sorted(definition.columns, key=lambda column: column.index):
            fields.insert(column.index, pa.field(column.name, column.function.value_type))
        expected = self.output(pa.schema(fields), None)
        given = definition.output
        if given is not None and IS_SET in given.names:
            expected = expected.insert(1, pa.field(IS_SET, pa.bool_()))
        return expected

    def links(self, view: MaterializedView, reader: DefinitionReader) -> list[Link]:
        links = SourceLinks(view, reader)
        return [*links.filter(), *links.row_ids(), *links.projected(), *links.made_by_columns()]
