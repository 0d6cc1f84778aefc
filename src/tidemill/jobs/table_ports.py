"""Ports to tables: what the planner reads of them, and what jobs write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidemill.catalog.model.identifiers import TableIdent
from tidemill.catalog.model.tables import Table, TableVersion, WriteResult
from tidemill.jobs.model.coverage import Changes, Coverage, Watched
from tidemill.jobs.model.indexes import IndexDefinition, IndexStatistics, TableIndex
from tidemill.jobs.model.plans import KeyedRows, RowLocations, TableSnapshot, ViewEdits
from tidemill.jobs.model.views import (
    Partition,
    SourceQuery,
)
from tidemill.jobs.ports import TransactionEffect


class TableVersions(Protocol):
    """Versions of tables; reads only."""

    def get_branch(self, ident: TableIdent, branch: str) -> Table:
        """The table on a branch; raises TableNotFound, BranchNotFound, TableIsQuery."""

    def find(self, table: Table, version: int) -> TableVersion | None: ...

    def get(self, table: Table, version: int) -> TableVersion:
        """Raises TableVersionNotFound."""

    def find_latest(self, table: Table) -> TableVersion | None:
        """The latest version that can be read; None if the table has no data."""

    def get_latest(self, table: Table) -> TableVersion:
        """Raises TableHasNoData."""


class SourceTables(Protocol):
    """Tables as the planner sees them; reads only."""

    def snapshot(self, table: Table, version: int | None) -> TableSnapshot: ...

    def changes(self, table: Table, base: int, end: int, watched: Watched) -> Changes:
        """What happened in (base, end] to rows, judged by the values of the watched columns."""

    def trace_field(self, table: Table, path: str, field_id: int, since: int, version: int) -> str:
        """What a field of one version is called in a later one: it keeps its id when it is renamed."""

    def check_results(self, table: Table, version: int, coverage: Coverage, watched: Watched) -> Changes:
        """Which covered rows hold no right result at that version, and which others do."""

    def changed_rows(self, table: Table, version: int, coverage: Coverage, columns: Sequence[str]) -> Changes:
        """Covered rows that have other values in these columns than at the coverage's watermark."""

    def locate(self, table: Table, version: int, where: str | None) -> RowLocations:
        """Where each live (matching) row is."""

    def take(
        self, table: Table, version: int, row_ids: npt.NDArray[np.uint64], columns: Sequence[str]
    ) -> pa.Table:
        """These columns (dotted paths go inside) of these rows, in their order."""

    def check_where(self, table: Table, where: str) -> None:
        """Raises InvalidInput if the filter is invalid for the table."""

    def columns_read(
        self, table: Table, query: SourceQuery, inputs: Sequence[str], version: int | None
    ) -> tuple[str, ...]:
        """The source columns that a view's rows depend on."""

    def project(self, table: Table, query: SourceQuery, field: str = "source_query") -> pa.Schema:
        """The columns a query yields; raises InvalidInput or TableColumnNotFound if it is invalid."""

    def partitions(self, table: Table, version: int, column: str, where: str | None) -> Sequence[Partition]:
        """One for each value the column has in the matching rows."""

    def index_partitions(self, table: Table, version: int, column: str) -> Sequence[Partition]:
        """The rows of each partition of the column's IVF index, those it does not know yet by themselves.

        Raises InvalidInput when the column has no such index, VersionGone when the version cannot be read.
        """

    def key_hashes(self, table: Table, version: int, rows: BitMap64, columns: Sequence[str]) -> BitMap64:
        """The values of `__key` that these rows have at that version, as unsigned numbers.

        Raises VersionGone when the version cannot be read any more.
        """

    def view_edits(self, view: Table, published: int, key: str | None, columns: Sequence[str]) -> ViewEdits:
        """What others did to rows of a view since a version of it, as far as these columns are concerned."""

    def keyed_rows(self, view: Table, version: int, key: str | None, wanted: BitMap64 | None) -> KeyedRows:
        """The rows of a view whose key is wanted (None: all), in the order of key and place.

        Without a key column all rows have the key 0.
        """


class TableData(Protocol):
    """Tables and columns that jobs fill. Every write is a version."""

    def create(self, table: Table, rows: pa.RecordBatchReader, on_commit: TransactionEffect) -> WriteResult:
        """Writes version 1. `on_commit` runs in the transaction of that version, before its row is added."""

    def schema(self, table: Table, version: int | None) -> pa.Schema: ...

    def check_types(self, table: Table, fields: Sequence[pa.Field]) -> None:
        """Raises InvalidInput if the table's files cannot store the values of one of these."""

    def add_empty_columns(
        self, table: Table, fields: Sequence[pa.Field], on_commit: TransactionEffect
    ) -> int:
        """Adds all-null columns (metadata only) and returns the new version."""


class TableIndexes(Protocol):
    """Indexes of tables. Each branch has its own."""

    def check(self, table: Table, definition: IndexDefinition) -> IndexDefinition:
        """Returns the definition with the canonical path of its column.

        Raises TableColumnNotFound, and InvalidInput if the index cannot be built.
        """

    def build(
        self, table: Table, definition: IndexDefinition, on_commit: TransactionEffect, watch: BuildWatch
    ) -> int:
        """Builds and commits the index; raises TableIndexAlreadyExists unless it is a replacement."""

    def count_rows(self, table: Table) -> int: ...

    def list_all(self, table: Table, version: int) -> Sequence[TableIndex]:
        """Sorted by name."""

    def statistics(self, table: Table, version: int, name: str) -> IndexStatistics:
        """Raises TableIndexNotFound."""

    def drop(self, table: Table, name: str) -> int:
        """Raises TableIndexNotFound."""

    def prewarm(self, table: Table, name: str) -> None:
        """Raises TableIndexNotFound."""


class BuildWatch(Protocol):
    """Receives the progress of an index build."""

    def rows_done(self, rows: int) -> None: ...
