"""Tables of numbered texts, with as many fragments as a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tidemill

TIMEOUT = 120.0


def numbered(first: int, count: int) -> list[dict[str, Any]]:
    """Rows `{"id": 7, "text": "text 7"}`."""
    return [{"id": number, "text": f"text {number}"} for number in range(first, first + count)]


@dataclass(frozen=True)
class Maker:
    """Makes tables in the test's namespace."""

    lake: tidemill.Lake
    namespace: str

    def table(self, *fragments: Sequence[dict[str, Any]], name: str = "docs") -> tidemill.Table:
        first, *others = fragments
        table = self.lake.create_table(f"{self.namespace}.{name}", first)
        for rows in others:
            table.add(rows)
        return table

    def numbered(self, *sizes: int, name: str = "docs") -> tidemill.Table:
        """One fragment per size, with ids from 0."""
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        return self.table(
            *(numbered(start, size) for start, size in zip(starts, sizes, strict=True)), name=name
        )

    def view(
        self, definition: tidemill.QueryDefinition | tidemill.ChunkerDefinition, name: str = "view"
    ) -> tidemill.View:
        return self.lake.create_materialized_view(f"{self.namespace}.{name}", definition)


def filled(table: tidemill.Table, column: str, **options: Any) -> tidemill.Job:
    return table.backfill(column, **options).wait(TIMEOUT)


def refreshed(view: tidemill.View, **options: Any) -> tidemill.Job:
    return view.refresh(**options).wait(TIMEOUT)


def by_id(table: tidemill.Table, column: str) -> dict[int, Any]:
    rows = table.query(columns=["id", column]).to_pylist()
    return {row["id"]: row[column] for row in rows}


def row_ids(table: tidemill.Table) -> dict[int, int]:
    """The stable row id of each `id`."""
    rows = table.to_lance().scanner(columns=["id"], with_row_id=True).to_table().to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}
