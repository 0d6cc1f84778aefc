"""Lance tables as the planner sees them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model.tables import Table
from tidemill.jobs.model.coverage import Changes, Watched
from tidemill.jobs.model.derived import SourceQuery, path_of, quoted
from tidemill.jobs.model.plans import FragmentInfo, RowLocations, TableSnapshot
from tidemill.lance.changes import find_changes
from tidemill.lance.data import LanceTableData, translated
from tidemill.lance.filters import check_filter

WORDS: Final = re.compile(r"\w+")


class LanceSourceTables:
    def __init__(self, data: LanceTableData) -> None:
        self._data = data

    def snapshot(self, table: Table, version: int | None) -> TableSnapshot:
        dataset = self._data.open(table, version)
        fragments = (fragment.metadata for fragment in dataset.get_fragments())
        return TableSnapshot(
            version=dataset.version,
            schema=dataset.schema,
            fragments=tuple(
                FragmentInfo(f.id, f.physical_rows, f.physical_rows - f.num_deletions) for f in fragments
            ),
            has_stable_row_ids=dataset.has_stable_row_ids,
        )

    def changes(self, table: Table, base: int, end: int, watched: Watched) -> Changes:
        if base == end:
            return Changes()
        return find_changes(self._data.open(table, end), base, watched)

    def locate(self, table: Table, version: int, where: str | None) -> RowLocations:
        if where is not None:
            check_filter(where, "where")
        with translated(table.ident):
            rows = (
                self._data.open(table, version)
                .scanner(columns=[], filter=where, with_row_id=True, with_row_address=True)
                .to_table()
            )
        return RowLocations(rows["_rowid"].to_numpy(), rows["_rowaddr"].to_numpy() >> np.uint64(32))

    def take(
        self, table: Table, version: int, row_ids: npt.NDArray[np.uint64], columns: Sequence[str]
    ) -> pa.Table:
        wanted = {name: path_of(name) for name in columns}
        dataset = self._data.open(table, version)
        return dataset._take_rows(row_ids, columns=wanted, blob_handling="blobs_descriptions")

    def check_where(self, table: Table, where: str) -> None:
        check_filter(where, "where")
        with translated(table.ident, field="where"):
            self._data.open(table, None).scanner(columns=[], filter=where, with_row_id=True).explain_plan()

    def columns_read(
        self, table: Table, query: SourceQuery, inputs: Sequence[str], version: int | None
    ) -> tuple[str, ...]:
        """Those the expressions may name: telling exactly would need Lance's parser, so by their words."""
        schema = self._data.open(table, version).schema
        texts = [*(query.columns or {}).values(), query.filter or ""]
        words = {word.lower() for text in texts for word in WORDS.findall(text)}
        bound = {name.split(".")[0].strip("`") for name in inputs}
        return tuple(name for name in schema.names if name in bound or _may_name(words, name))

    def project(self, table: Table, query: SourceQuery, field: str = "source_query") -> pa.Schema:
        dataset = self._data.open(table, None)
        if query.filter is not None:
            check_filter(query.filter, f"{field}.filter")
        for alias, expression in (query.columns or {}).items():
            check_filter(expression, f"{field}.columns.{alias}")
        with translated(table.ident, field=field):
            scanner = dataset.scanner(
                columns=dict(query.columns or {}),
                filter=query.filter,
                with_row_id=True,
                blob_handling="all_binary",
            )
            scanner.explain_plan()
            projected = scanner.projected_schema
        return pa.schema([projected.field(name) for name in query.columns or {}])

    def partitions(self, table: Table, version: int, column: str, where: str | None) -> Sequence[str]:
        rows = self._data.open(table, version).scanner(columns=[column], filter=where).to_table()
        name = quoted(column)
        return [
            f"{name} IS NULL" if value is None else f"{name} = {_literal(value)}"
            for value in rows[column].unique().to_pylist()
        ]


def _literal(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        return f"'{escaped}'"
    return f"DATE '{value.isoformat()}'" if isinstance(value, date) else str(value)


def _may_name(words: set[str], column: str) -> bool:
    """Whether every word of the column's name occurs: true for each column that is really named."""
    return {word.lower() for word in WORDS.findall(column)} <= words
